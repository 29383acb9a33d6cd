"""Brokers report the directories of their replicas, and the effect of a failed directory."""

from __future__ import annotations

from ottla.controller.directories import assign_replicas_to_dirs
from ottla.errors import ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.wire.messages import AssignReplicasToDirsRequest
from unit.controller.controller_harness import (
    TOPIC_ID,
    broker_record,
    image_with_brokers,
    replayed,
    settings_with,
    the_partition,
    uuid,
    with_partitions,
)

SETTINGS = settings_with()


def assign(
    image: MetadataImage, directory: bytes, index: int = 0, topic_id: bytes = TOPIC_ID
) -> tuple[MetadataImage, int]:
    request = AssignReplicasToDirsRequest(
        broker_id=1,
        broker_epoch=image.brokers[1].epoch,
        directories=[
            AssignReplicasToDirsRequest.DirectoryData(
                id=directory,
                topics=[
                    AssignReplicasToDirsRequest.TopicData(
                        topic_id=topic_id,
                        partitions=[AssignReplicasToDirsRequest.PartitionData(partition_index=index)],
                    )
                ],
            )
        ],
    )
    result = assign_replicas_to_dirs(image, request, SETTINGS)
    answer = result.response.directories[0]
    assert answer.id == directory
    return replayed(image, result.records), answer.topics[0].partitions[0].error_code


def two_directories() -> MetadataImage:
    image = replayed(image_with_brokers(2), [broker_record(1, directories=2)])
    return with_partitions(image, (1, 2), (2,))


def test_a_replica_is_in_another_directory_now() -> None:
    image = two_directories()
    first, second = image.brokers[1].directories
    assert the_partition(image).directory(1) == first
    image, code = assign(image, second)
    assert code == 0
    partition = the_partition(image)
    assert (partition.directory(1), partition.isr, partition.leader_epoch) == (second, (1, 2), 0)
    assert assign(image, second)[0].offset == image.offset


def test_a_replica_in_a_directory_that_has_failed_does_not_lead() -> None:
    image, code = assign(two_directories(), uuid(4242))
    assert code == 0
    partition = the_partition(image)
    assert (partition.leader, partition.isr, partition.directory(1)) == (2, (2,), uuid(4242))


def test_refusals() -> None:
    image = two_directories()
    directory = image.brokers[1].directories[1]
    assert assign(image, directory, index=1)[1] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert assign(image, directory, index=5)[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert assign(image, directory, topic_id=uuid(1))[1] == ErrorCode.UNKNOWN_TOPIC_ID
