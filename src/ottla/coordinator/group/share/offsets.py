"""AlterShareGroupOffsets, DeleteShareGroupOffsets and DeleteGroups for share groups.

The share coordinator keeps share state: each operation writes what is about to happen, and returns the request to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.coordinator.group.share import records as write
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.initialization import initialize_request
from ottla.coordinator.group.share.state_partitions import StatePartitions, TopicPartitions, joined
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.wire import messages


@dataclass(frozen=True, slots=True)
class Reset:
    """The response if the request succeeds, and the request for share state (None: nothing to do)."""

    response: messages.AlterShareGroupOffsetsResponse
    initialize: messages.InitializeShareGroupStateRequest | None


def reset(
    group: ShareGroup,
    request: messages.AlterShareGroupOffsetsRequest,
    image: MetadataImage,
    now_ms: int,
    requested_ms: dict[tuple[str, bytes], int],
) -> CoordinatorResult[Reset]:
    """Restart partitions at the given offsets. Raises NON_EMPTY_GROUP."""
    group.validate_delete()
    response = messages.AlterShareGroupOffsetsResponse
    topics: list[messages.AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic] = []
    offsets: dict[bytes, dict[int, int]] = {}
    begun: dict[bytes, TopicPartitions] = {}
    for wanted in request.topics:
        topic = image.topics.by_name.get(wanted.topic_name)
        known = {} if topic is None else topic.partitions
        altered = response.AlterShareGroupOffsetsResponseTopic(topic_name=wanted.topic_name, partitions=[])
        for part in wanted.partitions:
            found = part.partition_index in known
            altered.partitions.append(
                response.AlterShareGroupOffsetsResponsePartition(
                    partition_index=part.partition_index,
                    error_code=ErrorCode.NONE if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=None if found else "This server does not host this topic-partition.",
                )
            )
            if found and topic is not None:
                offsets.setdefault(topic.id, {})[part.partition_index] = part.start_offset
        if topic is not None:
            altered.topic_id = topic.id
            if topic.id in offsets:
                begun[topic.id] = TopicPartitions(topic.name, frozenset(offsets[topic.id]))
        topics.append(altered)
    records: list[CoordinatorRecord] = []
    initialize = None
    if begun:
        state = group.state_partitions or StatePartitions()
        records.append(write.state_partitions(group.group_id, state.begun(begun)))
        requested_ms.update(((group.group_id, topic_id), now_ms) for topic_id in begun)
        initialize = initialize_request(group.group_id, group.epoch, offsets)
    return CoordinatorResult(records, Reset(response(responses=topics), initialize))


_DeletedTopic = messages.DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


@dataclass(frozen=True, slots=True)
class Deletion:
    """The refused topics of a DeleteShareGroupOffsets, and the request for the others (None: there are none)."""

    refused: list[_DeletedTopic] = field(default_factory=list)
    delete: messages.DeleteShareGroupStateRequest | None = None


def begin_delete(
    group: ShareGroup, request: messages.DeleteShareGroupOffsetsRequest, image: MetadataImage
) -> CoordinatorResult[Deletion]:
    """Delete the share state of topics. Raises NON_EMPTY_GROUP."""
    group.validate_delete()
    state = group.state_partitions
    if state is None:
        return CoordinatorResult([], Deletion())
    refused: list[_DeletedTopic] = []
    deleted: dict[bytes, Iterable[int]] = {}
    for wanted in request.topics:
        topic = image.topics.by_name.get(wanted.topic_name)
        if topic is not None and topic.id in state.initialized:
            deleted[topic.id] = state.initialized[topic.id].partitions
        elif topic is not None and topic.id in state.deleting:
            deleted[topic.id] = topic.partitions
        else:
            refused.append(
                _DeletedTopic(
                    topic_name=wanted.topic_name,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message="This server does not host this topic-partition."
                    if topic is None
                    else "There is no offset information to delete.",
                )
            )
    records = []
    if deleted:
        records.append(write.state_partitions(group.group_id, state.deletion_begun(deleted, image)))
    return CoordinatorResult(records, Deletion(refused, _delete_request(group.group_id, deleted)))


def begin_delete_all(
    group: ShareGroup, image: MetadataImage
) -> CoordinatorResult[messages.DeleteShareGroupStateRequest | None]:
    """Delete all share state of a group that will be deleted. Raises NON_EMPTY_GROUP."""
    group.validate_delete()
    state = group.state_partitions
    if state is None:
        return CoordinatorResult([], None)
    deleted: dict[bytes, Iterable[int]] = {
        topic_id: topic.partitions
        for topic_id, topic in joined(state.initialized, state.initializing).items()
    }
    for topic_id in state.deleting:
        topic = image.topics.by_id.get(topic_id)
        if topic is not None:
            deleted[topic_id] = topic.partitions
    return CoordinatorResult(
        [write.state_partitions(group.group_id, state.deletion_begun(deleted, image))],
        _delete_request(group.group_id, deleted),
    )


def _delete_request(
    group_id: str, deleted: Mapping[bytes, Iterable[int]]
) -> messages.DeleteShareGroupStateRequest | None:
    if not deleted:
        return None
    request = messages.DeleteShareGroupStateRequest
    return request(
        group_id=group_id,
        topics=[
            request.DeleteStateData(
                topic_id=topic_id,
                partitions=[request.PartitionData(partition=number) for number in sorted(numbers)],
            )
            for topic_id, numbers in deleted.items()
        ],
    )
