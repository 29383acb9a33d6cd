"""The admin client's part about partitions: where their replicas are, who leads, and which offsets they hold."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.client.admin_connections import to_dict
from ottla.client.admin_topic_view import Partitions, TopicView, by_topic
from ottla.client.broker_errors import NotLeaderForPartitionError
from ottla.client.errors import BrokerResponseError, for_code
from ottla.client.structs import OffsetAndTimestamp, TopicPartition
from ottla.wire import messages as m
from ottla.wire.enums import ElectionType, IsolationLevel, OffsetSpec

_AGAIN_S = 0.05
_ELECTION_NOT_NEEDED = 84


class OffsetTimestamp(int):
    """Milliseconds since the epoch, where a bare number would be an offset."""


class PartitionAdmin(TopicView):
    """Move partitions, elect leaders, look up offsets."""

    def elect_leaders(
        self,
        election_type: ElectionType | int,
        topic_partitions: Partitions = None,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> dict[str, Any]:
        """Elect leaders of these partitions, of these topics, or of all; that none was needed is no error."""
        kind = m.ElectLeadersRequest
        request = kind(
            election_type=ElectionType(election_type),
            topic_partitions=[
                kind.TopicPartitions(topic=name, partitions=numbers)
                for name, numbers in self._partitions(topic_partitions).items()
            ],
            timeout_ms=self._timeout_ms(timeout_ms),
        )
        answer, version = self._connections.ask(request)
        if raise_errors:
            if answer.error_code:
                raise for_code(answer.error_code)("no leaders are elected")
            for topic in answer.replica_election_results:
                for one in topic.partition_result:
                    if one.error_code not in (0, _ELECTION_NOT_NEEDED):
                        where = f"{topic.topic}-{one.partition_id}"
                        raise for_code(one.error_code)(
                            f"{where}: {one.error_message or 'no leader is elected'}"
                        )
        return to_dict(answer, version)

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int | None = None
    ) -> dict[TopicPartition, type[BrokerResponseError] | None]:
        """Have partitions on these brokers, or with None no longer move: None or the error for each."""
        for tp, replicas in reassignments.items():
            if replicas is not None and not (replicas and all(isinstance(one, int) for one in replicas)):
                raise ValueError(
                    f"{tp.topic}-{tp.partition}: expected ids of brokers, or None to cancel a move"
                )
        kind = m.AlterPartitionReassignmentsRequest
        topics: dict[str, list[Any]] = {}
        for tp, replicas in reassignments.items():
            places = None if replicas is None else list(replicas)
            entry = kind.ReassignablePartition(partition_index=tp.partition, replicas=places)
            topics.setdefault(tp.topic, []).append(entry)
        request = kind(
            timeout_ms=self._timeout_ms(timeout_ms),
            topics=[kind.ReassignableTopic(name=name, partitions=own) for name, own in topics.items()],
        )
        answer, _ = self._connections.ask(request)
        if answer.error_code:
            raise for_code(answer.error_code)(answer.error_message or "the partitions are not moved")
        return {
            TopicPartition(topic.name, one.partition_index): for_code(one.error_code)
            if one.error_code
            else None
            for topic in answer.responses
            for one in topic.partitions
        }

    def list_partition_reassignments(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, dict[str, list[int]]]:
        """The moves that are going on, of these partitions or of all."""
        kind = m.ListPartitionReassignmentsRequest
        wanted = None
        if topic_partitions is not None:
            given = topic_partitions
            named = given if isinstance(given, Mapping) else by_topic(given)
            wanted = [
                kind.ListPartitionReassignmentsTopics(name=name, partition_indexes=list(numbers))
                for name, numbers in named.items()
            ]
        answer, _ = self._connections.ask(kind(timeout_ms=self._timeout_ms(timeout_ms), topics=wanted))
        if answer.error_code:
            raise for_code(answer.error_code)(answer.error_message or "the moves cannot be listed")
        return {
            TopicPartition(topic.name, one.partition_index): {
                "replicas": list(one.replicas),
                "adding_replicas": list(one.adding_replicas),
                "removing_replicas": list(one.removing_replicas),
            }
            for topic in answer.topics
            for one in topic.partitions
        }

    def describe_topic_partitions(
        self,
        topics: Iterable[str],
        response_partition_limit: int = 2000,
        cursor: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Topics with their eligible leaders, a page at a time; `next_cursor` leads to the next page."""
        kind = m.DescribeTopicPartitionsRequest
        request = kind(
            topics=[kind.TopicRequest(name=name) for name in topics],
            response_partition_limit=response_partition_limit,
            cursor=None if cursor is None else kind.Cursor(**cursor),
        )
        answer, version = self._connections.ask(request)
        told = to_dict(answer, version)
        return {"topics": told["topics"], "next_cursor": told["next_cursor"]}

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        isolation_level: IsolationLevel | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by an OffsetSpec or a timestamp. Who has just lost a partition is not asked again."""
        level = IsolationLevel(isolation_level)
        deadline = time.monotonic() + self._timeout_ms(timeout_ms) / 1000
        while True:
            try:
                return self._offsets_at(topic_partition_specs, level)
            except NotLeaderForPartitionError:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(_AGAIN_S)

    def _offsets_at(
        self, specs: Mapping[TopicPartition, OffsetSpec | int], level: IsolationLevel
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        kind = m.ListOffsetsRequest
        found = {}
        for leader, partitions in self._by_leader(specs).items():
            request = kind(
                replica_id=-1,
                isolation_level=level,
                topics=[
                    kind.ListOffsetsTopic(
                        name=name,
                        partitions=[
                            kind.ListOffsetsPartition(
                                partition_index=number, timestamp=int(specs[TopicPartition(name, number)])
                            )
                            for number in numbers
                        ],
                    )
                    for name, numbers in by_topic(partitions).items()
                ],
            )
            answer, _ = self._connections.ask(request, leader)
            for topic in answer.topics:
                for one in topic.partitions:
                    if one.error_code:
                        raise for_code(one.error_code)(f"{topic.name}-{one.partition_index}")
                    found[TopicPartition(topic.name, one.partition_index)] = OffsetAndTimestamp(
                        one.offset, one.timestamp, one.leader_epoch if one.leader_epoch >= 0 else None
                    )
        return found
