"""A quorum of one on a real log: start, append, commit, restart, snapshots, retention, and a disk that fails."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from ottla.broker.storage_format import format_metadata_dir, read_bootstrap_records
from ottla.errors import ApiException, ErrorCode
from ottla.raft.types import OffsetAndEpoch, ReplicaKey
from ottla.raft.voters import VoterEndpoint, VoterNode, VoterSet
from ottla.testing.memfs import MemFs
from ottla.wire import messages as m
from unit.raft.raft_harness import DATA_DIR, DIRECTORY_ID, DYNAMIC, LOCAL, LOG_DIR, STATIC, Quorum, feature


def files(quorum: Quorum, suffix: str) -> list[str]:
    return sorted(name for name in quorum.fs.listdir(LOG_DIR) if name.endswith(suffix))


def standalone(local: VoterNode = LOCAL) -> Quorum:
    quorum = Quorum(voters=DYNAMIC)
    format_metadata_dir(quorum.fs, DATA_DIR, now_ms=1, voters=VoterSet.of([local]))
    return quorum


def test_the_only_voter_leads_in_a_new_epoch_and_says_so_in_the_log() -> None:
    quorum = Quorum().start()
    assert quorum.raft.leader_id == 1
    assert quorum.raft.leader_epoch == 1
    assert quorum.raft.high_watermark == quorum.raft.log_end_offset == 1
    assert quorum.listener.events == [("commit", 0, 0, 1), ("leader", 1, 1)]
    document = json.loads(quorum.fs.read_bytes(f"{LOG_DIR}/quorum-state"))
    assert document == {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }


def test_each_start_is_a_new_epoch_that_has_all_of_the_old_ones() -> None:
    first = Quorum().start()
    first.append(feature("a"), feature("b"))
    first.raft.shutdown()
    second = Quorum(first.fs).start()
    assert second.raft.leader_epoch == 2
    assert second.listener.events == [
        ("commit", 0, 0, 1),
        ("commit", 1, 2, 1),
        ("commit", 3, 3, 2),
        ("leader", 1, 2),
    ]
    assert second.loader.image.features == {"a": 1, "b": 1}


def test_an_append_returns_at_once_and_is_acknowledged_after_the_fsync_and_the_listeners() -> None:
    quorum = Quorum().start()
    seen: list[object] = []
    quorum.loader.add_publisher(lambda delta, image: seen.append(set(delta.changed_features)))
    assert quorum.raft.append([feature("a"), feature("b")], seen.append) == 2
    assert quorum.raft.log_end_offset == 3
    quorum.clock.advance(1)
    assert seen[1:] == [] and quorum.raft.high_watermark == 1
    quorum.settle()
    assert seen[1:] == [{"a", "b"}, 2]
    assert quorum.raft.high_watermark == 3


def test_appends_during_an_fsync_share_the_next_one() -> None:
    quorum = Quorum().start()
    done: list[int] = []
    for name in "abcd":
        quorum.raft.append([feature(name)], done.append)
    assert len(quorum.executor.jobs) == 1
    quorum.executor.run()
    quorum.clock.advance(0)
    assert done == [1], "the fsync began when only the first was there"
    assert len(quorum.executor.jobs) == 1
    quorum.executor.run()
    quorum.clock.advance(0)
    assert done == [1, 2, 3, 4]
    assert not quorum.executor.jobs


def test_a_callback_that_fails_keeps_nobody_from_being_told() -> None:
    quorum = Quorum().start()
    done: list[int] = []

    def fail(offset: int) -> None:
        raise RuntimeError("a bug")

    quorum.raft.append([feature("a")], fail)
    quorum.raft.append([feature("b")], done.append)
    with pytest.raises(RuntimeError, match="a bug"):
        quorum.settle()
    quorum.clock.advance(0)
    quorum.settle()
    assert done == [2]


def test_a_listener_that_fails_stops_the_node() -> None:
    quorum = Quorum().start()

    def fail(delta: object, image: object) -> None:
        raise RuntimeError("cannot follow")

    quorum.loader._publishers.append(fail)
    done: list[int] = []
    quorum.raft.append([feature("a")], done.append)
    quorum.settle()
    assert [str(e) for e in quorum.faults] == ["cannot follow"]
    assert done == []


def test_an_append_from_a_callback() -> None:
    quorum = Quorum().start()
    done: list[int] = []
    quorum.raft.append([feature("a")], lambda _: quorum.raft.append([feature("b")], done.append) and None)
    quorum.settle()
    assert done == [2]


def test_a_batch_that_is_too_large_is_refused_whole() -> None:
    quorum = Quorum().start()
    big = [feature("v" * 30_000)] * 300
    with pytest.raises(ApiException) as e:
        quorum.raft.append(big)
    assert e.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert quorum.raft.log_end_offset == 1


def test_nothing_is_acknowledged_any_more_after_a_failed_fsync() -> None:
    quorum = Quorum().start()
    done: list[int] = []
    quorum.raft.append([feature("a")], done.append)

    def fault(operation: str, path: str) -> None:
        if operation == "fsync":
            raise OSError(errno.EIO, "bad disk")

    assert isinstance(quorum.fs, MemFs)
    quorum.fs.fault = fault
    quorum.settle()
    assert done == []
    assert len(quorum.faults) == 1
    with pytest.raises(ApiException) as e:
        quorum.raft.append([feature("b")])
    assert e.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_full_disk_stops_the_node() -> None:
    quorum = Quorum().start()
    assert isinstance(quorum.fs, MemFs)
    quorum.fs.space = 10
    with pytest.raises(ApiException) as e:
        quorum.raft.append([feature("a")])
    assert e.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(quorum.faults) == 1


def test_shutdown_commits_what_was_appended_and_refuses_more() -> None:
    quorum = Quorum().start()
    done: list[int] = []
    quorum.raft.append([feature("a")], done.append)
    quorum.raft.shutdown()
    quorum.clock.advance(0)
    assert done == [1]
    with pytest.raises(ApiException):
        quorum.raft.append([feature("b")])
    quorum.settle()


# Dynamic quorums


def test_a_formatted_standalone_voter_writes_its_voters_into_the_log_once() -> None:
    quorum = standalone().start()
    assert quorum.raft.kraft_version == 1
    assert quorum.raft.log_end_offset == 3, "leader change, kraft.version and voters in one control batch"
    document = json.loads(quorum.fs.read_bytes(f"{LOG_DIR}/quorum-state"))
    assert document == {
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": -1,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
        "data_version": 1,
    }
    quorum.raft.shutdown()
    again = Quorum(quorum.fs, DYNAMIC).start()
    assert again.raft.log_end_offset == 4
    assert again.raft.kraft_version == 1
    info = again.raft.describe_quorum()
    assert info is not None
    assert [s.key for s in info.voters] == [ReplicaKey(1, DIRECTORY_ID)]
    assert info.nodes == ((1, (("CONTROLLER", "localhost", 9093),)),)


def test_a_voter_that_moved_writes_where_it_is_now() -> None:
    quorum = standalone().start()
    quorum.raft.shutdown()
    moved = VoterNode(LOCAL.key, {"CONTROLLER": VoterEndpoint("elsewhere", 9093)})
    again = Quorum(quorum.fs, DYNAMIC, local=moved).start()
    assert again.raft.describe_quorum().nodes == ((1, (("CONTROLLER", "elsewhere", 9093),)),)
    again.raft.shutdown()
    third = Quorum(quorum.fs, DYNAMIC, local=moved).start()
    assert third.raft.log_end_offset == again.raft.log_end_offset + 1


def test_the_bootstrap_records_are_there_to_be_read() -> None:
    quorum = standalone()
    records: Any = read_bootstrap_records(quorum.fs, DATA_DIR)
    assert next((r.name, r.feature_level) for r in records) == ("metadata.version", 30)
    assert len(records) == 6


@pytest.mark.parametrize(
    ("voters", "local", "problem"),
    [
        (DYNAMIC, LOCAL, "has no voters"),
        (STATIC, VoterNode(ReplicaKey(7, DIRECTORY_ID)), "this node, 7, is not one of them"),
        (VoterSet.of([VoterNode(ReplicaKey(1, b"x" * 16))]), LOCAL, "another directory id"),
    ],
)
def test_a_quorum_that_this_node_cannot_lead_is_refused(
    voters: VoterSet, local: VoterNode, problem: str
) -> None:
    with pytest.raises(ApiException, match=problem):
        Quorum(voters=voters, local=local).start()


# Snapshots


def test_a_snapshot_is_written_after_enough_bytes_and_starts_the_next_time() -> None:
    quorum = Quorum(snapshot_bytes=1).start()
    quorum.settle()
    quorum.append(feature("a"))
    offset = quorum.append(feature("b"))
    assert quorum.raft.latest_snapshot_id == OffsetAndEpoch(offset + 1, 1)
    assert f"{offset + 1:020d}-0000000001.checkpoint" in files(quorum, ".checkpoint")
    assert not files(quorum, ".part")
    quorum.raft.shutdown()
    again = Quorum(quorum.fs).start()
    assert again.listener.events[0] == ("snapshot", offset + 1, 1)
    assert again.loader.image.features == {"a": 1, "b": 1}


def test_a_snapshot_is_written_after_enough_time() -> None:
    quorum = Quorum(snapshot_interval_ms=3_600_000).start()
    quorum.append(feature("a"))
    assert quorum.raft.latest_snapshot_id is None
    quorum.clock.advance(3600)
    quorum.clock.jump_ms(-9 * 3_600_000)
    quorum.append(feature("b"))
    assert quorum.raft.latest_snapshot_id == OffsetAndEpoch(3, 1)


def test_no_snapshot_in_the_middle_of_a_transaction() -> None:
    quorum = Quorum(snapshot_bytes=100_000).start()
    quorum.append(feature("a"), m.BeginTransactionRecord(), *[feature("b" * 30_000)] * 4)
    assert quorum.raft.latest_snapshot_id is None
    quorum.append(m.EndTransactionRecord())
    assert quorum.raft.latest_snapshot_id == OffsetAndEpoch(8, 1)


def test_a_dynamic_quorum_keeps_its_voters_in_its_snapshots() -> None:
    quorum = standalone()
    quorum.raft.start()
    quorum.raft.snapshot(OffsetAndEpoch(3, 1), iter([b"\x01\x14\x00\x00"]), 5)
    quorum.settle()
    quorum.fs.remove(f"{LOG_DIR}/00000000000000000000-0000000000.checkpoint")
    again = Quorum(quorum.fs, DYNAMIC).start()
    assert again.listener.events[0] == ("snapshot", 3, 1)
    assert again.raft.kraft_version == 1


def test_old_snapshots_and_the_log_before_them_are_deleted_by_size() -> None:
    settings = {"metadata.max.retention.bytes": "300"}
    quorum = Quorum(snapshot_bytes=1, settings=settings).start()
    for name in "abc":
        quorum.append(feature(name))
    assert len(files(quorum, ".checkpoint")) == 1
    assert quorum.raft.log_start_offset == quorum.raft.log_end_offset == 4
    assert not files(quorum, ".deleted")
    quorum.raft.shutdown()
    assert Quorum(quorum.fs, settings=settings).start().loader.image.features == {"a": 1, "b": 1, "c": 1}


def test_old_snapshots_are_deleted_by_time_but_never_the_last() -> None:
    quorum = Quorum(snapshot_bytes=1, settings={"metadata.max.retention.ms": "60000"}).start()
    quorum.append(feature("a"))
    quorum.clock.advance(61)
    quorum.append(feature("b"))
    assert files(quorum, ".checkpoint") == [f"{3:020d}-0000000001.checkpoint"]
    quorum.clock.advance(61)
    quorum.raft.shutdown()
    again = Quorum(quorum.fs, clock=quorum.clock, settings={"metadata.max.retention.ms": "60000"}).start()
    assert files(again, ".checkpoint") == [f"{3:020d}-0000000001.checkpoint"]


def test_leftovers_of_unfinished_snapshots_are_removed() -> None:
    quorum = Quorum().start()
    quorum.raft.shutdown()
    for name in (f"{9:020d}-0000000001.checkpoint.part", f"{0:020d}-0000000001.checkpoint.deleted"):
        quorum.fs.write_bytes(f"{LOG_DIR}/{name}", b"half")
    Quorum(quorum.fs).start()
    assert not files(quorum, ".part") and not files(quorum, ".deleted")


def test_a_damaged_snapshot_is_refused_not_half_read() -> None:
    quorum = Quorum(snapshot_bytes=1).start()
    quorum.append(feature("a"))
    name = files(quorum, ".checkpoint")[-1]
    assert isinstance(quorum.fs, MemFs)
    quorum.fs.flip_bit(f"{LOG_DIR}/{name}", 1000)
    with pytest.raises(ApiException) as e:
        Quorum(quorum.fs).start()
    assert e.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_log_whose_beginning_is_gone_needs_a_snapshot() -> None:
    settings = {"metadata.max.retention.bytes": "1", "metadata.log.segment.ms": "1000"}
    quorum = Quorum(snapshot_bytes=1, settings=settings).start()
    for name in "abc":
        quorum.clock.advance(2)
        quorum.append(feature(name))
    quorum.raft.shutdown()
    assert files(quorum, ".log") == [f"{3:020d}.log"]
    assert Quorum(quorum.fs).start().loader.image.features == {"a": 1, "b": 1, "c": 1}
    for name in files(quorum, ".checkpoint"):
        quorum.fs.remove(f"{LOG_DIR}/{name}")
    with pytest.raises(ApiException, match="no snapshot of what came before"):
        Quorum(quorum.fs).start()


def test_a_lost_quorum_state_file_does_not_bring_an_old_epoch_back() -> None:
    quorum = Quorum().start()
    quorum.raft.shutdown()
    quorum = Quorum(quorum.fs).start()
    assert quorum.raft.leader_epoch == 2
    quorum.raft.shutdown()
    quorum.fs.remove(f"{LOG_DIR}/quorum-state")
    assert Quorum(quorum.fs).start().raft.leader_epoch == 3


def test_an_old_quorum_state_file_put_back_loses_nothing() -> None:
    quorum = Quorum().start()
    old = quorum.fs.read_bytes(f"{LOG_DIR}/quorum-state")
    quorum.raft.shutdown()
    quorum = Quorum(quorum.fs).start()
    quorum.append(feature("a"))
    quorum.raft.shutdown()
    quorum.fs.write_bytes(f"{LOG_DIR}/quorum-state", old)
    again = Quorum(quorum.fs).start()
    assert again.raft.leader_epoch == 3
    assert again.loader.image.features == {"a": 1}


def test_a_last_batch_with_a_damaged_epoch_is_cut() -> None:
    quorum = Quorum().start()
    quorum.append(feature("a"))
    before = quorum.fs.stat(f"{LOG_DIR}/{0:020d}.log").size
    quorum.raft.append([feature("b")])
    assert isinstance(quorum.fs, MemFs)
    quorum.fs.flip_bit(f"{LOG_DIR}/{0:020d}.log", (before + 12) * 8 + 6)
    again = Quorum(quorum.fs.kill()).start()
    assert again.raft.leader_epoch == 2
    assert again.loader.image.features == {"a": 1}


def test_a_quorum_state_file_that_is_none_is_refused() -> None:
    quorum = Quorum().start()
    quorum.raft.shutdown()
    quorum.fs.write_bytes(f"{LOG_DIR}/quorum-state", b'{"leaderId":1}')
    with pytest.raises(ApiException, match="quorum-state"):
        Quorum(quorum.fs).start()


def test_what_describe_quorum_tells() -> None:
    quorum = Quorum().start()
    quorum.append(feature("a"))
    info = quorum.raft.describe_quorum()
    assert info is not None
    assert (info.leader_id, info.leader_epoch, info.high_watermark) == (1, 1, 2)
    (state,) = info.voters
    assert state.log_end_offset == 2
    assert state.last_caught_up_timestamp == state.last_fetch_timestamp == quorum.clock.now_ms()
    assert info.observers == ()
