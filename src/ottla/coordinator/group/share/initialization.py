"""Initializes the share state of a group's partitions: what is missing, the request, and its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.coordinator.group.share import records as write
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.state_partitions import StatePartitions, TopicPartitions, Topics, name_of
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.ids import TopicName
from ottla.metadata.image import MetadataImage
from ottla.wire import messages

_NO_OFFSET = -1


class StateRequests(NamedTuple):
    """When share state was last requested, by group and topic, and after how long it is requested again."""

    at_ms: dict[tuple[str, bytes], int]
    retry_interval_ms: int


def begin_initialization(
    group: ShareGroup,
    topics: Iterable[TopicName],
    epoch: int,
    image: MetadataImage,
    records: list[CoordinatorRecord],
    now_ms: int,
    requests: StateRequests,
) -> messages.InitializeShareGroupStateRequest | None:
    """The request for share state that subscribed topics lack, if any; adds the record of the request."""
    missing = _missing(group, topics, image, now_ms, requests)
    if not missing:
        return None
    state = group.state_partitions or StatePartitions()
    records.append(write.state_partitions(group.group_id, state.begun(missing)))
    requests.at_ms.update(((group.group_id, topic_id), now_ms) for topic_id in missing)
    offsets = {
        topic_id: dict.fromkeys(sorted(topic.partitions), _NO_OFFSET) for topic_id, topic in missing.items()
    }
    return initialize_request(group.group_id, epoch, offsets)


def _missing(
    group: ShareGroup, topics: Iterable[TopicName], image: MetadataImage, now_ms: int, requests: StateRequests
) -> Topics:
    state = group.state_partitions or StatePartitions()
    missing: dict[bytes, TopicPartitions] = {}
    for name in topics:
        topic = image.topics.by_name.get(name)
        if topic is None:
            continue
        wanted = frozenset(topic.partitions)
        if topic.id in state.initialized:
            wanted -= state.initialized[topic.id].partitions
        pending = state.initializing.get(topic.id)
        requested_ms = requests.at_ms.get((group.group_id, topic.id), 0)
        # A time in the future comes from a wrong clock: see `ModernGroup.assigned_recently`.
        if pending is not None and abs(now_ms - requested_ms) < requests.retry_interval_ms:
            wanted -= pending.partitions
        if wanted:
            missing[topic.id] = TopicPartitions(name, wanted)
    return missing


def initialize_request(
    group_id: str, epoch: int, offsets: Mapping[bytes, Mapping[int, int]]
) -> messages.InitializeShareGroupStateRequest:
    """Start share partitions at offsets (-1: by `share.auto.offset.reset`) in a state epoch."""
    request = messages.InitializeShareGroupStateRequest
    return request(
        group_id=group_id,
        topics=[
            request.InitializeStateData(
                topic_id=topic_id,
                partitions=[
                    request.PartitionData(partition=number, state_epoch=epoch, start_offset=offset)
                    for number, offset in partitions.items()
                ],
            )
            for topic_id, partitions in offsets.items()
        ],
    )


def end_initialization(
    group: ShareGroup, response: messages.InitializeShareGroupStateResponse, image: MetadataImage
) -> CoordinatorResult[None]:
    """Write which share state is initialized now, and which could not be."""
    done: dict[bytes, TopicPartitions] = {}
    failed: dict[bytes, TopicPartitions] = {}
    for topic in response.results:
        for into, wanted in ((done, False), (failed, True)):
            numbers = frozenset(
                part.partition for part in topic.partitions if bool(part.error_code) is wanted
            )
            if numbers:
                into[topic.topic_id] = TopicPartitions(name_of(topic.topic_id, image), numbers)
    before = group.state_partitions or StatePartitions()
    after = before.done(done).failed(failed)
    return CoordinatorResult([] if after == before else [write.state_partitions(group.group_id, after)], None)
