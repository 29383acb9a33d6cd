"""AlterPartitionReassignments and ListPartitionReassignments: replicas that move to other brokers.

    1. a change record adds the new replicas to the old ones, and lists the added and the removed replicas
    2. the new replicas catch up and join the ISR, through AlterPartition
    3. the change that completes the ISR also removes the old replicas (`partition_change.py`), which ends it

A cancelled reassignment restores the replicas from before step 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.partition_change import Election, PartitionId, Target, change_partition
from ottla.controller.partitions import TopicRules
from ottla.controller.result import (
    MAX_RECORDS_PER_OPERATION,
    NO_ERROR,
    ApiError,
    ControllerResult,
)
from ottla.controller.settings import Settings
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.wire.messages import (
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponse,
    PartitionChangeRecord,
)

if TYPE_CHECKING:
    from ottla.wire.messages import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest


def alter_partition_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, settings: Settings
) -> ControllerResult[AlterPartitionReassignmentsResponse]:
    """Decide AlterPartitionReassignments. Each partition succeeds or fails by itself."""
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    records: list[PartitionChangeRecord] = []
    for topic in request.topics:
        answer = AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=topic.name)
        response.responses.append(answer)
        for wanted in topic.partitions:
            error = NO_ERROR
            try:
                record = _reassign(
                    image, settings, topic.name, wanted, request.allow_replication_factor_change
                )
                if record is not None:
                    records.append(record)
            except ApiException as refused:
                error = ApiError.of(refused)
            answer.partitions.append(
                AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
                    partition_index=wanted.partition_index,
                    error_code=error.code,
                    error_message=error.message,
                )
            )
    if len(records) > MAX_RECORDS_PER_OPERATION:
        raise ApiException(
            ErrorCode.POLICY_VIOLATION,
            f"The request would change {len(records)} partitions; {MAX_RECORDS_PER_OPERATION} is the most.",
        )
    return ControllerResult(records, response)


def _reassign(
    image: MetadataImage,
    settings: Settings,
    name: TopicName,
    wanted: AlterPartitionReassignmentsRequest.ReassignablePartition,
    may_change_factor: bool,
) -> PartitionChangeRecord | None:
    topic = image.topics.by_name.get(name)
    if topic is None:
        raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        raise ApiException(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {name}:{wanted.partition_index}.",
        )
    partition_id = PartitionId(topic.id, wanted.partition_index)
    rules = TopicRules(image, settings, topic)
    if wanted.replicas is None:
        return _cancel(topic, partition_id, partition, rules)
    replicas = tuple(wanted.replicas)
    _check_replicas(image, replicas)
    if not may_change_factor:
        _check_same_factor(partition, replicas)
    # Both lists are computed in full: a reassignment may change while it goes on, even back to its origin.
    original = {*partition.replicas} - {*partition.adding_replicas}
    removing = tuple(sorted({*partition.replicas} - {*replicas}))
    target = Target(
        replicas=replicas + removing, removing=removing, adding=tuple(sorted({*replicas} - original))
    )
    # Never an unclean election because of a reassignment, whatever the topic allows.
    return change_partition(partition_id, partition, rules.of(partition, Election.ONLINE), target)


def _cancel(
    topic: TopicImage, partition_id: PartitionId, partition: PartitionRegistration, rules: TopicRules
) -> PartitionChangeRecord | None:
    if not partition.is_reassigning:
        raise ApiException(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    adding = partition.adding_replicas
    replicas = tuple(replica for replica in partition.replicas if replica not in adding)
    if not replicas:
        raise ApiException(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The partition has no replicas other than those being added.",
        )
    isr = tuple(replica for replica in partition.isr if replica not in adding)
    if not isr:
        # No original replica is in sync: a leader among them lacks records.
        if not rules.unclean:
            raise ApiException(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{partition_id.partition} because it would "
                "require an unclean leader election.",
            )
        isr = replicas[:1]
    target = Target(isr=isr, replicas=replicas, removing=(), adding=())
    return change_partition(partition_id, partition, rules.of(partition), target)


def _check_replicas(image: MetadataImage, replicas: tuple[BrokerId, ...]) -> None:
    def refuse(why: str) -> ApiException:
        return ApiException(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {why}."
        )

    if not replicas:
        raise refuse("an empty replica list")
    for replica in replicas:
        if replica not in image.brokers:
            raise refuse(f"broker {replica}, but no such broker is registered")
        if replicas.count(replica) > 1:
            raise refuse(f"the broker {replica} more than once")


def _check_same_factor(partition: PartitionRegistration, replicas: tuple[BrokerId, ...]) -> None:
    current = {*partition.replicas, *partition.adding_replicas} - {*partition.removing_replicas}
    if len(current) != len(replicas):
        raise ApiException(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(current)} to {len(replicas)}",
        )


def list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ControllerResult[ListPartitionReassignmentsResponse]:
    """Decide ListPartitionReassignments: the reassignments in progress."""
    response = ListPartitionReassignmentsResponse(error_message=None)
    wanted: list[tuple[TopicImage, list[int]]]
    if request.topics is None:
        wanted = [(topic, sorted(topic.partitions)) for topic in image.topics.by_name.values()]
    else:
        wanted = [
            (image.topics.by_name[topic.name], topic.partition_indexes)
            for topic in request.topics
            if topic.name in image.topics.by_name
        ]
    for topic, indexes in wanted:
        ongoing = [
            ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for index in indexes
            if (partition := topic.partitions.get(index)) is not None and partition.is_reassigning
        ]
        if ongoing:
            response.topics.append(
                ListPartitionReassignmentsResponse.OngoingTopicReassignment(
                    name=topic.name, partitions=ongoing
                )
            )
    return ControllerResult([], response)
