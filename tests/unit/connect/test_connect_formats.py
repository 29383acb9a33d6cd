"""The records of the three topics and the file of offsets, byte for byte; the replay of records into a state."""

import subprocess

import pytest

from ottla.connect import formats
from ottla.connect.failures import ConnectError
from ottla.connect.offset_file import read_offset_file, write_offset_file
from ottla.connect.spi import partition_key, partition_of
from ottla.connect.state import ClusterState


def test_a_connector_config_has_the_order_of_java_s_hash_map():
    config = {
        "name": "a",
        "topic": "x",
        "tasks.max": "1",
        "file": "/t",
        "connector.class": "FileStreamSource",
    }
    entry = formats.connector_config("a", config)
    assert entry.key == b"connector-a"
    assert entry.value == (
        b'{"properties":{"connector.class":"FileStreamSource","file":"/t","tasks.max":"1","name":"a","topic":"x"}}'
    )


def test_target_states_speak_to_old_and_new_readers():
    assert formats.target_state("a", "STOPPED").value == b'{"state":"PAUSED","state.v2":"STOPPED"}'
    assert formats.target_state("a", None).value is None


def test_offset_keys_name_the_connector_and_the_partition():
    partition = {"topic": "orders", "partition": 3, "cluster": "primary"}
    key = formats.offset_key("MirrorSourceConnector", partition_key(partition))
    assert key == b'["MirrorSourceConnector",{"cluster":"primary","partition":3,"topic":"orders"}]'
    name, found = formats.parse_offset_key(key)
    assert name == "MirrorSourceConnector" and partition_of(found) == partition


def test_a_status_has_kafka_s_fields_in_order():
    value = formats.status("RUNNING", "h:8083", 2, None, "4.3.1")
    assert value == b'{"state":"RUNNING","trace":null,"worker_id":"h:8083","generation":2,"version":"4.3.1"}'


def test_tasks_are_in_force_after_their_commit_record():
    state = ClusterState()
    for entry in (formats.connector_config("a", {"name": "a"}), formats.task_config("a", 0, {"x": "1"})):
        state.replay_config(entry.key, entry.value)
    assert state.tasks == {}
    entry = formats.tasks_committed("a", 1)
    assert state.replay_config(entry.key, entry.value).what == "tasks"
    assert state.tasks == {"a": [{"x": "1"}]}


def test_a_commit_without_all_of_its_tasks_changes_nothing(caplog):
    state = ClusterState()
    entry = formats.tasks_committed("a", 2)
    assert state.replay_config(entry.key, entry.value) is None
    assert state.tasks == {} and "not all of their configurations" in caplog.text


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"properties":7}', b"\xff"])
def test_damaged_and_foreign_records_are_skipped_once(value, caplog):
    state = ClusterState()
    for _ in range(3):
        assert state.replay_config(b"connector-a", value) is None
        state.replay_status(b"status-connector-a", value)
    assert state.connectors == {} and state.statuses == {}
    assert caplog.text.count("is skipped") == 2


def test_a_deleted_connector_leaves_nothing():
    state = ClusterState()
    for entry in (
        formats.connector_config("a", {"name": "a"}),
        formats.target_state("a", "PAUSED"),
        formats.fencing("a", 2),
        formats.connector_config("a", None),
    ):
        state.replay_config(entry.key, entry.value)
    assert (state.connectors, state.targets, state.fencing) == ({}, {}, {})


def test_the_file_of_offsets_survives_a_round_trip(tmp_path):
    path = tmp_path / "offsets"
    entries = {f"key-{number}".encode(): b"v" * number for number in range(40)}
    entries[b"none"] = None
    write_offset_file(path, entries)
    assert read_offset_file(path) == entries
    assert path.read_bytes().startswith(b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap")


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: b"x" + data, lambda data: data[:40]])
def test_a_damaged_file_of_offsets_is_refused_by_name(tmp_path, damage):
    path = tmp_path / "offsets"
    write_offset_file(path, {b"a": b"b"})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConnectError, match=r"offsets is not a file of offsets"):
        read_offset_file(path)


def test_an_array_that_claims_more_bytes_than_there_are_is_refused(tmp_path):
    path = tmp_path / "offsets"
    write_offset_file(path, {b"a": b"b"})
    data = path.read_bytes()
    path.write_bytes(data.replace(b"\x00\x00\x00\x01a", b"\x7f\xff\xff\xffa"))
    with pytest.raises(ConnectError):
        read_offset_file(path)


def test_importing_the_interface_of_connectors_does_not_load_spark():
    code = "import sys, ottla.connect.spi; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([__import__("sys").executable, "-c", code]).returncode == 0
