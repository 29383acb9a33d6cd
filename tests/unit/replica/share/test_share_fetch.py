"""Share partitions on real logs: waiting, locks, errors of the coordinator, retention, sessions that end."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.records.batch import iter_batches
from ottla.records.control import build_end_txn_marker
from ottla.replica.share.persister import ShareKey
from ottla.replica.share.states import AckType, RecordState, ShareSettings
from unit.replica.share.share_scene import GROUP, TOPIC, ShareScene


@pytest.fixture
def queue() -> ShareScene:
    return ShareScene()


def test_a_member_gets_what_is_there_with_the_batches_it_is_in(queue: ShareScene) -> None:
    for _ in range(3):
        queue.produce(5)
    assert queue.acquired() == [(0, 14, 1)]
    assert queue.acknowledge(AckType.RELEASE, 6, 7) is None
    fetched = queue.fetch(max_wait_ms=0).of(queue.topic_id)
    assert [tuple(part) for part in fetched.acquired] == [(6, 7, 2)]
    assert [header.base_offset for _, header in iter_batches(fetched.records)] == [5]


def test_a_member_waits_for_records(queue: ShareScene) -> None:
    outcome = queue.fetch()
    assert not outcome.done
    queue.produce(2)
    assert [tuple(part) for part in outcome.of(queue.topic_id).acquired] == [(0, 1, 1)]


def test_a_member_waits_no_longer_than_it_said(queue: ShareScene) -> None:
    outcome = queue.fetch(max_wait_ms=500)
    queue.clock.advance(0.6)
    assert outcome.done and not outcome.of(queue.topic_id).acquired


def test_too_few_bytes_are_not_acquired_before_time_is_up(queue: ShareScene) -> None:
    outcome = queue.fetch(min_bytes=1000)
    queue.produce(2)
    assert not outcome.done
    assert queue.acquired("other") == [(0, 1, 1)], "nobody has them yet"
    queue.clock.advance(0.6)
    assert outcome.of(queue.topic_id).acquired == []


def test_a_member_waits_for_what_another_holds(queue: ShareScene) -> None:
    queue.produce(3)
    assert queue.acquired("a") == [(0, 2, 1)]
    outcome = queue.fetch("b", max_wait_ms=10_000)
    assert not outcome.done
    queue.acknowledge(AckType.RELEASE, 1, 1, "a")
    assert [tuple(part) for part in outcome.of(queue.topic_id).acquired] == [(1, 1, 2)]


def test_records_of_a_lock_that_ends_go_to_who_waits(queue: ShareScene) -> None:
    queue.produce(3)
    assert queue.acquired("a") == [(0, 2, 1)]
    outcome = queue.fetch("b", max_wait_ms=10_000)
    queue.clock.advance(0.9)
    assert not outcome.done
    queue.clock.advance(0.2)
    assert [tuple(part) for part in outcome.of(queue.topic_id).acquired] == [(0, 2, 2)]
    error = queue.acknowledge(AckType.ACCEPT, 0, 2, "a")
    assert error is not None and error.code is ErrorCode.INVALID_RECORD_STATE


def test_locks_of_different_age_end_in_turn(queue: ShareScene) -> None:
    queue.produce(1)
    queue.acquired("a")
    queue.clock.advance(0.5)
    queue.produce(1)
    queue.acquired("b")
    queue.clock.advance(0.6)
    assert [run.state for run in queue.share().flight.runs] == [RecordState.AVAILABLE, RecordState.ACQUIRED]
    queue.clock.advance(0.5)
    assert all(run.state is RecordState.AVAILABLE for run in queue.share().flight.runs)


def test_several_partitions_share_a_request(queue: ShareScene) -> None:
    queue.produce(3, 0)
    queue.produce(3, 1)
    results = queue.fetch(indexes=(0, 1), max_records=3, max_wait_ms=0).results
    assert results is not None
    assert sorted(part.size for fetched in results.values() for part in fetched.acquired) == [3]
    later = queue.fetch(indexes=(0, 1), max_wait_ms=0).of(queue.topic_id, 1)
    assert [tuple(part) for part in later.acquired] == [(0, 2, 1)]


def test_an_acknowledgement_that_is_not_kept_is_taken_back(queue: ShareScene, monkeypatch: Any) -> None:
    queue.produce(2)
    queue.acquired()
    # The offsets were reset by someone else meanwhile: this leader's state is of the past.
    queue.initialize(epoch=2, start_offset=1)
    error = queue.acknowledge(AckType.ACCEPT, 0, 1)
    assert error is not None and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert queue.share() is None
    assert queue.acquired() == [(1, 1, 1)], "it is loaded again, from where it was reset to"


def test_retention_overtakes_a_group(queue: ShareScene) -> None:
    queue.produce(5)
    assert queue.acquired() == [(0, 4, 1)]
    queue.acknowledge(AckType.RELEASE, 0, 4)
    queue.produce(5)
    queue.scene.replicas.find((TOPIC, 0)).delete_records(7)
    assert queue.acquired() == [], "the response says that there is nothing at its position"
    assert queue.acquired() == [(7, 9, 1)]


def test_a_deleted_topic_ends_the_wait(queue: ShareScene) -> None:
    outcome = queue.fetch(max_wait_ms=10_000)
    queue.scene.delete_topic(TOPIC)
    queue.settle()
    error = outcome.of(queue.topic_id).error
    assert error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_client_that_has_gone_acquires_nothing(queue: ShareScene) -> None:
    outcome = queue.fetch(max_wait_ms=10_000)
    outcome.fetch.cancel()
    queue.produce(1)
    assert not outcome.done
    assert queue.acquired("other") == [(0, 0, 1)]


def test_a_session_that_ends_gives_everything_back(queue: ShareScene) -> None:
    queue.produce(4)
    sessions = queue.shares.sessions
    for member in ("a", "b"):
        sessions.open(GROUP, member, [(queue.topic_id, 0)], f"connection of {member}")
    assert queue.acquired("a") == [(0, 3, 1)]
    queue.shares.connection_lost("connection of a")
    queue.settle()
    assert sessions.get(GROUP, "a") is None
    assert queue.acquired("b") == [(0, 3, 2)]
    assert queue.shares.end_session(GROUP, "b") and not queue.shares.end_session(GROUP, "b")
    assert len(queue.shares) == 0, "nobody uses them"
    queue.settle()
    assert queue.acquired("c") == [(0, 3, 3)]


def test_aborted_transactions_are_passed_over() -> None:
    queue = ShareScene(ShareSettings(auto_offset_reset="earliest", read_committed=True))
    partition = queue.scene.replicas.find((TOPIC, 0))
    log = partition.local_log()
    queue.produce(2)
    guard: Any = {"is_transactional": True, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    batch = queue.scene.batch(b"x", b"y", **guard)
    log.append_as_follower(_at(batch, 2))
    log.high_watermark = log.log_end_offset
    assert queue.acquired() == [(0, 1, 1)], "the rest is not stable yet"
    marker = build_end_txn_marker(
        commit=False,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=1,
        base_offset=4,
        leader_epoch=0,
    )
    log.append_as_follower(marker)
    log.high_watermark = log.log_end_offset
    queue.produce(1)
    assert queue.acquired() == [(4, 5, 1)], "the marker's offset is a gap that the client acknowledges"


def _at(batch: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "big") + batch[8:12] + (0).to_bytes(4, "big") + batch[16:]


def test_share_state_is_pruned(queue: ShareScene) -> None:
    queue.coordinator.start()
    queue.produce(40)
    queue.acquired()
    for offset in range(20):
        queue.acknowledge(AckType.ACCEPT, offset, offset)
    log = queue.scene.replicas.find(("__share_group_state", 0)).local_log()
    assert log.log_start_offset == 0
    queue.clock.advance(601)
    queue.settle()
    assert log.log_start_offset > 10
    queue.restart()
    queue.shares.obtain(ShareKey(GROUP, queue.topic_id, 0))
    queue.settle()
    assert queue.acquired() == [(20, 39, 2)], "locks that ended meanwhile were kept"
