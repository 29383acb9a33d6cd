"""Produce requests: the responses, and what ends up in the log."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.api.base import NO_RESPONSE, PARKED
from ottla.api.data import produce
from ottla.errors import ErrorCode
from ottla.records.batch import iter_batches, iter_records, read_header
from ottla.records.codecs import Compression
from ottla.wire.messages import ProduceRequest
from unit.replica.replica_scene import Context, Scene, make_scene


@pytest.fixture
def scene() -> Scene:
    scene = make_scene()
    scene.ready_at_once = True
    return scene


def request(*entries: tuple[Any, int, bytes | None], acks: int = -1, **options: Any) -> Any:
    """Entries are (topic name or id, partition, records)."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, bytes) else bytes(16),
                partition_data=[ProduceRequest.PartitionProduceData(index=index, records=records)],
            )
            for topic, index, records in entries
        ],
        **options,
    )


def results(response: Any) -> list[Any]:
    return [answer for topic in response.responses for answer in topic.partition_responses]


def send(scene, *entries: Any, version: int = 12, **options: Any) -> list[Any]:
    """The partitions' answers to a request that is answered at once."""
    ctx = Context(version)
    answer = produce.handle(scene.broker, ctx, request(*entries, **options))
    assert answer is not PARKED
    return results(answer)


def log_of(scene, index: int = 0) -> Any:
    return scene.replicas.find(("t", index)).local_log()


def test_offsets_are_told_for_each_partition(scene):
    scene.create_topic("t", 2)
    scene.append("t", 1, b"before")
    first, second = send(scene, ("t", 0, scene.batch(b"a", b"b")), ("t", 1, scene.batch(b"c")))
    assert (first.error_code, first.base_offset, first.log_start_offset) == (0, 0, 0)
    assert (second.error_code, second.base_offset) == (0, 1)
    assert first.log_append_time_ms == -1
    assert log_of(scene).high_watermark == 2


def test_topics_by_id(scene):
    topic_id = scene.create_topic("t")
    (answer,) = send(scene, (topic_id, 0, scene.batch(b"a")), version=13)
    assert answer.error_code == 0
    (answer,) = send(scene, (b"?" * 16, 0, scene.batch(b"a")), version=13)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (("nope", 0, b""), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 5, b""), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 0, b""), ErrorCode.INVALID_RECORD),
        (("t", 0, None), ErrorCode.INVALID_RECORD),
        (("t", 0, bytes(100)), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_errors_name_the_partition_and_say_why(scene, entry, code):
    scene.create_topic("t")
    (answer,) = send(scene, entry)
    assert (answer.error_code, answer.base_offset, answer.index) == (code, -1, entry[1])
    assert answer.error_message


def test_one_bad_partition_does_not_spoil_the_others(scene):
    scene.create_topic("t", 2)
    bad = bytearray(scene.batch(b"a"))
    bad[-1] ^= 1
    first, second = send(scene, ("t", 0, bytes(bad)), ("t", 1, scene.batch(b"b")))
    assert (first.error_code, second.error_code) == (ErrorCode.CORRUPT_MESSAGE, 0)
    assert log_of(scene, 0).log_end_offset == 0
    assert log_of(scene, 1).log_end_offset == 1


@pytest.mark.parametrize("acks", [-2, 2])
def test_acks_are_minus_one_zero_or_one(scene, acks):
    scene.create_topic("t")
    (answer,) = send(scene, ("t", 0, scene.batch(b"a")), acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert log_of(scene).log_end_offset == 0


def test_acks_zero_gets_no_answer_and_an_error_closes_the_connection(scene):
    scene.create_topic("t")
    ctx = Context(12)
    assert produce.handle(scene.broker, ctx, request(("t", 0, scene.batch(b"a")), acks=0)) is NO_RESPONSE
    assert not ctx.aborted
    assert log_of(scene).log_end_offset == 1
    assert produce.handle(scene.broker, ctx, request(("t", 9, scene.batch(b"a")), acks=0)) is NO_RESPONSE
    assert ctx.aborted


def test_internal_topics_are_not_for_clients(scene):
    scene.create_topic("__consumer_offsets")
    (answer,) = send(scene, ("__consumer_offsets", 0, scene.batch(b"a")))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_transactional_records_need_a_transactional_id(scene):
    scene.create_topic("t")
    batch = scene.batch(b"a", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    (answer,) = send(scene, ("t", 0, batch))
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert log_of(scene).log_end_offset == 0


def test_a_repeated_batch_of_an_idempotent_producer_is_acknowledged_but_not_written(scene):
    scene.create_topic("t")
    batch = scene.batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
    assert [send(scene, ("t", 0, batch))[0].base_offset for _ in range(3)] == [0, 0, 0]
    assert log_of(scene).log_end_offset == 2
    gap = scene.batch(b"c", producer_id=7, producer_epoch=0, base_sequence=5)
    assert send(scene, ("t", 0, gap))[0].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_partition_led_elsewhere_hints_at_its_leader(scene):
    topic_id = scene.create_topic("t", replicas=(1, 2))
    scene.change_partition("t", 0, leader=2, leader_epoch=4)
    ctx = Context(13)
    response = produce.handle(scene.broker, ctx, request((topic_id, 0, scene.batch(b"a"))))
    (answer,) = results(response)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 4)


def test_acks_all_waits_for_the_in_sync_replicas(scene):
    scene.create_topic("t", replicas=(1, 2))
    ctx = Context(12)
    assert produce.handle(scene.broker, ctx, request(("t", 0, scene.batch(b"a")))) is PARKED
    assert (
        produce.handle(scene.broker, Context(12), request(("t", 0, scene.batch(b"b")), acks=1)) is not PARKED
    )
    scene.turn()
    assert ctx.response is None
    partition = scene.replicas.find(("t", 0))
    partition.follower_fetched(partition.log, 2, 1, start_offset=0, broker_epoch=1)
    scene.turn()
    (answer,) = results(ctx.response)
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_acks_all_times_out(scene):
    scene.create_topic("t", replicas=(1, 2))
    ctx = Context(12)
    produce.handle(scene.broker, ctx, request(("t", 0, scene.batch(b"a"))))
    scene.clock.advance_ms(1000)
    (answer,) = results(ctx.response)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert scene.replicas.delayed_requests.count == 0


def test_a_change_of_leader_ends_the_wait_for_replicas(scene):
    scene.create_topic("t", replicas=(1, 2))
    ctx = Context(12)
    produce.handle(scene.broker, ctx, request(("t", 0, scene.batch(b"a"))))
    scene.change_partition("t", 0, leader=2, leader_epoch=1)
    scene.turn()
    assert results(ctx.response)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_set_that_shrank_too_far_after_the_append_is_told(scene):
    scene.create_topic("t", replicas=(1, 2), configs={"min.insync.replicas": "2"})
    ctx = Context(12)
    produce.handle(scene.broker, ctx, request(("t", 0, scene.batch(b"a"))))
    scene.change_partition("t", 0, isr=(1,))
    scene.turn()
    assert results(ctx.response)[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_a_producer_that_goes_away_leaves_no_waiting_request(scene):
    scene.create_topic("t", replicas=(1, 2))
    ctx = Context(12)
    produce.handle(scene.broker, ctx, request(("t", 0, scene.batch(b"a"))))
    ctx.disconnect()
    assert scene.replicas.delayed_requests.count == 0


def values(scene) -> list[bytes]:
    log = log_of(scene)
    records = bytes(log.read(0, 1 << 20).records)
    return [
        record.value
        for position, header in iter_batches(records)
        for record in iter_records(records[position : position + header.size_in_bytes])
    ]


def test_a_batch_of_another_codec_is_encoded_anew_in_a_thread(scene):
    scene.create_topic("t", configs={"compression.type": "gzip"})
    ctx = Context(12)
    buffer = bytearray(scene.batch(b"a" * 500, b"b" * 500))
    assert produce.handle(scene.broker, ctx, request(("t", 0, memoryview(buffer)))) is PARKED
    buffer[:] = bytes(len(buffer))
    assert log_of(scene).log_end_offset == 0
    scene.executor.run()
    (answer,) = results(ctx.response)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert read_header(bytes(log_of(scene).read(0, 1 << 20).records)).compression == Compression.GZIP
    assert values(scene) == [b"a" * 500, b"b" * 500]


def test_appends_keep_their_order_behind_one_that_is_in_a_thread(scene):
    scene.create_topic("t", configs={"compression.type": "gzip"})
    contexts = [Context(12) for _ in range(4)]
    for number, ctx in enumerate(contexts):
        codec = Compression.GZIP if number % 2 else Compression.NONE
        produce.handle(
            scene.broker, ctx, request(("t", 0, scene.batch(b"%d" % number * 200, compression=codec)))
        )
    assert all(ctx.response is None for ctx in contexts)
    scene.executor.run()
    assert [results(ctx.response)[0].base_offset for ctx in contexts] == [0, 1, 2, 3]
    assert [value[:1] for value in values(scene)] == [b"0", b"1", b"2", b"3"]
    assert send(scene, ("t", 0, scene.batch(b"after", compression=Compression.GZIP)))[0].base_offset == 4


def test_records_without_keys_are_named_in_a_compacted_topic(scene):
    scene.create_topic("t", configs={"cleanup.policy": "compact"})
    (answer,) = send(scene, ("t", 0, scene.batch(b"a", b"b")))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [0, 1]
    (answer,) = send(scene, ("t", 0, scene.batch(b"a", key=b"k")))
    assert answer.error_code == 0


def test_an_error_found_in_a_thread_is_told_too(scene):
    scene.create_topic("t", configs={"cleanup.policy": "compact"})
    ctx, after = Context(12), Context(12)
    produce.handle(scene.broker, ctx, request(("t", 0, scene.batch(b"a", compression=Compression.GZIP))))
    produce.handle(scene.broker, after, request(("t", 0, scene.batch(b"b", key=b"k"))))
    scene.executor.run()
    assert results(ctx.response)[0].error_code == ErrorCode.INVALID_RECORD
    assert results(ctx.response)[0].record_errors[0].batch_index == 0
    assert results(after.response)[0].base_offset == 0


def test_acks_zero_does_not_wait_for_a_thread(scene):
    scene.create_topic("t", configs={"compression.type": "gzip"})
    ctx = Context(12)
    answer = produce.handle(scene.broker, ctx, request(("t", 0, scene.batch(b"a")), acks=0))
    assert answer is NO_RESPONSE
    scene.executor.run()
    assert log_of(scene).log_end_offset == 1
    assert ctx.response is None
    assert not ctx.aborted


@pytest.mark.parametrize("acks", [1, -1])
def test_flush_messages_puts_records_on_disk_before_they_are_acknowledged(scene, acks):
    scene.create_topic("t", configs={"flush.messages": "2"})
    assert send(scene, ("t", 0, scene.batch(b"a")), acks=acks)[0].base_offset == 0
    contexts = [Context(12) for _ in range(3)]
    for ctx in contexts:
        assert produce.handle(scene.broker, ctx, request(("t", 0, scene.batch(b"b")), acks=acks)) is PARKED
    assert log_of(scene).recovery_point == 0
    scene.executor.run()
    assert [results(ctx.response)[0].base_offset for ctx in contexts] == [1, 2, 3]
    assert log_of(scene).recovery_point == 4


def test_a_flush_that_fails_is_told(scene):
    scene.create_topic("t", configs={"flush.messages": "1"})

    def fault(operation: str, path: str) -> None:
        if operation == "fsync":
            raise OSError(5, "the disk is gone")

    ctx = Context(12)
    produce.handle(scene.broker, ctx, request(("t", 0, scene.batch(b"a"))))
    scene.fs.fault = fault
    scene.executor.run()
    assert results(ctx.response)[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_log_append_time_is_told(scene):
    scene.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    (answer,) = send(scene, ("t", 0, scene.batch(b"a")))
    assert answer.log_append_time_ms == scene.clock.now_ms()


def test_an_unexpected_error_in_a_thread_is_told_and_does_not_block_the_partition(scene):
    scene.create_topic("t", configs={"compression.type": "gzip"})
    ctx, after = Context(12), Context(12)
    for each in (ctx, after):
        produce.handle(scene.broker, each, request(("t", 0, scene.batch(b"a" * 100))))
    future, _ = scene.executor.waiting.pop()
    future.set_exception(ZeroDivisionError("a bug"))
    assert results(ctx.response)[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    scene.executor.run()
    assert results(after.response)[0].base_offset == 0
