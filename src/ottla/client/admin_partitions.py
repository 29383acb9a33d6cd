"""The admin client's methods for partitions: their replicas, leaders and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from ottla.admin import partitions as requests
from ottla.admin import reassignments as moves
from ottla.admin import topics as topic_requests
from ottla.client.admin_base import AdminBase, Partitions
from ottla.client.errors import BrokerResponseError, for_code
from ottla.client.plain_data import Document
from ottla.client.structs import OffsetAndTimestamp, TopicPartition
from ottla.errors import ErrorCode
from ottla.wire.enums import ElectionType, IsolationLevel, OffsetSpec


class OffsetTimestamp(int):
    """Milliseconds since the epoch, in places where a bare number would be an offset.

    >>> from ottla import OffsetTimestamp
    >>> OffsetTimestamp(1_700_000_000_000) + 1
    1700000000001
    """


class Cursor(TypedDict):
    """Where the next page of `describe_topic_partitions` starts."""

    topic_name: str
    partition_index: int


class TopicPage(TypedDict):
    """A page of topics, and where the next page starts."""

    topics: list[Document]
    next_cursor: Cursor | None


class OngoingReassignment(TypedDict):
    """A partition that is being moved."""

    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]


class PartitionAdmin(AdminBase):
    """Move partitions, elect leaders, look up offsets."""

    def elect_leaders(
        self,
        election_type: ElectionType | int,
        topic_partitions: Partitions = None,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> Document:
        """Elect leaders of these partitions, of these topics, or of all. ELECTION_NOT_NEEDED is not an error.

        >>> from ottla import ElectionType
        >>> admin.elect_leaders(ElectionType.PREFERRED, {"orders": [0]})["error_code"]
        0
        """
        response = self._run(
            requests.elect_leaders,
            ElectionType(election_type),
            self._partitions(topic_partitions),
            self._timeout_ms(timeout_ms),
        )
        if raise_errors:
            if response.error_code:
                raise for_code(response.error_code)("no leaders are elected")
            for topic in response.replica_election_results:
                for one in topic.partition_result:
                    if one.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                        text = one.error_message or "no leader is elected"
                        raise for_code(one.error_code)(f"{topic.topic}-{one.partition_id}: {text}")
        return self._to_dict(response)

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int | None = None
    ) -> dict[TopicPartition, type[BrokerResponseError] | None]:
        """Move partitions to these brokers, or cancel a move with None: None or the error for each.

        >>> from ottla import TopicPartition
        >>> admin.alter_partition_reassignments({TopicPartition("orders", 0): [1]})
        {TopicPartition(topic='orders', partition=0): None}
        """
        for tp, replicas in reassignments.items():
            if replicas is not None and not (replicas and all(isinstance(one, int) for one in replicas)):
                raise ValueError(
                    f"{tp.topic}-{tp.partition}: expected ids of brokers, or None to cancel a move"
                )
        results = self._run(moves.alter_reassignments, reassignments, timeout_ms=self._timeout_ms(timeout_ms))
        return {
            TopicPartition(*partition): for_code(code) if code else None
            for partition, (code, _) in results.items()
        }

    def list_partition_reassignments(
        self,
        topic_partitions: Mapping[str, Iterable[int]] | Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OngoingReassignment]:
        """The moves in progress, of these partitions or of all.

        >>> admin.list_partition_reassignments()
        {}
        """
        wanted: list[tuple[str, int]] | None = None
        if isinstance(topic_partitions, Mapping):
            wanted = [(name, number) for name, numbers in topic_partitions.items() for number in numbers]
        elif topic_partitions is not None:
            wanted = [*topic_partitions]
        found = self._run(moves.list_reassignments, wanted, self._timeout_ms(timeout_ms))
        return {
            TopicPartition(*partition): {
                "replicas": one.replicas,
                "adding_replicas": one.adding,
                "removing_replicas": one.removing,
            }
            for partition, one in found.items()
        }

    def describe_topic_partitions(
        self,
        topics: Iterable[str],
        response_partition_limit: int = topic_requests.PARTITIONS_PER_RESPONSE,
        cursor: Cursor | None = None,
    ) -> TopicPage:
        """Topics with their eligible leaders, one page at a time; `next_cursor` leads to the next page.

        >>> page = admin.describe_topic_partitions(["orders"])
        >>> page["topics"][0]["partitions"][0]["leader_id"], page["next_cursor"]
        (1, None)
        """
        start = None if cursor is None else (cursor["topic_name"], cursor["partition_index"])
        response = self._run(topic_requests.describe_topic_page, topics, response_partition_limit, start)
        document = self._to_dict(response)
        return {"topics": document["topics"], "next_cursor": document["next_cursor"]}

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        isolation_level: IsolationLevel | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by an OffsetSpec or a timestamp. While a partition changes its leader, the lookup is retried.

        >>> from ottla import OffsetSpec, TopicPartition
        >>> first = TopicPartition("orders", 0)
        >>> admin.list_partition_offsets({first: OffsetSpec.LATEST})[first].offset
        1
        """
        found = self._run(
            requests.find_offsets,
            {tp: int(spec) for tp, spec in topic_partition_specs.items()},
            IsolationLevel(isolation_level),
            self._timeout_ms(timeout_ms) / 1000,
        )
        return {
            TopicPartition(*partition): OffsetAndTimestamp(
                one.offset, one.timestamp, one.leader_epoch if one.leader_epoch >= 0 else None
            )
            for partition, one in found.items()
        }
