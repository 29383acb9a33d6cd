"""The files of a metadata directory, byte for byte as Apache Kafka 4.3.1 wrote them (kept in `tests/golden/raft`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ApiException
from ottla.metadata.bootstrap import bootstrap_records
from ottla.metadata.records import MetadataSerde, encode_record
from ottla.raft.batches import control_batch, data_batch, read_batches
from ottla.raft.quorum_state import ElectionState, election_from_json, election_to_json
from ottla.raft.snapshots import SnapshotReader, parse_snapshot_name, snapshot_buffers, snapshot_name
from ottla.raft.types import OffsetAndEpoch, ReplicaKey
from ottla.raft.voters import VoterEndpoint, VoterNode, VoterSet
from ottla.records.batch import iter_batches
from ottla.testing.memfs import MemFs
from ottla.wire.uuid import uuid_from_str

GOLDEN = Path(__file__).parents[2] / "golden" / "raft"
DIRECTORY_ID = uuid_from_str("soG8ht4DS62urJ6xtGG9rA")
VOTERS = VoterSet.of(
    [VoterNode(ReplicaKey(1, DIRECTORY_ID), {"CONTROLLER": VoterEndpoint("127.0.0.1", 29293)})]
)


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


@pytest.mark.parametrize("name", ["bootstrap.checkpoint", "standalone.checkpoint", "metadata.log"])
def test_what_kafka_wrote_read_and_written_again_is_the_same(name: str) -> None:
    data = golden(name)
    again = b""
    for batch, control in read_batches(data, MetadataSerde(), name):
        if control:
            messages = [message for _, message in control]
            again += control_batch(messages, batch.base_offset, batch.epoch, batch.timestamp)
        else:
            values = [encode_record(r) for r in batch.records]
            again += data_batch(values, batch.base_offset, batch.epoch, batch.timestamp)
    assert again.hex() == data.hex()


def timestamps_of(data: bytes) -> list[int]:
    return [header.max_timestamp for _, header in iter_batches(data)]


def with_timestamps(buffers: list[bytes], data: bytes) -> bytes:
    """The batches with the times at which Kafka wrote its own."""
    again = b""
    for buf, timestamp in zip(buffers, timestamps_of(data), strict=True):
        for batch, control in read_batches(buf, MetadataSerde(), "ours"):
            if control:
                again += control_batch([m for _, m in control], batch.base_offset, batch.epoch, timestamp)
            else:
                values = [encode_record(r) for r in batch.records]
                again += data_batch(values, batch.base_offset, batch.epoch, timestamp)
    return again


def test_our_bootstrap_file_is_kafkas() -> None:
    data = golden("bootstrap.checkpoint")
    values = [encode_record(r) for r in bootstrap_records()]
    ours = list(snapshot_buffers(0, values, kraft_version=0, voters=None, last_timestamp=0, now_ms=7))
    assert with_timestamps(ours, data).hex() == data.hex()


def test_our_snapshot_of_a_standalone_voter_is_kafkas() -> None:
    data = golden("standalone.checkpoint")
    ours = list(
        snapshot_buffers(0, (), kraft_version=1, voters=VOTERS, last_timestamp=1794787398731, now_ms=7)
    )
    assert with_timestamps(ours, data).hex() == data.hex()


def reader(data: bytes) -> SnapshotReader:
    fs = MemFs()
    fs.write_bytes("/s.checkpoint", data)
    return SnapshotReader(fs, "/s.checkpoint", MetadataSerde())


def test_a_snapshot_is_read_with_its_voters() -> None:
    snapshot = reader(golden("standalone.checkpoint"))
    assert (snapshot.kraft_version, snapshot.voters) == (1, VOTERS)
    assert snapshot.last_contained_log_timestamp == 1794787398731
    assert list(snapshot.records()) == []
    assert list(reader(golden("bootstrap.checkpoint")).records()) == bootstrap_records()


def test_records_are_cut_into_batches_of_bounded_size() -> None:
    values = [bytes([1, 20, 0, 0])] * 1000
    arguments: dict[str, Any] = {"kraft_version": 0, "voters": None, "last_timestamp": 0, "now_ms": 1}
    buffers = list(snapshot_buffers(3, values, max_batch_bytes=2000, **arguments))
    assert len(buffers) > 10
    assert max(map(len, buffers)) <= 2000
    snapshot = reader(b"".join(buffers))
    assert len(list(snapshot.records())) == 1000
    headers = [header for _, header in iter_batches(b"".join(buffers))]
    assert [h.base_offset for h in headers[1:]] == [h.next_offset for h in headers[:-1]]
    assert {h.partition_leader_epoch for h in headers} == {3}


@pytest.mark.parametrize("cut", [0, 60, 70, 300, 400])
def test_a_snapshot_that_ends_early_is_refused(cut: int) -> None:
    with pytest.raises(ApiException, match="snapshot"):
        list(reader(golden("bootstrap.checkpoint")[:cut]).records())


def test_a_flipped_bit_of_a_snapshot_is_found_and_named() -> None:
    whole = golden("bootstrap.checkpoint")
    for position, header in iter_batches(whole):
        # What the checksum covers begins at byte 21.
        for at in range(position + 21, position + header.size_in_bytes, 7):
            damaged = bytearray(whole)
            damaged[at] ^= 4
            with pytest.raises(ApiException, match=r"/s\.checkpoint: the batch at offset .* wrong checksum"):
                list(reader(bytes(damaged)).records())


def test_names_of_snapshots() -> None:
    name = snapshot_name(OffsetAndEpoch(98, 6))
    assert name == "00000000000000000098-0000000006.checkpoint"
    assert parse_snapshot_name(name) == (OffsetAndEpoch(98, 6), True)
    assert parse_snapshot_name(name + ".part") == (OffsetAndEpoch(98, 6), False)
    assert parse_snapshot_name(name + ".deleted") == (OffsetAndEpoch(98, 6), False)
    for other in ("00000000000000000098.snapshot", "quorum-state", "bootstrap.checkpoint"):
        assert parse_snapshot_name(other) is None


STATES = [
    (
        ElectionState(1, 1, None),
        0,
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}',
    ),
    (
        ElectionState(1, 1, None),
        1,
        b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
    ),
    (
        ElectionState(4, None, ReplicaKey(1, DIRECTORY_ID)),
        1,
        b'{"leaderId":-1,"leaderEpoch":4,"votedId":1,"votedDirectoryId":"soG8ht4DS62urJ6xtGG9rA","data_version":1}',
    ),
]


@pytest.mark.parametrize(("state", "kraft_version", "text"), STATES)
def test_the_quorum_state_file(state: ElectionState, kraft_version: int, text: bytes) -> None:
    assert election_to_json(state, frozenset({1}), kraft_version) == text
    assert election_from_json(text) == state


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"data_version":2}', STATES[2][2].replace(b"soG8", b"s")]
)
def test_a_file_that_is_no_quorum_state(text: bytes) -> None:
    with pytest.raises(ApiException, match="quorum-state"):
        election_from_json(text)
