"""AssignReplicasToDirs: a broker reports the log directories of its replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.cluster import check_broker_epoch
from ottla.controller.partition_change import Election, PartitionId, Target, change_partition
from ottla.controller.partitions import TopicRules, changes_for_lost_replicas, is_online_directory
from ottla.controller.result import ControllerResult
from ottla.controller.settings import Settings
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.metadata.features import DIRECTORY_ASSIGNMENT_FROM
from ottla.metadata.image import MetadataImage
from ottla.wire.messages import AssignReplicasToDirsResponse, PartitionChangeRecord

if TYPE_CHECKING:
    from ottla.wire.messages import AssignReplicasToDirsRequest


def assign_replicas_to_dirs(
    image: MetadataImage, request: AssignReplicasToDirsRequest, settings: Settings
) -> ControllerResult[AssignReplicasToDirsResponse]:
    """Decide AssignReplicasToDirs. Replicas in a directory that is not online leave their ISRs."""
    if image.metadata_version < DIRECTORY_ASSIGNMENT_FROM:
        raise ApiException(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[PartitionChangeRecord] = []
    lost: list[PartitionId] = []
    response = AssignReplicasToDirsResponse()
    for directory in request.directories:
        online = is_online_directory(broker, directory.id)
        answer = AssignReplicasToDirsResponse.DirectoryData(id=directory.id)
        response.directories.append(answer)
        for topic in directory.topics:
            topic_answer = AssignReplicasToDirsResponse.TopicData(topic_id=topic.topic_id)
            answer.topics.append(topic_answer)
            for wanted in topic.partitions:
                partition_id = PartitionId(topic.topic_id, wanted.partition_index)
                record, error = _assign(image, settings, broker.id, partition_id, directory.id)
                if record is not None:
                    records.append(record)
                if error is ErrorCode.NONE and not online:
                    lost.append(partition_id)
                topic_answer.partitions.append(
                    AssignReplicasToDirsResponse.PartitionData(
                        partition_index=wanted.partition_index, error_code=error
                    )
                )
    records += changes_for_lost_replicas(image, settings, broker.id, dict.fromkeys(lost))
    return ControllerResult(records, response, atomic=False)


def _assign(
    image: MetadataImage, settings: Settings, broker_id: BrokerId, partition_id: PartitionId, directory: bytes
) -> tuple[PartitionChangeRecord | None, ErrorCode]:
    topic = image.topics.by_id.get(partition_id.topic_id)
    if topic is None:
        return None, ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(partition_id.partition)
    if partition is None:
        return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker_id not in partition.replicas:
        return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
    rules = TopicRules(image, settings, topic).of(partition, Election.ONLINE)
    target = Target(directories={broker_id: directory})
    return change_partition(partition_id, partition, rules, target), ErrorCode.NONE
