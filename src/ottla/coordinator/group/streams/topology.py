"""A Streams application's topology as its members describe it: the topics that each subtopology reads and writes.

`configure.py` decides how many partitions its internal topics get.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.ids import TopicName
from ottla.wire.messages import (
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyValue,
)

_SubtopologyMessage = StreamsGroupHeartbeatRequest.Subtopology | StreamsGroupTopologyValue.Subtopology
_TopicInfoMessage = StreamsGroupHeartbeatRequest.TopicInfo | StreamsGroupTopologyValue.TopicInfo


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """An internal topic of the application; with 0 partitions or replicas the broker chooses the number."""

    name: TopicName
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopartitionGroup:
    """Topics that must have the same number of partitions, as positions in their subtopology's lists."""

    source_topics: tuple[int, ...]
    source_topic_regex: tuple[int, ...]
    repartition_source_topics: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of the topology that exchanges data with others only through repartition topics."""

    id: str
    source_topics: tuple[TopicName, ...]
    source_topic_regex: tuple[str, ...]
    repartition_sink_topics: tuple[TopicName, ...]
    repartition_source_topics: tuple[TopicInfo, ...]
    state_changelog_topics: tuple[TopicInfo, ...]
    copartition_groups: tuple[CopartitionGroup, ...]

    def input_topics(self) -> Iterator[TopicName]:
        """All topics that it reads: their highest partition count is its number of tasks."""
        yield from self.source_topics
        for topic in self.repartition_source_topics:
            yield topic.name

    def copartitioned(self) -> list[set[TopicName]]:
        return [
            {self.source_topics[index] for index in group.source_topics}
            | {self.repartition_source_topics[index].name for index in group.repartition_source_topics}
            for group in self.copartition_groups
        ]


@dataclass(frozen=True, slots=True)
class Topology:
    """All subtopologies of an application, by id."""

    epoch: int
    subtopologies: Mapping[str, Subtopology]
    _by_source_topic: dict[TopicName, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_topic = {topic: one.id for one in self.subtopologies.values() for topic in one.input_topics()}
        object.__setattr__(self, "_by_source_topic", by_topic)

    def subtopology_of(self, topic: TopicName) -> str | None:
        """The id of the subtopology that reads a topic."""
        return self._by_source_topic.get(topic)

    def required_topics(self) -> set[TopicName]:
        """The topics that must exist before tasks can be assigned."""
        topics = set(self._by_source_topic)
        for subtopology in self.subtopologies.values():
            topics.update(topic.name for topic in subtopology.state_changelog_topics)
        return topics


def parse_topology(message: StreamsGroupHeartbeatRequest.Topology | StreamsGroupTopologyValue) -> Topology:
    """The topology in a heartbeat or a record, which have the same fields."""
    subtopologies: Sequence[_SubtopologyMessage] = message.subtopologies
    return Topology(message.epoch, {one.subtopology_id: _subtopology(one) for one in subtopologies})


def _subtopology(message: _SubtopologyMessage) -> Subtopology:
    return Subtopology(
        id=message.subtopology_id,
        source_topics=tuple(map(TopicName, message.source_topics)),
        source_topic_regex=tuple(message.source_topic_regex),
        repartition_sink_topics=tuple(map(TopicName, message.repartition_sink_topics)),
        repartition_source_topics=tuple(map(_topic_info, message.repartition_source_topics)),
        state_changelog_topics=tuple(map(_topic_info, message.state_changelog_topics)),
        copartition_groups=tuple(
            CopartitionGroup(
                tuple(group.source_topics),
                tuple(group.source_topic_regex),
                tuple(group.repartition_source_topics),
            )
            for group in message.copartition_groups
        ),
    )


def _topic_info(message: _TopicInfoMessage) -> TopicInfo:
    return TopicInfo(
        TopicName(message.name),
        message.partitions,
        message.replication_factor,
        tuple((config.key, config.value) for config in message.topic_configs),
    )


def topology_value(topology: Topology) -> StreamsGroupTopologyValue:
    """The value of a topology's record."""
    value = StreamsGroupTopologyValue
    return value(
        epoch=topology.epoch,
        subtopologies=[
            value.Subtopology(
                subtopology_id=one.id,
                source_topics=list(one.source_topics),
                source_topic_regex=list(one.source_topic_regex),
                repartition_sink_topics=list(one.repartition_sink_topics),
                repartition_source_topics=[_info_value(topic) for topic in one.repartition_source_topics],
                state_changelog_topics=[_info_value(topic) for topic in one.state_changelog_topics],
                copartition_groups=[
                    value.CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in one.copartition_groups
                ],
            )
            for one in topology.subtopologies.values()
        ],
    )


def _info_value(topic: TopicInfo) -> StreamsGroupTopologyValue.TopicInfo:
    value = StreamsGroupTopologyValue
    return value.TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[value.TopicConfig(key=key, value=text) for key, text in topic.configs],
    )


def describe_topology(topology: Topology) -> StreamsGroupDescribeResponse.Topology:
    """For StreamsGroupDescribe, as the application sent it."""
    response = StreamsGroupDescribeResponse
    return response.Topology(
        epoch=topology.epoch,
        subtopologies=[
            describe_subtopology(one, one.repartition_source_topics, one.state_changelog_topics)
            for _, one in sorted(topology.subtopologies.items())
        ],
    )


def describe_subtopology(
    subtopology: Subtopology, repartition: tuple[TopicInfo, ...], changelog: tuple[TopicInfo, ...]
) -> StreamsGroupDescribeResponse.Subtopology:
    """For StreamsGroupDescribe, with internal topics that may have their final partition counts."""
    return StreamsGroupDescribeResponse.Subtopology(
        subtopology_id=subtopology.id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        repartition_source_topics=_described_topics(repartition),
        state_changelog_topics=_described_topics(changelog),
    )


def _described_topics(topics: tuple[TopicInfo, ...]) -> list[StreamsGroupDescribeResponse.TopicInfo]:
    response = StreamsGroupDescribeResponse
    return [
        response.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[response.KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]
