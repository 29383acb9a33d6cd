"""Configures a topology by the topics that exist: its tasks, and the internal topics that have to be created.

A pure function: partition counts come from a function of the topic's name, and the API creates topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ottla.coordinator.group.streams.status import Status, StatusCode
from ottla.coordinator.group.streams.topology import Subtopology, TopicInfo, Topology, describe_subtopology
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.wire.messages import StreamsGroupDescribeResponse

PartitionCount = Callable[[TopicName], int | None]
"""How many partitions a topic has; None if it does not exist."""

_NAMED_IN_A_SENTENCE = 3


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology whose internal topics have their final partition counts."""

    subtopology: Subtopology
    task_count: int
    repartition_source_topics: tuple[TopicInfo, ...]
    state_changelog_topics: tuple[TopicInfo, ...]

    @property
    def stateful(self) -> bool:
        return bool(self.state_changelog_topics)


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A configured topology: its tasks can be assigned when `problem` is None."""

    epoch: int
    metadata_hash: int
    subtopologies: Mapping[str, ConfiguredSubtopology]
    """Sorted by id; empty if the topics do not fit."""
    topics_to_create: Mapping[TopicName, TopicInfo] = field(default_factory=dict)
    problem: Status | None = None

    @property
    def ready(self) -> bool:
        return self.problem is None


class _DoesNotFitError(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def configure(topology: Topology, metadata_hash: int, partition_count: PartitionCount) -> ConfiguredTopology:
    """Configure a topology. Raises STREAMS_INVALID_TOPOLOGY for one that is invalid with any topics."""
    try:
        _check_source_topics(topology, partition_count)
        decided = _decide_partition_counts(topology, partition_count)
        configured = {
            id_: _configure_one(one, _Counts(partition_count, decided))
            for id_, one in sorted(topology.subtopologies.items())
        }
        missing = _missing_internal_topics(configured.values(), partition_count)
    except _DoesNotFitError as error:
        return ConfiguredTopology(topology.epoch, metadata_hash, {}, {}, error.status)
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_summarize(missing)}"
        problem = Status(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology.epoch, metadata_hash, configured, missing, problem)


@dataclass(slots=True)
class _Counts:
    """Partition counts of existing topics, else those decided so far."""

    existing: PartitionCount
    decided: dict[TopicName, int] = field(default_factory=dict)

    def get(self, topic: TopicName) -> int | None:
        count = self.existing(topic)
        return self.decided.get(topic) if count is None else count

    def require(self, topic: TopicName) -> int:
        count = self.get(topic)
        if count is None:
            raise _invalid(f"The number of partitions of topic {topic} cannot be decided.")
        return count


def _invalid(message: str) -> ApiException:
    return ApiException(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _check_source_topics(topology: Topology, partition_count: PartitionCount) -> None:
    missing = {
        topic
        for one in topology.subtopologies.values()
        for topic in one.source_topics
        if partition_count(topic) is None
    }
    if missing:
        detail = f"Source topics {_summarize(sorted(missing))} are missing."
        raise _DoesNotFitError(StatusCode.MISSING_SOURCE_TOPICS, detail)


def _decide_partition_counts(topology: Topology, partition_count: PartitionCount) -> dict[TopicName, int]:
    subtopologies = topology.subtopologies.values()
    decided = _repartition_counts(subtopologies, partition_count)
    for one in subtopologies:
        for topic in one.repartition_source_topics:
            if topic.name not in decided:
                raise _invalid(f"Repartition topic {topic.name} is read, but no subtopology writes to it.")
    counts = _Counts(partition_count, decided)
    fixed = {
        topic.name for one in subtopologies for topic in one.repartition_source_topics if topic.partitions
    }
    repartition = {topic.name for one in subtopologies for topic in one.repartition_source_topics}
    for one in subtopologies:
        for group in one.copartitioned():
            decided.update(_enforce_copartitioning(group, repartition, fixed, counts))
    for one in subtopologies:
        inputs = [counts.require(topic) for topic in one.input_topics()]
        if not inputs:
            raise _invalid(f"No source topics found for subtopology {one.id}")
        decided.update((topic.name, max(inputs)) for topic in one.state_changelog_topics)
    return decided


def _repartition_counts(
    subtopologies: Iterable[Subtopology], partition_count: PartitionCount
) -> dict[TopicName, int]:
    """A repartition topic without a count gets the highest count of the topics that its writer reads."""
    counts = {
        topic.name: topic.partitions
        for one in subtopologies
        for topic in one.repartition_source_topics
        if topic.partitions
    }
    open_sinks = [
        (sink, one) for one in subtopologies for sink in one.repartition_sink_topics if sink not in counts
    ]
    while open_sinks:
        still_open = []
        for sink, one in open_sinks:
            inputs = [counts.get(topic.name) for topic in one.repartition_source_topics]
            inputs += [partition_count(topic) for topic in one.source_topics]
            known = [count for count in inputs if count is not None]
            if sink in counts:
                continue
            if known:
                counts[sink] = max(known)
            else:
                still_open.append((sink, one))
        if len(still_open) == len(open_sinks):
            raise _invalid(
                "Failed to compute the number of partitions of all repartition topics: the topology has a loop."
            )
        open_sinks = still_open
    return counts


def _enforce_copartitioning(
    group: set[TopicName], repartition: set[TopicName], fixed: set[TopicName], counts: _Counts
) -> dict[TopicName, int]:
    """The counts of a group's repartition topics: those of its other topics, else of its fixed ones."""
    if not group:
        return {}
    inner = {topic: counts.require(topic) for topic in sorted(group & repartition)}
    outer = {topic: counts.require(topic) for topic in sorted(group - repartition)}
    leading = outer or {topic: count for topic, count in inner.items() if topic in fixed}
    if len(set(leading.values())) > 1:
        raise _DoesNotFitError(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            "Following topics do not have the same number of partitions: ["
            + ", ".join(f"{topic}={count}" for topic, count in (outer or inner).items())
            + "]",
        )
    wanted = next(iter(leading.values())) if leading else max(inner.values())
    for topic, count in inner.items():
        if topic in fixed and count != wanted:
            raise _DoesNotFitError(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{count}] of repartition topic [{topic}] "
                f"doesn't match number of partitions [{wanted}] of the source topic.",
            )
    return dict.fromkeys(inner, wanted)


def _configure_one(subtopology: Subtopology, counts: _Counts) -> ConfiguredSubtopology:
    def final(topic: TopicInfo) -> TopicInfo:
        return topic if topic.partitions else replace(topic, partitions=counts.decided[topic.name])

    return ConfiguredSubtopology(
        subtopology,
        max(counts.require(topic) for topic in subtopology.input_topics()),
        tuple(map(final, subtopology.repartition_source_topics)),
        tuple(map(final, subtopology.state_changelog_topics)),
    )


def _missing_internal_topics(
    configured: Iterable[ConfiguredSubtopology], partition_count: PartitionCount
) -> dict[TopicName, TopicInfo]:
    missing = {}
    for one in configured:
        for topic in one.repartition_source_topics + one.state_changelog_topics:
            existing = partition_count(topic.name)
            if existing is None:
                missing[topic.name] = topic
            elif existing != topic.partitions:
                raise _DoesNotFitError(
                    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Existing topic {topic.name} has different number of partitions: "
                    f"expected {topic.partitions}, found {existing}",
                )
    return missing


def _summarize(topics: Iterable[str]) -> str:
    names = list(topics)
    shown = ", ".join(names[:_NAMED_IN_A_SENTENCE])
    more = len(names) - _NAMED_IN_A_SENTENCE
    return f"{shown} and {more} additional topics" if more > 0 else shown


def describe_configured(configured: ConfiguredTopology) -> StreamsGroupDescribeResponse.Topology:
    """For StreamsGroupDescribe, with the final partition counts."""
    return StreamsGroupDescribeResponse.Topology(
        epoch=configured.epoch,
        subtopologies=[
            describe_subtopology(one.subtopology, one.repartition_source_topics, one.state_changelog_topics)
            for one in configured.subtopologies.values()
        ],
    )
