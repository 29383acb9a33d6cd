"""Replicas that move: begun, completed by the ISR, changed on the way, cancelled, listed."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.reassignments import alter_partition_reassignments, list_partition_reassignments
from ottla.errors import ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.wire.messages import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from unit.controller.controller_harness import (
    changed,
    fenced,
    image_with_brokers,
    replayed,
    set_config,
    settings_with,
    the_partition,
    with_partitions,
)

SETTINGS = settings_with()


def reassign(
    image: MetadataImage, replicas: list[int] | None, *, topic: str = "t", index: int = 0, **fields: Any
) -> tuple[MetadataImage, int]:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                name=topic,
                partitions=[
                    AlterPartitionReassignmentsRequest.ReassignablePartition(
                        partition_index=index, replicas=replicas
                    )
                ],
            )
        ],
        **fields,
    )
    result = alter_partition_reassignments(image, request, SETTINGS)
    return replayed(image, result.records), result.response.responses[0].partitions[0].error_code


def ongoing(
    image: MetadataImage, topics: Any = None
) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    request = ListPartitionReassignmentsRequest(topics=None)
    if topics is not None:
        request.topics = [
            ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
                name=name, partition_indexes=indexes
            )
            for name, indexes in topics.items()
        ]
    response = list_partition_reassignments(image, request).response
    return [
        (topic.name, p.partition_index, p.replicas, p.adding_replicas, p.removing_replicas)
        for topic in response.topics
        for p in topic.partitions
    ]


@pytest.fixture
def image() -> MetadataImage:
    return with_partitions(image_with_brokers(1, 2, 3, 4, 5), (1, 2, 3), (1, 2, 3))


def test_new_replicas_join_the_old_ones_first(image: MetadataImage) -> None:
    image, code = reassign(image, [1, 4, 5])
    assert code == 0
    partition = the_partition(image)
    assert partition.replicas == (1, 4, 5, 2, 3)
    assert (partition.adding_replicas, partition.removing_replicas) == ((4, 5), (2, 3))
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((1, 2, 3), 1, 0)
    assert partition.directories == tuple(image.brokers[b].directories[0] for b in partition.replicas)
    assert ongoing(image) == [("t", 0, [1, 4, 5, 2, 3], [4, 5], [2, 3])]
    assert ongoing(image, {"t": [1], "nowhere": [0]}) == []
    assert ongoing(image, {"t": [0, 1]}) == ongoing(image)


def test_another_order_is_done_at_once(image: MetadataImage) -> None:
    image, code = reassign(image, [3, 2, 1])
    assert code == 0
    assert (the_partition(image).replicas, the_partition(image).leader) == ((3, 2, 1), 1)
    assert not ongoing(image)


def test_fewer_replicas_is_done_at_once_when_those_that_stay_are_in_sync(image: MetadataImage) -> None:
    image, code = reassign(image, [2, 3])
    assert code == 0
    partition = the_partition(image)
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3), (2, 3), 2)
    assert partition.leader_epoch == 1


def test_fewer_replicas_waits_for_those_that_stay(image: MetadataImage) -> None:
    image, _ = reassign(changed(image, isr=[1, 2]), [2, 3])
    assert ongoing(image) == [("t", 0, [2, 3, 1], [], [1])]


def test_a_reassignment_can_be_changed_on_its_way(image: MetadataImage) -> None:
    image, _ = reassign(image, [1, 2, 4])
    image, code = reassign(image, [1, 2, 5])
    assert code == 0
    assert ongoing(image) == [("t", 0, [1, 2, 5, 3, 4], [5], [3, 4])]


def test_going_back_by_name_ends_it(image: MetadataImage) -> None:
    image, _ = reassign(image, [1, 2, 4])
    image, code = reassign(image, [1, 2, 3])
    assert code == 0
    assert not ongoing(image)
    assert the_partition(image).replicas == (1, 2, 3)


def test_cancelling_brings_the_old_replicas_back(image: MetadataImage) -> None:
    image, _ = reassign(image, [4, 5, 1])
    image = changed(image, isr=[1, 2, 3, 4])
    image, code = reassign(image, None)
    assert code == 0
    partition = the_partition(image)
    assert set(partition.replicas) == {1, 2, 3}
    assert partition.isr == (1, 2, 3)
    assert not partition.is_reassigning
    assert partition.leader_epoch == 1


def test_cancelling_would_lose_what_only_new_replicas_have(image: MetadataImage) -> None:
    image, _ = reassign(image, [4, 5, 1])
    image = fenced(changed(image, isr=[1, 4], leader=4), 1)
    assert the_partition(image).isr == (4,)
    assert reassign(image, None)[1] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    allowed, code = reassign(set_config(image, "unclean.leader.election.enable", "true"), None)
    assert code == 0
    assert not the_partition(allowed).is_reassigning
    assert the_partition(allowed).leader in (2, 3)


@pytest.mark.parametrize(
    ("replicas", "fields", "code"),
    [
        (None, {}, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ([], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2], {"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"allow_replication_factor_change": False}, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_refusals(image: MetadataImage, replicas: Any, fields: Any, code: ErrorCode) -> None:
    after, answered = reassign(image, replicas, **fields)
    assert answered == code
    assert after.offset == image.offset
