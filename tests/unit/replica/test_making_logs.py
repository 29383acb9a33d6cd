"""Logs of new partitions are made in a thread: who waits for them, in which order, and what may happen meanwhile."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from ottla.api.base import NO_RESPONSE, PARKED
from ottla.api.data import produce
from ottla.broker.coordinator_log import CoordinatedPartitions
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.log.types import TopicPartition
from ottla.replica import log_creation as making
from ottla.testing.memfs import MemFs
from ottla.wire.messages import ProduceRequest
from unit.replica.replica_scene import NODE, Context, Scene, make_scene


def request(scene: Scene, *indexes: int, value: bytes = b"a", topic: str = "t", acks: int = 1) -> Any:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=index, records=scene.batch(value))
                    for index in indexes
                ],
            )
        ],
    )


def send(scene: Scene, *indexes: int, **options: Any) -> Context:
    """A request that is parked."""
    ctx = Context(12)
    assert produce.handle(scene.broker, ctx, request(scene, *indexes, **options)) is PARKED
    return ctx


def results(ctx: Context) -> list[tuple[int, int]]:
    answers = [answer for topic in ctx.response.responses for answer in topic.partition_responses]
    return [(answer.error_code, answer.base_offset) for answer in answers]


def values(scene: Scene, index: int = 0, topic: str = "t") -> int:
    return scene.replicas.find((topic, index)).local_log().log_end_offset


def threads(scene: Scene) -> int:
    """Run what the thread was given, and the loop's part of it."""
    count = scene.executor.run(making.run)
    scene.clock.advance(0)
    return count


# -- requests


def test_requests_wait_for_new_logs_and_keep_their_order(scene):
    scene.create_topic("t", 20)
    first, second = send(scene, *range(10)), send(scene, 9, value=b"second")
    other = send(scene, 15)
    scene.clock.advance(0)
    assert not scene.log_manager.logs, "nothing is made on the event loop"
    scene.turn()
    assert results(first) == [(0, 0)] * 10
    assert results(second) == [(0, 1)]
    assert results(other) == [(0, 0)]
    assert len(scene.log_manager.logs) == 20
    third = Context(12)
    assert produce.handle(scene.broker, third, request(scene, 9)) is not PARKED


def test_the_first_record_finds_its_files_made(scene):
    scene.create_topic("t", 2)
    sent = send(scene, 0)
    scene.clock.advance(0)
    scene.executor.run(making.run)
    assert sent.response is None
    assert scene.fs.exists("/data/t-0/leader-epoch-checkpoint")
    before = set(scene.fs.listdir("/data/t-0"))
    scene.turn()
    assert results(sent) == [(0, 0)]
    assert set(scene.fs.listdir("/data/t-0")) == before
    # Where no record waits, it is not made.
    assert not scene.fs.exists("/data/t-1/leader-epoch-checkpoint")


def test_a_log_that_is_there_gets_the_file_of_its_epoch_in_the_thread_too(scene):
    scene.create_topic("t")
    scene.turn()
    assert not scene.fs.exists("/data/t-0/leader-epoch-checkpoint")
    sent = send(scene, 0)
    scene.clock.advance(0)
    scene.executor.run(making.run)
    assert scene.fs.exists("/data/t-0/leader-epoch-checkpoint")
    assert not scene.replicas.find(("t", 0)).log.leader_epochs.unwritten
    scene.turn()
    assert results(sent) == [(0, 0)]


def test_records_come_before_logs_that_nobody_waits_for(scene):
    scene.create_topic("t", 200)
    scene.clock.advance(0)
    sent = send(scene, 199)
    rounds = 0
    while sent.response is None:
        assert threads(scene)
        rounds += 1
    assert rounds == 2, "the round that was under way, and the next one"
    assert len(scene.log_manager.logs) < 100
    scene.turn()
    assert len(scene.log_manager.logs) == 200


def test_a_request_for_partitions_that_are_ready_waits_behind_one_that_does_not_have_them_all(scene):
    scene.create_topic("t", 2)
    scene.make_ready("t")
    scene.create_topic("u")
    both = Context(12)
    mixed = request(scene, 0)
    mixed.topic_data += request(scene, 0, topic="u").topic_data
    assert produce.handle(scene.broker, both, mixed) is PARKED
    after = send(scene, 0, value=b"after")
    free = Context(12)
    assert produce.handle(scene.broker, free, request(scene, 1)) is not PARKED
    scene.turn()
    assert results(both) == [(0, 0), (0, 0)]
    assert results(after) == [(0, 1)]


def test_without_acknowledgements_nobody_waits_for_an_answer(scene):
    scene.create_topic("t", 10)
    ctx = Context(12)
    assert produce.handle(scene.broker, ctx, request(scene, *range(10), acks=0)) is NO_RESPONSE
    assert produce.handle(scene.broker, ctx, request(scene, *range(10), acks=0)) is NO_RESPONSE
    scene.turn()
    assert {values(scene, index) for index in range(10)} == {2}


def test_more_bytes_than_may_wait_are_served_at_once(scene, monkeypatch):
    monkeypatch.setattr(making, "MAX_BYTES_WAITING_FOR_LOGS", 1500)
    scene.create_topic("t", 2)
    first, second = Context(12), Context(12)
    assert produce.handle(scene.broker, first, request(scene, 0)) is PARKED
    assert first.response is None
    assert produce.handle(scene.broker, second, request(scene, 0, 1)) is PARKED
    assert results(first) == [(0, 0)]
    assert results(second) == [(0, 1), (0, 0)]
    scene.turn()
    assert (values(scene, 0), values(scene, 1)) == (2, 1)


def test_requests_without_records_count_too(scene, monkeypatch):
    monkeypatch.setattr(making, "MAX_BYTES_WAITING_FOR_LOGS", 1500)
    scene.create_topic("t", 1)
    first, second = Context(12), Context(12)
    for ctx in (first, second):
        empty = request(scene, 0)
        empty.topic_data[0].partition_data[0].records = None
        assert produce.handle(scene.broker, ctx, empty) is PARKED
    assert len(results(first)) == len(results(second)) == 1


def test_an_end_answers_who_waits(scene):
    scene.create_topic("t", 3)
    sent = send(scene, 0, 1)
    scene.clock.advance(0)
    scene.replicas.shutdown()
    assert results(sent) == [(0, 0), (0, 0)]
    assert scene.executor.run(making.run) == 1, "what the thread was given is done by then, and harmless"
    assert values(scene) == 1


def test_an_unexpected_error_is_told_and_holds_nobody_up(scene, monkeypatch):
    scene.create_topic("t", 2)
    bad, good = send(scene, 0), send(scene, 1)
    append = type(scene.replicas.find(("t", 0))).append

    def broken(self, *args):
        if self.index == 0:
            raise ZeroDivisionError("a bug")
        return append(self, *args)

    monkeypatch.setattr(type(scene.replicas.find(("t", 0))), "append", broken)
    scene.turn()
    assert results(bad) == [(ErrorCode.UNKNOWN_SERVER_ERROR, -1)]
    assert results(good) == [(0, 0)]


# -- what happens meanwhile


def test_whoever_cannot_wait_takes_the_log_at_once(scene):
    scene.create_topic("t", 3)
    scene.clock.advance(0)
    assert scene.append("t", 1, b"now") == 0
    assert set(scene.log_manager.logs) == {TopicPartition("t", 1)}
    scene.turn()
    assert len(scene.log_manager.logs) == 3
    assert scene.append("t", 1, b"then") == 1, "the thread has not created it again"


def test_a_topic_that_is_deleted_before_its_logs_are_made_leaves_none(scene):
    scene.create_topic("t", 3)
    sent = send(scene, 0)
    scene.clock.advance(0)
    scene.delete_topic("t")
    scene.turn()
    assert results(sent) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert not scene.log_manager.logs
    assert not [name for name in scene.fs.listdir("/data") if name.startswith("t-")]


def test_a_topic_that_is_deleted_when_its_log_was_just_made_leaves_none(scene):
    scene.create_topic("t")
    scene.clock.advance(0)
    (future, work) = scene.executor.waiting.pop()
    work()  # the thread is done, the loop does not know yet
    scene.delete_topic("t")
    scene.turn()
    future.set_result(None)
    scene.turn()
    assert not scene.log_manager.logs
    (name,) = [name for name in scene.fs.listdir("/data") if name.startswith("t-")]
    assert name.endswith("-delete")


def test_a_topic_made_anew_while_the_log_of_the_old_one_is_being_made_gets_its_own(scene):
    old = scene.create_topic("t")
    scene.clock.advance(0)
    scene.delete_topic("t")
    new = scene.create_topic("t")
    sent = send(scene, 0)
    scene.turn()
    assert results(sent) == [(0, 0)]
    assert scene.log_manager.logs[TopicPartition("t", 0)].topic_id == new != old


def test_a_partition_that_is_led_elsewhere_meanwhile_refuses(scene):
    scene.create_topic("t", replicas=(NODE, 2))
    sent = send(scene, 0)
    scene.clock.advance(0)
    scene.change_partition("t", 0, leader=2, leader_epoch=1, partition_epoch=1)
    scene.turn()
    assert results(sent) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert scene.replicas.find(("t", 0)).log is not None


def test_a_new_epoch_meanwhile_is_the_one_of_the_record(scene):
    scene.create_topic("t")
    sent = send(scene, 0)
    scene.clock.advance(0)
    scene.executor.run(making.run)
    scene.change_partition("t", 0, leader_epoch=5, partition_epoch=1)
    scene.turn()
    assert results(sent) == [(0, 0)]
    assert scene.fs.read_bytes("/data/t-0/leader-epoch-checkpoint") == b"0\n1\n5 0\n"


def test_a_change_of_the_topics_config_meanwhile_is_in_force(scene):
    scene.create_topic("t", configs={"segment.bytes": "2000000"})
    scene.clock.advance(0)
    scene.set_topic_config("t", {"segment.bytes": "3000000"})
    scene.turn()
    assert scene.log_manager.logs[TopicPartition("t", 0)].config.segment_bytes == 3_000_000


class BrokenFs(MemFs):
    broken = False

    def write_bytes(self, path: str, data: bytes) -> None:
        if self.broken:
            raise OSError(errno.EIO, "broken")
        super().write_bytes(path, data)

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        if self.broken:
            raise OSError(errno.EIO, "broken")
        super().mkdir(path, parents=parents)


def test_a_disk_that_fails_in_the_thread_takes_its_directory_offline():
    fs = BrokenFs()
    scene = make_scene(fs)
    scene.create_topic("t", 2)
    sent = send(scene, 0)
    fs.broken = True
    scene.turn()
    assert results(sent) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    assert scene.log_manager.dirs[0].offline
    assert not scene.log_manager.logs


def test_a_disk_that_fails_under_the_first_record_takes_its_directory_offline():
    fs = BrokenFs()
    scene = make_scene(fs)
    scene.create_topic("t")
    scene.turn()
    fs.broken = True
    sent = send(scene, 0)
    scene.turn()
    assert results(sent) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    assert scene.log_manager.dirs[0].offline


def test_a_directory_that_fails_while_the_thread_makes_logs_in_it_gets_none(scene):
    scene.create_topic("t")
    sent = send(scene, 0)
    scene.clock.advance(0)
    scene.log_manager._dir_failed(scene.log_manager.dirs[0], OSError(errno.EIO, "broken"))
    scene.turn()
    assert results(sent) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    with pytest.raises(ApiException):
        scene.append("t", 0, b"a")


def test_logs_loaded_from_disk_are_opened_in_slices(scene, monkeypatch):
    scene.create_topic("t", 50)
    scene.turn()
    again = make_scene(scene.fs.kill(), scene.clock)
    opened = again.replicas._open_log

    def slow(partition):
        again.clock._now_s += 0.002
        return opened(partition)

    monkeypatch.setattr(again.replicas._host, "open_log", slow)
    again.create_topic("t", 50, topic_id=scene.topic_ids["t"])
    again.replicas._log_creator._turn()
    assert sum(1 for partition in again.replicas.partitions() if partition.log is not None) == 2
    again.clock.advance(1)
    assert all(partition.log is not None for partition in again.replicas.partitions())
    assert not again.executor.waiting


# -- coordinators


def test_a_coordinator_waits_for_its_new_log_and_creates_none_on_the_loop() -> None:
    scene = make_scene()
    scene.create_topic("__consumer_offsets", 1)
    partitions = CoordinatedPartitions(scene.replicas, scene.clock)
    called: list[bool] = []
    partition = scene.replicas.find((TopicName("__consumer_offsets"), 0))

    def proceed() -> None:
        called.append(partition.log is not None)

    partitions.prepare(TopicName("__consumer_offsets"), 0, proceed)
    scene.clock.advance(0)
    assert called == []
    assert threads(scene)
    assert called == [True]
    partitions.prepare(TopicName("__consumer_offsets"), 0, proceed)
    partitions.prepare(TopicName("__consumer_offsets"), 1, lambda: called.append(False))
    assert called == [True, True, False], "at once where there is nothing to create"
