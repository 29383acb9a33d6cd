"""Apache Kafka's MirrorMaker 2 4.3.1 as the judge: its names, its bytes, its clients and itself on our mirror."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.mirror_world import (
    assert_same_records,
    commit,
    committed,
    connect,
    copy_once,
    keys,
    make_topic,
    next_record,
    produce,
    records,
    transactions,
    write_file,
)
from oracle.connect_java import connect_classpath
from ottla.mirror.config import mirror_config
from ottla.mirror.formats import Checkpoint, Heartbeat, OffsetSync
from ottla.mirror.policy import DefaultReplicationPolicy, IdentityReplicationPolicy
from ottla.pipeline.fetching import LATEST, READ_UNCOMMITTED, list_offsets
from ottla.pipeline.writer import Place
from ottla.testing.apache import LEAN_JVM_FLAGS, ApacheKafka
from ottla.testing.process import end_process

pytestmark = [pytest.mark.java, pytest.mark.slow]

_PROGRAM = Path(__file__).parent / "java" / "MirrorOracle.java"
TOPICS = [
    *(
        "orders",
        "A.orders",
        "B.A.orders",
        "heartbeats",
        "A.heartbeats",
        "C.A.heartbeats",
        "a..b",
        "a.",
        ".a",
        ".",
        "",
    ),
    *(
        "mm2-offsets.A.internal",
        "A.checkpoints.internal",
        "x-internal",
        "__consumer_offsets",
        "A_orders",
        "A_heartbeats",
    ),
    *("mm2-offset-syncs_A_internal", "A_checkpoints_internal", "myheartbeats"),
]


def ask(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        ["java", *LEAN_JVM_FLAGS, "-cp", connect_classpath(), str(_PROGRAM)],
        input="".join(json.dumps(one) + "\n" for one in requests),
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(requests), done.stderr[-2000:]
    return answers


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_names_bytes_and_flows_are_those_of_mirrormaker():
    policies = [
        (identity, separator, internal)
        for identity in (False, True)
        for separator, internal in ((".", True), ("_", True), ("_", False))
    ]
    requests: list[dict[str, Any]] = []
    expected: list[dict[str, Any]] = []
    for identity, separator, internal in policies:
        ours = (
            IdentityReplicationPolicy(separator, internal, "A")
            if identity
            else DefaultReplicationPolicy(separator, internal)
        )
        for topic in TOPICS:
            requests.append(
                {
                    "kind": "policy",
                    "identity": identity,
                    "topic": topic,
                    "separator": separator,
                    "internal": str(internal).lower(),
                }
            )
            expected.append(
                {
                    "remote": ours.remote_topic("A", topic),
                    "source": ours.topic_source(topic),
                    "upstream": ours.upstream_topic(topic),
                    "original": ours.original_topic(topic),
                    "heartbeats": ours.is_heartbeats(topic),
                    "checkpoints": ours.is_checkpoints(topic),
                    "internal": ours.is_internal(topic),
                    "syncsTopic": ours.offset_syncs_topic("B"),
                    "checkpointsTopic": ours.checkpoints_topic("A"),
                }
            )
    sync = OffsetSync(Place("bestellungen-äöü", 7), 123, -1)
    checkpoint = Checkpoint("gruppe", Place("A.t", 3), 2**40, 99, "metadata")
    beat = Heartbeat("A", "B", 1_700_000_000_000)
    requests += [
        {"kind": "sync", "topic": sync.place.topic, "partition": 7, "upstream": 123, "downstream": -1},
        {
            "kind": "checkpoint",
            "group": "gruppe",
            "topic": "A.t",
            "partition": 3,
            "upstream": 2**40,
            "downstream": 99,
            "metadata": "metadata",
        },
        {"kind": "heartbeat", "source": "A", "target": "B", "timestamp": beat.timestamp},
    ]
    expected += [{"key": b64(one.key()), "value": b64(one.value())} for one in (sync, checkpoint, beat)]
    files: list[dict[str, str]] = [
        {"A->B.enabled": "true"},
        {"A->B.enabled": "true", "emit.heartbeats.enabled": "false"},
        {"A->B.enabled": "true", "B->C.enabled": "true", "C->A.emit.heartbeats.enabled": "false"},
    ]
    for given in files:
        file = {"clusters": "A, B, C", **{f"{one}.bootstrap.servers": f"{one}:1" for one in "ABC"}, **given}
        requests.append({"kind": "pairs", "keys": file})
        expected.append({"pairs": " ".join(sorted(flow.name for flow in mirror_config(file).flows))})
    for request, answer, ours in zip(requests, ask(requests), expected, strict=True):
        assert answer == ours, request


def test_kafkas_remote_cluster_utils_read_our_checkpoints(start_ottla_broker):
    source, target = start_ottla_broker("source").bootstrap, start_ottla_broker("target").bootstrap
    make_topic(source, "orders", 2)
    make_topic(source, "heartbeats")
    produce(source, "heartbeats", 1)
    produce(source, "orders", 100)
    transactions(source, "orders", 6, size=10)
    produce(source, "orders", 100, start=1000)
    ends = {partition: held[-1][0] for partition, held in records(source, "orders").items()}
    commit(source, "billing", {Place("orders", one): end // 2 for one, end in ends.items()})
    copy_once(keys(source, target, emit__heartbeats__enabled="true"))
    (answer,) = ask([{"kind": "translate", "bootstrap": target, "group": "billing"}])
    ours = {
        f"{place.topic}-{place.partition}": offset for place, offset in committed(target, "billing").items()
    }
    assert answer["offsets"] == ours
    assert len(ours) == 2
    assert answer["hops"] == 1
    assert answer["upstreams"] == "A"
    assert answer["checkpoints"] == "A.checkpoints.internal"


@contextlib.contextmanager
def mirror_maker(folder: Path, given: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Apache Kafka's MirrorMaker 2 with the same file."""
    file = write_file(folder / "mm2-java.properties", given)
    with (folder / "mirrormaker.log").open("ab") as log:
        process = subprocess.Popen(
            [
                *("java", *LEAN_JVM_FLAGS, "-cp", connect_classpath()),
                *("org.apache.kafka.connect.mirror.MirrorMaker", str(file)),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        end_process(process)


def java_keys(source: str, target: str) -> dict[str, str]:
    replicas = (
        "checkpoints.topic",
        "heartbeats.topic",
        "offset-syncs.topic",
        "offset.storage",
        "status.storage",
    )
    more = {f"{one}.replication.factor": "1" for one in (*replicas, "config.storage")}
    quick = {
        "offset.flush.interval.ms": "500",
        "refresh.topics.interval.seconds": "1",
        "A->B.consumer.isolation.level": "read_committed",
        "A.consumer.isolation.level": "read_committed",
    }
    return keys(source, target) | more | quick


def copied_by(process: subprocess.Popen[bytes], target: str, remote: str, count: int) -> None:
    """Waits until a topic holds a number of records."""
    cluster = connect(target)
    deadline = time.monotonic() + 240
    while True:
        assert process.poll() is None, "MirrorMaker ended"
        assert time.monotonic() < deadline, f"MirrorMaker did not copy {count} records"
        if remote in {one.name for one in cluster.metadata(None).topics}:
            places = [Place(remote, number) for number in cluster.leaders(remote)]
            ends = list_offsets(cluster, dict.fromkeys(places, LATEST), isolation=READ_UNCOMMITTED)
            if sum(ends.values()) >= count:
                cluster.close()
                return
        threading.Event().wait(0.1)


def test_mirrormaker_goes_on_from_our_notes_and_we_from_its(start_ottla_broker, tmp_path):
    source, target = start_ottla_broker("source").bootstrap, start_ottla_broker("target").bootstrap
    make_topic(source, "orders", 2)
    produce(source, "orders", 200, codec="lz4")
    transactions(source, "orders", 3, size=10)
    given = java_keys(source, target)
    copy_once(given)
    assert assert_same_records(source, "orders", target, "A.orders") == 220
    beside = start_ottla_broker("beside").bootstrap
    both = {"clusters": "A, B, C", "C.bootstrap.servers": beside, "A->C.enabled": "true"}
    with mirror_maker(tmp_path, given | both) as process:
        produce(source, "orders", 100, start=1000)
        transactions(source, "orders", 3, size=10)
        copied_by(process, target, "A.orders", 340)
        copied_by(process, beside, "A.orders", 340)
    assert assert_same_records(source, "orders", beside, "A.orders") == 340, "MirrorMaker's own copy"
    behind = {
        f"behind-{part}": {
            number: held[len(held) * part // 9][0] for number, held in records(source, "orders").items()
        }
        for part in range(9)
    }
    for group, offsets in behind.items():
        commit(source, group, {Place("orders", number): offset for number, offset in offsets.items()})
    produce(source, "orders", 50, start=2000)
    copy_once(given | both)
    assert assert_same_records(source, "orders", target, "A.orders") == 390
    theirs = records(source, "orders")
    for bootstrap in (target, beside):
        ours = records(bootstrap, "A.orders")
        for group, offsets in behind.items():
            found = committed(bootstrap, group)
            for number, offset in offsets.items():
                position = found[Place("A.orders", number)]
                assert next_record(ours[number], position) == next_record(theirs[number], offset), group


def test_from_ottla_to_apache_kafka_and_back(start_ottla_broker, tmp_path):
    ottla, back = start_ottla_broker("ottla").bootstrap, start_ottla_broker("back").bootstrap
    kafka = ApacheKafka(tmp_path / "kafka")
    kafka.format()
    kafka.start()
    try:
        make_topic(ottla, "orders", 2)
        produce(ottla, "orders", 200, codec="zstd")
        transactions(ottla, "orders", 6, size=10)
        commit(ottla, "billing", {Place("orders", 0): 40})
        identity = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
        copy_once(keys(ottla, kafka.bootstrap, replication__policy__class=identity))
        count = assert_same_records(ottla, "orders", kafka.bootstrap, "orders")
        assert committed(kafka.bootstrap, "billing")[Place("orders", 0)] == 40
        copy_once(keys(kafka.bootstrap, back, replication__policy__class=identity))
        assert assert_same_records(ottla, "orders", back, "orders") == count
        assert records(kafka.bootstrap, "orders") == records(back, "orders"), "no gaps, equal offsets"
    finally:
        kafka.kill()
