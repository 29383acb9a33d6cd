"""Reading for Fetch requests: bounds, fairness, long poll, cold data, epochs."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.records.batch import iter_batches
from ottla.replica.consumer_read import ConsumerRead
from ottla.replica.fetch_partition import FetchPartition, SentMarks
from ottla.replica.fetch_sessions import FollowerSession
from ottla.replica.follower_read import FollowerRead


class Outcome:
    """What a fetch came to."""

    def __init__(self) -> None:
        self.results: Any = None
        self.fetch: ConsumerRead | FollowerRead

    @property
    def done(self) -> bool:
        return self.results is not None

    def take(self, results: Any) -> None:
        assert self.results is None
        self.results = results

    def offsets(self, at: int = 0) -> list[int]:
        return [header.base_offset for _, header in iter_batches(self.results[at].records)]

    def codes(self) -> list[int]:
        return [result.error_code for result in self.results]


def fetch(scene, *parts: FetchPartition, **options: Any) -> Outcome:
    options = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 500, **options}
    outcome = Outcome()
    outcome.fetch = ConsumerRead(scene.replicas, list(parts), outcome.take, **options)
    results = outcome.fetch.start()
    if results is not None:
        outcome.take(results)
    return outcome


def follow(scene, *parts: FetchPartition, **options: Any) -> Outcome:
    """Fetch as a follower does that has no session."""
    options = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": 500, "replica_epoch": -1, **options}
    outcome = Outcome()

    def take(sent: Any) -> None:
        outcome.take([data for _, data in sent])

    session = FollowerSession(parts, uses_topic_ids=False, now_ms=0.0)
    outcome.fetch = FollowerRead(scene.replicas, session, take, **options)
    sent = outcome.fetch.start()
    if sent is not None:
        take(sent)
    return outcome


def part(index: int = 0, offset: int = 0, topic: str | bytes = "t", max_bytes: int = 1 << 20, **options: Any):
    return FetchPartition(topic, index, offset, max_bytes, **options)


def test_data_that_is_there_is_answered_at_once(scene):
    topic_id = scene.create_topic("t")
    scene.append("t", 0, b"a", b"b")
    scene.append("t", 0, b"c")
    outcome = fetch(scene, part())
    assert outcome.offsets() == [0, 2]
    assert outcome.results[0].high_watermark == 3
    assert outcome.results[0].aborted_transactions is None
    assert fetch(scene, part(topic=topic_id, offset=2)).offsets() == [2]


def test_a_fetch_waits_for_data_and_gets_it(scene):
    scene.create_topic("t", 2)
    outcome = fetch(scene, part(0), part(1))
    assert not outcome.done
    scene.append("t", 1, b"a")
    assert not outcome.done
    scene.turn()
    assert outcome.done
    assert outcome.offsets(1) == [0]
    assert not outcome.results[0].records
    assert scene.replicas.delayed_requests.count == 0


def test_a_fetch_that_waited_in_vain_is_answered_empty(scene):
    scene.create_topic("t")
    outcome = fetch(scene, part(), max_wait_ms=500)
    scene.clock.advance_ms(499)
    assert not outcome.done
    scene.clock.advance_ms(1)
    assert outcome.done
    assert not outcome.results[0].records


def test_min_bytes_are_waited_for_over_all_partitions(scene):
    scene.create_topic("t", 2)
    size = len(scene.batch(b"x" * 100))
    scene.append("t", 0, b"x" * 100)
    outcome = fetch(scene, part(0), part(1), min_bytes=3 * size)
    scene.append("t", 1, b"x" * 100)
    scene.turn()
    assert not outcome.done
    scene.append("t", 0, b"x" * 100)
    scene.turn()
    assert outcome.done
    assert outcome.offsets(0) == [0, 1]
    assert outcome.offsets(1) == [0]


def test_no_wait_means_no_wait(scene):
    scene.create_topic("t")
    assert fetch(scene, part(), max_wait_ms=0).done
    assert fetch(scene).done


def test_a_first_batch_larger_than_the_limits_is_returned_whole(scene):
    scene.create_topic("t", 2)
    for index in range(2):
        scene.append("t", index, b"x" * 1000)
        scene.append("t", index, b"y" * 1000)
    outcome = fetch(scene, part(0, max_bytes=10), part(1, max_bytes=10), max_bytes=10)
    assert outcome.offsets(0) == [0]
    assert not outcome.results[1].records


def test_an_empty_partition_does_not_use_up_the_right_to_one_whole_batch(scene):
    scene.create_topic("t", 2)
    scene.append("t", 1, b"x" * 1000)
    outcome = fetch(scene, part(0), part(1, max_bytes=10), max_bytes=10)
    assert outcome.offsets(1) == [0]


def test_the_request_limit_is_shared_by_its_partitions(scene):
    scene.create_topic("t", 3)
    size = len(scene.batch(b"x" * 100))
    for index in range(3):
        for _ in range(4):
            scene.append("t", index, b"x" * 100)
    outcome = fetch(scene, part(0, max_bytes=2 * size), part(1), part(2), max_bytes=5 * size)
    assert [len(outcome.offsets(at)) for at in range(3)] == [2, 3, 0]


def test_every_partition_of_a_session_gets_its_turn(scene):
    scene.create_topic("t", 4)
    size = len(scene.batch(b"x" * 100))
    for index in range(4):
        for _ in range(3):
            scene.append("t", index, b"x" * 100)
    sessions = scene.broker.fetch_sessions
    parts = {index: part(index, max_bytes=size) for index in range(4)}
    session_id, changed, read = 0, list(parts.values()), []
    for epoch in range(8):
        context = sessions.open(12, session_id, epoch, changed)
        outcome = fetch(scene, *context.partitions, max_bytes=size)
        _, session_id, sent = context.finish(outcome.results)
        changed = []
        for each, data in sent:
            if data.records:
                read.append(each.index)
                changed.append(part(each.index, each.fetch_offset + 1, max_bytes=size))
    # The first answer opens the session and cannot have moved anything yet.
    assert read == [0, 0, 1, 2, 3, 0, 1, 2]


def test_a_segment_boundary_does_not_make_a_fetch_wait(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"a")
    scene.replicas.find(("t", 0)).log.roll()
    scene.append("t", 0, b"b" * 500)
    outcome = fetch(scene, part(), min_bytes=400)
    assert outcome.offsets() == [0]


def test_errors_of_a_partition_are_its_own(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"a")
    outcome = fetch(
        scene,
        part(0),
        part(7),
        part(0, topic="unknown"),
        part(0, topic=b"?" * 16),
        part(0, offset=99),
        part(0, leader_epoch=5),
    )
    assert outcome.codes() == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]
    assert outcome.results[4].high_watermark == -1
    assert outcome.offsets(0) == [0]


def test_an_error_is_answered_without_waiting(scene):
    scene.create_topic("t")
    assert fetch(scene, part(0), part(7)).done


def test_a_new_leader_epoch_fences_a_waiting_fetch(scene):
    scene.create_topic("t")
    outcome = fetch(scene, part(leader_epoch=0))
    scene.change_partition("t", 0, leader_epoch=1)
    scene.turn()
    assert outcome.codes() == [ErrorCode.FENCED_LEADER_EPOCH]


def test_a_deleted_topic_wakes_its_fetches(scene):
    scene.create_topic("t")
    outcome = fetch(scene, part())
    scene.delete_topic("t")
    scene.turn()
    assert outcome.codes() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topic_made_anew_is_not_the_one_that_was_deleted(scene):
    old_id = scene.create_topic("t")
    scene.append("t", 0, b"old")
    waiting = part(topic=old_id, offset=1)
    fetch(scene, waiting, max_wait_ms=0)
    scene.delete_topic("t")
    new_id = scene.create_topic("t")
    scene.append("t", 0, b"new")
    assert fetch(scene, waiting).codes() == [ErrorCode.UNKNOWN_TOPIC_ID]
    outcome = fetch(scene, part(topic=new_id))
    assert outcome.offsets() == [0]
    assert b"new" in bytes(outcome.results[0].records)


def test_a_client_that_goes_away_takes_its_fetch_with_it(scene):
    scene.create_topic("t")
    outcome = fetch(scene, part())
    outcome.fetch.cancel()
    assert scene.replicas.delayed_requests.count == 0
    assert not scene.replicas.find(("t", 0)).high_watermark_waiters
    scene.append("t", 0, b"a")
    scene.clock.advance(10)
    assert not outcome.done


def evict(scene, index: int) -> None:
    """Drop the partition's data from the page cache."""
    scene.fs.evict(f"/data/t-{index}/00000000000000000000.log")


def test_cold_data_is_read_in_a_thread_and_the_rest_after_it(scene):
    scene.create_topic("t", 3)
    for index in range(3):
        scene.append("t", index, b"a")
    evict(scene, 1)
    outcome = fetch(scene, part(0), part(1), part(2))
    assert not outcome.done
    assert scene.executor.run() == 1
    assert [outcome.offsets(at) for at in range(3)] == [[0], [0], [0]]


def test_a_client_that_goes_away_during_a_cold_read_is_not_answered(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"a")
    evict(scene, 0)
    outcome = fetch(scene, part())
    outcome.fetch.cancel()
    scene.executor.run()
    assert not outcome.done


def test_a_waiting_fetch_whose_data_went_cold_is_answered_after_the_cold_read(scene):
    scene.create_topic("t")
    outcome = fetch(scene, part())
    scene.append("t", 0, b"a")
    evict(scene, 0)
    scene.turn()
    assert not outcome.done
    assert scene.replicas.delayed_requests.count == 0
    scene.executor.run()
    assert outcome.offsets() == [0]


def test_a_topic_deleted_during_a_cold_read_does_not_leave_the_client_waiting(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"a")
    evict(scene, 0)
    outcome = fetch(scene, part())
    scene.delete_topic("t")
    scene.turn()
    scene.executor.run()
    assert outcome.done


def test_a_failed_disk_is_told_to_whoever_reads_or_waits(scene):
    scene.create_topic("t", 2)
    scene.append("t", 0, b"a")
    waiting = fetch(scene, part(1))

    def broken(operation: str, path: str) -> None:
        raise OSError(5, "the disk is broken")

    scene.fs.fault = broken
    with pytest.raises(ApiException):
        scene.append("t", 0, b"b")
    scene.replicas.directory_failed()
    scene.turn()
    assert waiting.codes() == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert fetch(scene, part(0)).codes() == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_too_many_waiting_fetches_are_answered_at_once(scene):
    scene.create_topic("t")
    scene.replicas.delayed_requests._limit = 1
    assert not fetch(scene, part()).done
    assert fetch(scene, part()).done


def test_only_what_all_in_sync_replicas_have_is_readable(scene):
    scene.create_topic("t", replicas=(1, 2))
    scene.append("t", 0, b"a")
    consumer = fetch(scene, part())
    assert not consumer.done
    follower = follow(scene, part(leader_epoch=0), replica_id=2, replica_epoch=7)
    assert follower.offsets() == [0]
    assert not consumer.done
    follow(scene, part(offset=1, leader_epoch=0), replica_id=2)
    scene.turn()
    assert not consumer.done, "a client without the broker's epoch is not the broker"
    caught_up = follow(scene, part(offset=1, leader_epoch=0), replica_id=2, replica_epoch=7)
    scene.turn()
    assert consumer.offsets() == [0]
    assert consumer.results[0].high_watermark == 1
    assert not caught_up.done
    scene.append("t", 0, b"b")
    scene.turn()
    assert caught_up.offsets() == [1]


def test_a_stranger_cannot_fetch_as_a_follower(scene):
    scene.create_topic("t")
    assert follow(scene, part(), replica_id=9).codes() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert follow(scene, part(leader_epoch=0), replica_id=9).codes() == [ErrorCode.UNKNOWN_LEADER_EPOCH]


def test_a_followers_full_fetch_gets_every_partition_in_the_order_of_its_request(scene):
    scene.create_topic("t", 3, replicas=(1, 2))
    scene.append("t", 1, b"a")
    parts = [part(2), part(7), part(1), part(0)]
    outcome = follow(scene, *parts, replica_id=2)
    assert [data.partition_index for data in outcome.results] == [2, 7, 1, 0]
    assert outcome.codes() == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0]
    assert outcome.offsets(2) == [0]


def test_a_full_fetch_leaves_what_does_not_fit_for_the_session(scene):
    scene.create_topic("t", 2, replicas=(1, 2))
    for index in (0, 1):
        scene.append("t", index, b"a")
    session = FollowerSession([part(0), part(1)], uses_topic_ids=False, now_ms=0.0)
    limits = {"replica_id": 2, "replica_epoch": -1, "max_bytes": 10, "min_bytes": 1, "max_wait_ms": 0}
    sent = FollowerRead(scene.replicas, session, lambda sent: None, **limits).start()
    assert [(each.index, len(data.records) > 0) for each, data in sent] == [(0, True), (1, False)]
    session.id = 1
    sent = FollowerRead(scene.replicas, session, lambda sent: None, **limits).start()
    assert [(each.index, len(data.records) > 0) for each, data in sent] == [(1, True)]


def test_a_followers_full_fetch_of_many_new_partitions_makes_their_logs_in_slices(scene):
    scene.create_topic("t", 100, replicas=(1, 2))
    outcome = follow(scene, *(part(index) for index in range(100)), replica_id=2, max_wait_ms=0)
    assert not outcome.done
    scene.turn()
    assert outcome.codes() == [ErrorCode.NONE] * 100


def test_a_follower_that_goes_away_takes_its_full_fetch_with_it(scene):
    scene.create_topic("t", replicas=(1, 2))
    outcome = follow(scene, part(), replica_id=2)
    partition = scene.replicas.find(("t", 0))
    assert len(partition.log_end_waiters) == 1
    outcome.fetch.cancel()
    assert not partition.log_end_waiters
    scene.append("t", 0, b"a")
    scene.clock.advance(1)
    assert not outcome.done


def test_a_followers_full_fetch_waits_its_time_for_enough_bytes(scene):
    scene.create_topic("t", replicas=(1, 2))
    outcome = follow(scene, part(), replica_id=2, min_bytes=200, max_wait_ms=500)
    scene.append("t", 0, b"a")
    scene.clock.advance(0.4)
    assert not outcome.done
    scene.clock.advance(0.2)
    assert outcome.offsets() == [0]


def test_a_client_of_another_history_is_told_where_it_diverged(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"a", b"b")
    scene.change_partition("t", 0, leader_epoch=3)
    scene.append("t", 0, b"c")
    same = fetch(scene, part(offset=2, last_fetched_epoch=0))
    assert same.offsets() == [2]
    diverged = fetch(scene, part(offset=3, last_fetched_epoch=0))
    assert (diverged.results[0].diverging_epoch.epoch, diverged.results[0].diverging_epoch.end_offset) == (
        0,
        2,
    )
    assert not diverged.results[0].records


def test_a_session_is_not_told_of_what_did_not_change(scene):
    scene.create_topic("t", 2)
    scene.append("t", 0, b"a")
    parts = [part(0, offset=1), part(1)]
    parts[0].sent = SentMarks(1, 0)
    outcome = fetch(scene, *parts, max_wait_ms=0)
    assert outcome.results[0] is None
    assert outcome.results[1].high_watermark == 0


def test_deleted_records_are_news_to_a_waiting_fetch_only_if_they_were_ahead_of_it(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"a", b"b")
    outcome = fetch(scene, part(offset=2))
    scene.replicas.find(("t", 0)).delete_records(-1)
    scene.turn()
    assert not outcome.done
    assert fetch(scene, part(offset=0)).codes() == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_when_the_broker_stops_waiting_fetches_are_answered_and_new_ones_do_not_wait(scene):
    scene.create_topic("t", 2)
    outcome = fetch(scene, part(0), part(1))
    scene.replicas.shutdown()
    assert outcome.codes() == [ErrorCode.NONE, ErrorCode.NONE]
    assert scene.replicas.delayed_requests.count == 0
    assert fetch(scene, part(0)).done


def test_damaged_data_is_passed_on_for_the_client_to_notice(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"a")
    scene.append("t", 0, b"b")
    size = len(scene.batch(b"a"))
    scene.fs.flip_bit("/data/t-0/00000000000000000000.log", (size + 16) * 8)
    outcome = fetch(scene, part(), min_bytes=1000)
    assert outcome.done
    assert len(outcome.results[0].records) == 2 * size


def test_a_fetch_of_many_new_partitions_makes_their_logs_in_slices(scene):
    scene.create_topic("t", 100)
    outcome = fetch(scene, *(part(index) for index in range(100)), max_wait_ms=0)
    made = [index for index in range(100) if scene.replicas.find(("t", index)).log is not None]
    assert not outcome.done
    assert len(made) < 10
    scene.turn()
    assert outcome.done
    assert outcome.codes() == [ErrorCode.NONE] * 100


def test_a_fetch_of_many_new_partitions_waits_for_data_as_any_other(scene):
    scene.create_topic("t", 100)
    outcome = fetch(scene, *(part(index) for index in range(100)))
    scene.turn()
    assert not outcome.done
    scene.append("t", 99, b"a")
    scene.turn()
    assert outcome.offsets(99) == [0]


def test_a_client_that_goes_away_while_logs_are_made_is_not_answered(scene):
    scene.create_topic("t", 100)
    outcome = fetch(scene, *(part(index) for index in range(100)), max_wait_ms=0)
    outcome.fetch.cancel()
    scene.turn()
    assert not outcome.done
