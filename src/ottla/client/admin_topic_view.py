"""What several parts of the admin client ask of topics: their partitions, and who leads those."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.client.admin_connections import Connections, to_dict
from ottla.client.errors import for_code
from ottla.client.structs import TopicPartition
from ottla.wire import messages as m

_UNKNOWN_PARTITION = 3

Partitions = Mapping[str, Iterable[int]] | Iterable[str] | None
"""Partitions by topic, the names of topics, or None for everything."""


class TopicView:
    """Topics as they are."""

    _connections: Connections
    config: Any

    def describe_topics(self, topics: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Topics with their partitions, leaders and replicas; all of them, if none is named."""
        wanted = None
        if topics is not None:
            wanted = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = m.MetadataRequest(
            topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=True
        )
        answer, version = self._connections.ask(request)
        described: list[dict[str, Any]] = to_dict(answer, version)["topics"]
        return described

    def _partitions(self, given: Partitions) -> dict[str, list[int]]:
        """Numbers of partitions by topic; all of a topic that is only named."""
        if isinstance(given, Mapping):
            return {name: list(numbers) for name, numbers in given.items()}
        return {
            topic["name"]: [one["partition_index"] for one in topic["partitions"]]
            for topic in self.describe_topics(None if given is None else list(given))
        }

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        wanted = list(partitions)
        leaders: dict[TopicPartition, int] = {}
        for topic in self.describe_topics(sorted({tp.topic for tp in wanted})):
            if topic["error_code"]:
                raise for_code(topic["error_code"])(topic["name"])
            for one in topic["partitions"]:
                leaders[TopicPartition(topic["name"], one["partition_index"])] = one["leader_id"]
        grouped = defaultdict(list)
        for tp in wanted:
            if tp not in leaders:
                raise for_code(_UNKNOWN_PARTITION)(f"{tp.topic}-{tp.partition}")
            grouped[leaders[tp]].append(tp)
        return grouped

    def _timeout_ms(self, given: float | None) -> int:
        return int(given or self.config["request_timeout_ms"])


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Numbers of partitions by topic."""
    grouped = defaultdict(list)
    for tp in partitions:
        grouped[tp.topic].append(tp.partition)
    return dict(grouped)
