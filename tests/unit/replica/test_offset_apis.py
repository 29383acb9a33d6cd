"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and the other small APIs of data."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.api.base import PARKED
from ottla.api.data import (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    describe_producers,
    list_offsets,
    offset_for_leader_epoch,
)
from ottla.api.transactions import init_producer_id
from ottla.errors import ApiException, ErrorCode
from ottla.wire.messages import (
    AlterReplicaLogDirsRequest,
    DeleteRecordsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from unit.replica.replica_scene import Context


def ask(scene, api: Any, request: Any, version: int) -> Any:
    """The response, with whatever runs in threads run."""
    ctx = Context(version)
    answer = api.handle(scene.broker, ctx, request)
    if answer is PARKED:
        scene.executor.run()
        return ctx.response
    return answer


def offset_of(
    scene, timestamp: int, index: int = 0, *, version: int = 11, **options: Any
) -> tuple[int, int, int, int]:
    """(error, offset, timestamp, leader epoch)"""
    epoch = options.pop("current_leader_epoch", -1)
    request = ListOffsetsRequest(
        **{"replica_id": -1, **options},
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
                    )
                ],
            )
        ],
    )
    (answer,) = ask(scene, list_offsets, request, version).topics[0].partitions
    return answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch


def test_earliest_and_latest(scene):
    scene.create_topic("t")
    assert offset_of(scene, list_offsets.LATEST) == (0, 0, -1, 0)
    scene.append("t", 0, b"a", b"b")
    assert offset_of(scene, list_offsets.LATEST) == (0, 2, -1, 0)
    assert offset_of(scene, list_offsets.EARLIEST) == (0, 0, -1, 0)
    scene.replicas.find(("t", 0)).delete_records(1)
    assert offset_of(scene, list_offsets.EARLIEST) == (0, 1, -1, 0)
    assert offset_of(scene, list_offsets.EARLIEST_LOCAL) == (0, 1, -1, 0)


def test_there_is_no_tiered_storage(scene):
    scene.create_topic("t")
    assert offset_of(scene, list_offsets.LATEST_TIERED) == (0, -1, -1, -1)
    assert offset_of(scene, list_offsets.EARLIEST_PENDING_UPLOAD) == (0, -1, -1, -1)


def test_by_timestamp(scene):
    scene.create_topic("t")
    times = []
    for _ in range(3):
        times.append(scene.clock.now_ms())
        scene.append("t", 0, b"a", b"b")
        scene.clock.advance(10)
    assert offset_of(scene, times[1]) == (0, 2, times[1], 0)
    assert offset_of(scene, times[1] + 1) == (0, 4, times[2], 0)
    assert offset_of(scene, 0) == (0, 0, times[0], 0)
    assert offset_of(scene, times[2] + 1) == (0, -1, -1, -1)
    assert offset_of(scene, list_offsets.MAX_TIMESTAMP)[:3] == (0, 4, times[2])


def test_only_what_is_readable_is_found(scene):
    scene.create_topic("t", replicas=(1, 2))
    scene.append("t", 0, b"a")
    assert offset_of(scene, list_offsets.LATEST)[:2] == (0, 0)
    assert offset_of(scene, 0) == (0, -1, -1, -1)
    assert offset_of(scene, list_offsets.LATEST, replica_id=2)[:2] == (0, 1)


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_names_of_offsets_are_known_from_their_version_on(scene, timestamp, since):
    scene.create_topic("t")
    assert offset_of(scene, timestamp, version=since)[0] == 0
    assert offset_of(scene, timestamp, version=since - 1)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert offset_of(scene, -7)[0] == ErrorCode.UNSUPPORTED_VERSION


def test_list_offsets_errors(scene):
    scene.create_topic("t")
    assert offset_of(scene, -1, index=3) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
    assert offset_of(scene, -1, current_leader_epoch=1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    scene.change_partition("t", 0, leader_epoch=2)
    assert offset_of(scene, -1, current_leader_epoch=1)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert offset_of(scene, -1, current_leader_epoch=2) == (0, 0, -1, 2)


def test_a_new_leader_does_not_tell_an_end_that_it_does_not_know_yet(scene):
    scene.create_topic("t", replicas=(1, 2))
    scene.append("t", 0, b"a")
    scene.change_partition("t", 0, leader_epoch=1)
    assert offset_of(scene, -1)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert offset_of(scene, 0)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert offset_of(scene, -1, version=4)[0] == ErrorCode.LEADER_NOT_AVAILABLE
    assert offset_of(scene, -2)[:2] == (0, 0)


def test_a_partition_asked_for_twice_is_an_error(scene):
    scene.create_topic("t", 2)
    part = ListOffsetsRequest.ListOffsetsPartition
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="t",
                partitions=[
                    part(partition_index=0, timestamp=-1),
                    part(partition_index=1, timestamp=-1),
                    part(partition_index=0, timestamp=-2),
                ],
            )
        ],
    )
    answers = ask(scene, list_offsets, request, 11).topics[0].partitions
    assert [(answer.partition_index, answer.error_code) for answer in answers] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, 0),
    ]


def test_the_end_of_each_leader_epoch(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"a", b"b")
    scene.change_partition("t", 0, leader_epoch=5)
    scene.append("t", 0, b"c")

    def end_of(leader_epoch: int, current: int = -1, topic: str = "t") -> tuple[int, int, int]:
        request = OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                            partition=0, leader_epoch=leader_epoch, current_leader_epoch=current
                        )
                    ],
                )
            ]
        )
        (answer,) = ask(scene, offset_for_leader_epoch, request, 4).topics[0].partitions
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert end_of(0) == (0, 0, 2)
    assert end_of(3) == (0, 0, 2)
    assert end_of(5, current=5) == (0, 5, 3)
    assert end_of(6) == (0, -1, -1)
    assert end_of(0, current=4)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert end_of(0, topic="u")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def delete_to(scene, offset: int, index: int = 0, topic: str = "t") -> tuple[int, int]:
    request = DeleteRecordsRequest(
        timeout_ms=1000,
        topics=[
            DeleteRecordsRequest.DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
                ],
            )
        ],
    )
    (answer,) = ask(scene, delete_records, request, 2).topics[0].partitions
    return answer.error_code, answer.low_watermark


def test_records_are_deleted_up_to_an_offset(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"a", b"b", b"c")
    assert delete_to(scene, 1) == (0, 1)
    assert delete_to(scene, 0) == (0, 1)
    assert delete_to(scene, -1) == (0, 3)
    assert delete_to(scene, 4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_to(scene, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_to(scene, 0, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_records_of_a_compacted_topic_are_not_deleted(scene):
    scene.create_topic("t", configs={"cleanup.policy": "compact"})
    scene.create_topic("both", configs={"cleanup.policy": "compact,delete"})
    assert delete_to(scene, 0) == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete_to(scene, 0, topic="both") == (0, 0)


def test_producers_are_described(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"a", b"b", producer_id=7, producer_epoch=2, base_sequence=0)
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 9])]
    )
    found, unknown = ask(scene, describe_producers, request, 0).topics[0].partitions
    (producer,) = found.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 1)
    assert producer.last_timestamp == scene.clock.now_ms()
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_log_dirs_are_described_with_the_size_of_their_logs(scene):
    scene.create_topic("t", 2)
    scene.create_topic("u")
    scene.append("t", 1, b"a")
    scene.turn()
    (directory,) = ask(scene, describe_log_dirs, DescribeLogDirsRequest(topics=None), 4).results
    assert directory.log_dir == "/data"
    sizes = {
        (topic.name, part.partition_index): part.partition_size
        for topic in directory.topics
        for part in topic.partitions
    }
    assert sizes == {("t", 0): 0, ("t", 1): len(scene.batch(b"a")), ("u", 0): 0}
    assert directory.total_bytes > 0
    wanted = DescribeLogDirsRequest.DescribableLogDirTopic(topic="t", partitions=[0])
    (directory,) = ask(scene, describe_log_dirs, DescribeLogDirsRequest(topics=[wanted]), 4).results
    assert [(topic.name, len(topic.partitions)) for topic in directory.topics] == [("t", 1)]


def test_a_failed_log_dir_says_so(scene):
    scene.log_manager.dirs[0].error = OSError(5, "broken")
    (directory,) = ask(scene, describe_log_dirs, DescribeLogDirsRequest(topics=None), 4).results
    assert directory.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_producer_ids_come_from_blocks(scene):
    ids = [ask(scene, init_producer_id, InitProducerIdRequest(transactional_id=None), 5) for _ in range(12)]
    assert [answer.producer_id for answer in ids] == [*range(1000, 1010), 1000, 1001]
    assert all((answer.producer_epoch, answer.error_code) == (0, 0) for answer in ids)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"transactional_id": None, "producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_init_producer_id_refuses(scene, options, code):
    with pytest.raises(ApiException) as caught:
        ask(scene, init_producer_id, InitProducerIdRequest(**options), 5)
    assert caught.value.code == code


def test_a_replica_is_moved_to_a_directory_that_is_there(scene):
    scene.create_topic("t")
    scene.append("t", 0, b"a")

    def move(path: str, topic: str = "t") -> int:
        asked = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[0])
        request = AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[asked])]
        )
        (answer,) = ask(scene, alter_replica_log_dirs, request, 2).results[0].partitions
        found: int = answer.error_code
        return found

    assert move("/data") == 0
    assert move("/elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert move("/data", topic="unknown") == ErrorCode.REPLICA_NOT_AVAILABLE
