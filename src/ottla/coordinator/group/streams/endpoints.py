"""The endpoints of a group's members and the partitions that can be queried there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.coordinator.group.streams.configure import ConfiguredSubtopology, PartitionCount
from ottla.coordinator.group.streams.member import StreamsMember
from ottla.coordinator.group.streams.tasks import TaskId, by_subtopology
from ottla.wire.messages import StreamsGroupHeartbeatResponse


def endpoints_to_partitions(
    members: Iterable[StreamsMember],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    partition_count: PartitionCount,
) -> list[StreamsGroupHeartbeatResponse.EndpointToPartitions]:
    """One entry per member that has an endpoint."""
    response = StreamsGroupHeartbeatResponse
    return [
        response.EndpointToPartitions(
            user_endpoint=response.Endpoint(host=member.user_endpoint.host, port=member.user_endpoint.port),
            active_partitions=_partitions(member.assigned.active, subtopologies, partition_count),
            standby_partitions=_partitions(member.assigned.standby, subtopologies, partition_count),
        )
        for member in members
        if member.user_endpoint is not None
    ]


def _partitions(
    tasks: Iterable[TaskId],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    partition_count: PartitionCount,
) -> list[StreamsGroupHeartbeatResponse.TopicPartition]:
    """The input partitions of tasks; a topic may have fewer partitions than its subtopology has tasks."""
    response = StreamsGroupHeartbeatResponse
    found = []
    for subtopology_id, numbers in by_subtopology(tasks).items():
        configured = subtopologies.get(subtopology_id)
        if configured is None:
            continue
        for topic in sorted(set(configured.subtopology.input_topics())):
            count = partition_count(topic) or 0
            found.append(
                response.TopicPartition(
                    topic=topic, partitions=[number for number in numbers if number < count]
                )
            )
    return found
