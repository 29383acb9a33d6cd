"""AlterPartition: a partition's leader requests another in-sync set. Its epochs must be current."""

from __future__ import annotations

from typing import Final

from ottla.controller.cluster import check_broker_epoch
from ottla.controller.partition_change import PartitionId, Target, change_partition
from ottla.controller.partitions import TopicRules
from ottla.controller.result import ControllerResult
from ottla.controller.settings import Settings
from ottla.errors import ErrorCode
from ottla.ids import BrokerId
from ottla.metadata.image import (
    NO_LEADER_CHANGE,
    LeaderRecoveryState,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from ottla.metadata.partitions import merge_partition
from ottla.wire.messages import AlterPartitionRequest, AlterPartitionResponse, PartitionChangeRecord

_ANY_EPOCH: Final = -1
"""A broker epoch that is not checked: of a version before 3, or of a follower that has not reported its epoch."""
_WITH_BROKER_EPOCHS: Final = 3


def alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, settings: Settings, version: int
) -> ControllerResult[AlterPartitionResponse]:
    """Decide AlterPartition. Raises STALE_BROKER_EPOCH."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[PartitionChangeRecord] = []
    response = AlterPartitionResponse()
    for wanted_topic in request.topics:
        answer = AlterPartitionResponse.TopicData(topic_id=wanted_topic.topic_id)
        response.topics.append(answer)
        topic = image.topics.by_id.get(wanted_topic.topic_id)
        if topic is None:
            answer.partitions = [
                _refused(wanted.partition_index, ErrorCode.UNKNOWN_TOPIC_ID)
                for wanted in wanted_topic.partitions
            ]
            continue
        rules = TopicRules(image, settings, topic)
        for wanted in wanted_topic.partitions:
            if version < _WITH_BROKER_EPOCHS:
                state = AlterPartitionRequest.BrokerState
                wanted.new_isr_with_epochs = [
                    state(broker_id=replica, broker_epoch=_ANY_EPOCH) for replica in wanted.new_isr
                ]
            record, result = _alter_one(image, request.broker_id, topic, wanted, rules)
            if record is not None:
                records.append(record)
            answer.partitions.append(result)
    return ControllerResult(records, response, atomic=False)


def _alter_one(
    image: MetadataImage,
    broker_id: BrokerId,
    topic: TopicImage,
    wanted: AlterPartitionRequest.PartitionData,
    rules: TopicRules,
) -> tuple[PartitionChangeRecord | None, AlterPartitionResponse.PartitionData]:
    index = wanted.partition_index
    partition = topic.partitions.get(index)
    if partition is None:
        return None, _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = _why_not(image, broker_id, partition, wanted)
    if error is not None:
        return None, _refused(index, error)
    target = Target(
        isr=tuple(state.broker_id for state in wanted.new_isr_with_epochs),
        leader_recovery_state=wanted.leader_recovery_state,
    )
    record = change_partition(PartitionId(topic.id, index), partition, rules.of(partition), target)
    if record is not None:
        partition = merge_partition(partition, record)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            # The change completed a reassignment that moved the lead away: the old leader must read the metadata first.
            return record, _refused(index, ErrorCode.NEW_LEADER_ELECTED)
    return record, AlterPartitionResponse.PartitionData(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _refused(index: int, error: ErrorCode) -> AlterPartitionResponse.PartitionData:
    return AlterPartitionResponse.PartitionData(partition_index=index, error_code=error)


def _why_not(
    image: MetadataImage,
    broker_id: BrokerId,
    partition: PartitionRegistration,
    wanted: AlterPartitionRequest.PartitionData,
) -> ErrorCode | None:
    """The first failed check, in Kafka's order: callers distinguish the cases by their codes."""
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        # The leader knows a later epoch than this controller, which is therefore not active any more.
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [state.broker_id for state in wanted.new_isr_with_epochs]
    if len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state == LeaderRecoveryState.RECOVERING and (
        len(isr) > 1 or partition.leader_recovery_state == LeaderRecoveryState.RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, state) for state in wanted.new_isr_with_epochs):
        return ErrorCode.INELIGIBLE_REPLICA
    return None


def _is_eligible(image: MetadataImage, state: AlterPartitionRequest.BrokerState) -> bool:
    broker = image.brokers.get(state.broker_id)
    if broker is None or broker.fenced or broker.in_controlled_shutdown:
        return False
    return state.broker_epoch in (_ANY_EPOCH, broker.epoch)
