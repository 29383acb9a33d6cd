"""`ottla migrate check`: what of a node's file and directories Ottla would refuse or treat differently."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.log.fs import OsFs
from ottla.metadata.records import encode_record
from ottla.raft.batches import data_batch
from ottla.raft.snapshots import snapshot_buffers, snapshot_name, write_snapshot_file
from ottla.raft.types import OffsetAndEpoch
from ottla.wire.classes import WireMessage
from ottla.wire.enums import ConfigResourceType
from ottla.wire.messages import ConfigRecord, FeatureLevelRecord, TopicRecord

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


class Machine:
    """A node's properties and its formatted directory."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.file = folder / "server.properties"
        self.keys = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@127.0.0.1:19093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093",
            "log.dirs": str(self.data),
            "max.connections": "100",
            "max.connections.per.ip": "100",
        }
        self.write()
        done = CliRunner().invoke(main, ["storage", "format", "-c", str(self.file), "-t", CLUSTER])
        assert done.exit_code == 0, done.output
        (self.data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')

    def write(self, **keys: str) -> None:
        given = {**self.keys, **{key.replace("_", "."): value for key, value in keys.items()}}
        self.file.write_text("".join(f"{key}={value}\n" for key, value in given.items() if value))

    def check(self) -> tuple[int, dict[str, tuple[str, str]]]:
        """The exit code, and state and text of each finding by its subject."""
        before = snapshot_of(self.file.parent)
        done = CliRunner().invoke(main, ["migrate", "check", "--json", str(self.file)])
        assert snapshot_of(self.file.parent) == before, "the check wrote something"
        found = {each["check"]: (each["state"], each["text"]) for each in json.loads(done.stdout)}
        return done.exit_code, found

    def segment(self, partition: str, content: bytes, name: str = "00000000000000000000.log") -> None:
        folder = self.data / partition
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)

    def metadata(self, snapshot: Sequence[WireMessage], log: bytes = b"") -> None:
        folder = self.data / "__cluster_metadata-0"
        folder.mkdir(exist_ok=True)
        values = [encode_record(record, 30) for record in snapshot]
        buffers = snapshot_buffers(1, values, kraft_version=0, voters=None, last_timestamp=0, now_ms=0)
        write_snapshot_file(OsFs(), str(folder), snapshot_name(OffsetAndEpoch(10, 1)), buffers)
        (folder / "00000000000000000000.log").write_bytes(log)


def snapshot_of(folder: Path) -> Mapping[Path, tuple[int, bytes]]:
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def topic_config(topic: str, key: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=topic, name=key, value=value)


def old_message(magic: int, value: bytes) -> bytes:
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 5) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def test_a_node_that_ottla_takes_over(machine: Machine) -> None:
    machine.segment("orders-0", data_batch([b"x"], 0, 0, 0))
    code, found = machine.check()
    assert code == 0
    assert {state for state, _ in found.values()} == {"ok"}, found
    assert found[str(machine.file)][1] == "Ottla starts with these 8 keys"
    assert found[str(machine.data)][1] == "1 partitions with 1 segments of message format 2"


def test_all_mistakes_of_a_file_are_found_at_once(machine: Machine) -> None:
    machine.write(
        log_segment_bytes="12",
        zookeeper_connect="localhost:2181",
        num_network_threads="3",
        create_topic_policy_class_name="com.example.Policy",
        authorizer_class_name="com.example.Authorizer",
        max_connections="",
    )
    code, found = machine.check()
    assert code == 1
    assert found["log.segment.bytes"][0] == "fail"
    assert found["zookeeper.connect"] == (
        "fail",
        "Kafka 4.3 has no such key; Apache Kafka ignores it, Ottla refuses to start",
    )
    assert found["num.network.threads"] == ("warn", "it is accepted and has no effect")
    assert "topics that this policy refuses would be created" in found["create.topic.policy.class.name"][1]
    assert found["authorizer.class.name"][0] == "fail"
    assert found["max.connections"] == ("warn", "it is not set: Apache Kafka has no limit then, Ottla 10000")


def test_a_file_of_the_zookeeper_era_and_one_without_a_directory(machine: Machine) -> None:
    machine.write(process_roles="", log_dirs="")
    code, found = machine.check()
    assert code == 1
    assert "not a node of a KRaft cluster" in found["process.roles"][1]
    assert found["log.dirs"][0] == "fail"


def test_key_stores_are_opened_as_at_a_start(machine: Machine) -> None:
    machine.write(
        listeners="SSL://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093",
        security_inter_broker_protocol="SSL",
        ssl_keystore_location="/nowhere/node.jks",
        ssl_keystore_password="secret-1",
    )
    code, found = machine.check()
    assert code == 1
    refused = [text for state, text in found.values() if state == "fail"]
    assert any("/nowhere/node.jks" in text for text in refused), found
    assert "secret-1" not in str(found)


def test_directories_of_another_node_and_unformatted_ones(machine: Machine) -> None:
    machine.write(node_id="2", controller_quorum_voters="2@127.0.0.1:19093")
    code, found = machine.check()
    assert code == 1 and "belongs to node.id 1" in found[str(machine.data)][1]
    missing = str(machine.data) + "-missing"
    machine.write(log_dirs=missing)
    code, found = machine.check()
    assert code == 1 and "not formatted, or missing" in found[missing][1]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_an_old_format_are_refused(machine: Machine, magic: int) -> None:
    machine.segment("old-0", old_message(magic, b"v" * 100))
    machine.segment("torn-0", bytes(100))
    code, found = machine.check()
    assert code == 1
    assert found["message format"][0] == "fail" and "old-0" in found["message format"][1]
    assert "torn-0" not in found["message format"][1]


def test_files_that_kafka_does_not_have_are_named(machine: Machine) -> None:
    machine.segment("orders-0", b"", "notes.txt")
    (machine.data / "backup").mkdir()
    (machine.data / "remote-log-index-cache").mkdir()
    (machine.data / ".kafka_cleanshutdown").unlink()
    code, found = machine.check()
    assert code == 0
    for name in ("orders-0/notes.txt", "backup", "remote-log-index-cache"):
        assert found[f"{machine.data}/{name}"][0] == "warn"


def test_a_directory_that_was_not_stopped_cleanly(machine: Machine) -> None:
    (machine.data / ".kafka_cleanshutdown").unlink()
    done = CliRunner().invoke(main, ["migrate", "check", str(machine.file)])
    assert done.exit_code == 0
    assert "the last one did not stop cleanly" in done.stdout
    assert "0 refused, 1 different. Ottla can take this node over." in done.stdout


def test_the_metadata_is_read_to_its_torn_end(machine: Machine) -> None:
    added = [
        topic_config("tiered", "remote.storage.enable", "true"),
        topic_config("old", "preallocate", "true"),
    ]
    log = data_batch([encode_record(record, 30) for record in added], 10, 1, 0)
    machine.metadata(
        [
            FeatureLevelRecord(name="metadata.version", feature_level=30),
            TopicRecord(name="tiered", topic_id=bytes(15) + b"\x01"),
        ],
        log + log[:-5],
    )
    code, found = machine.check()
    assert code == 1
    assert found["remote.storage.enable"][0] == "fail" and "tiered" in found["remote.storage.enable"][1]
    assert found["preallocate"] == ("warn", "it has no effect; it is set for old")
    assert found["__cluster_metadata-0"] == ("ok", "metadata.version 4.3-IV0, kraft.version 0, 1 topics")


def test_levels_that_are_too_new_are_refused(machine: Machine) -> None:
    machine.metadata([FeatureLevelRecord(name="transaction.version", feature_level=9)])
    code, found = machine.check()
    assert code == 1
    assert found["transaction.version"] == ("fail", "the cluster has level 9; Ottla supports 0 to 2")
    machine.metadata([FeatureLevelRecord(name="metadata.version", feature_level=99)])
    code, found = machine.check()
    assert code == 1 and found["__cluster_metadata-0"][0] == "fail"
