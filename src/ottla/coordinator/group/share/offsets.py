"""Where a share group begins, changed from outside: resetting offsets, deleting them, deleting the group.

Share state is the share coordinator's: each operation keeps what is about to happen, and gives the request that makes
it happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.coordinator.group.share import records as write
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.initialization import initialize_request
from ottla.coordinator.group.share.state_partitions import StatePartitions, TopicPartitions, joined
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.errors import ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.wire import messages

Message = Any


@dataclass(frozen=True, slots=True)
class Reset:
    """The answer if all goes well, and the request for share state (None: nothing to be done)."""

    response: Message
    initialize: Message | None


def reset(
    group: ShareGroup,
    request: Message,
    image: MetadataImage,
    now_ms: int,
    asked_at_ms: dict[tuple[str, bytes], int],
) -> CoordinatorResult[Reset]:
    """Begin partitions again at the given offsets. Raises NON_EMPTY_GROUP."""
    group.validate_delete()
    response = messages.AlterShareGroupOffsetsResponse
    topics: list[Message] = []
    offsets: dict[bytes, dict[int, int]] = {}
    begun: dict[bytes, TopicPartitions] = {}
    for asked in request.topics:
        topic = image.topics.by_name.get(asked.topic_name)
        known = {} if topic is None else topic.partitions
        answer = response.AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name, partitions=[])
        for part in asked.partitions:
            found = part.partition_index in known
            answer.partitions.append(
                response.AlterShareGroupOffsetsResponsePartition(
                    partition_index=part.partition_index,
                    error_code=ErrorCode.NONE if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=None if found else "This server does not host this topic-partition.",
                )
            )
            if found and topic is not None:
                offsets.setdefault(topic.id, {})[part.partition_index] = part.start_offset
        if topic is not None:
            answer.topic_id = topic.id
            if topic.id in offsets:
                begun[topic.id] = TopicPartitions(topic.name, frozenset(offsets[topic.id]))
        topics.append(answer)
    records: list[CoordinatorRecord] = []
    initialize = None
    if begun:
        state = group.state_partitions or StatePartitions()
        records.append(write.state_partitions(group.group_id, state.begun(begun)))
        asked_at_ms.update(((group.group_id, topic_id), now_ms) for topic_id in begun)
        initialize = initialize_request(group.group_id, group.epoch, offsets)
    return CoordinatorResult(records, Reset(response(responses=topics), initialize))


@dataclass(frozen=True, slots=True)
class Deletion:
    """What is refused of a DeleteShareGroupOffsets, and the request that does the rest (None: nothing is left)."""

    refused: list[Message] = field(default_factory=list)
    delete: Message | None = None


def begin_delete(group: ShareGroup, request: Message, image: MetadataImage) -> CoordinatorResult[Deletion]:
    """Delete the share state of topics. Raises NON_EMPTY_GROUP."""
    group.validate_delete()
    state = group.state_partitions
    if state is None:
        return CoordinatorResult([], Deletion())
    topic_response = messages.DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic
    refused: list[Message] = []
    doomed: dict[bytes, Iterable[int]] = {}
    for asked in request.topics:
        topic = image.topics.by_name.get(asked.topic_name)
        if topic is not None and topic.id in state.initialized:
            doomed[topic.id] = state.initialized[topic.id].partitions
        elif topic is not None and topic.id in state.deleting:
            doomed[topic.id] = topic.partitions
        else:
            refused.append(
                topic_response(
                    topic_name=asked.topic_name,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message="This server does not host this topic-partition."
                    if topic is None
                    else "There is no offset information to delete.",
                )
            )
    records = []
    if doomed:
        records.append(write.state_partitions(group.group_id, state.deletion_begun(doomed, image)))
    return CoordinatorResult(records, Deletion(refused, _delete_request(group.group_id, doomed)))


def begin_delete_all(group: ShareGroup, image: MetadataImage) -> CoordinatorResult[Message | None]:
    """Delete all share state of a group that is about to go. Raises NON_EMPTY_GROUP."""
    group.validate_delete()
    state = group.state_partitions
    if state is None:
        return CoordinatorResult([], None)
    doomed: dict[bytes, Iterable[int]] = {
        topic_id: topic.partitions
        for topic_id, topic in joined(state.initialized, state.initializing).items()
    }
    for topic_id in state.deleting:
        topic = image.topics.by_id.get(topic_id)
        if topic is not None:
            doomed[topic_id] = topic.partitions
    return CoordinatorResult(
        [write.state_partitions(group.group_id, state.deletion_begun(doomed, image))],
        _delete_request(group.group_id, doomed),
    )


def _delete_request(group_id: str, doomed: Mapping[bytes, Iterable[int]]) -> Message | None:
    if not doomed:
        return None
    request = messages.DeleteShareGroupStateRequest
    return request(
        group_id=group_id,
        topics=[
            request.DeleteStateData(
                topic_id=topic_id,
                partitions=[request.PartitionData(partition=number) for number in sorted(numbers)],
            )
            for topic_id, numbers in doomed.items()
        ],
    )
