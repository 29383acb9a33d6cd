"""A cluster as large as those that freeze other consoles: thousands of topics, and groups that have committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.admin.settings import ClusterSettings
from ottla.cli.tools.base import parse_bootstrap
from ottla.ids import GroupId, TopicName
from ottla.wire.messages import CreateTopicsRequest, OffsetCommitRequest

_TOPICS_A_REQUEST = 100
_COMMIT_VERSION = 9
_TOPICS_A_GROUP = 4


@dataclass(frozen=True, slots=True)
class LargeCluster:
    """How many topics, partitions of each, and groups."""

    topics: int = 10_000
    partitions_each: int = 4
    groups: int = 2_200

    @property
    def partitions(self) -> int:
        return self.topics * self.partitions_each

    def build(self, bootstrap: str) -> None:
        """Create the topics, and let every group commit an offset of each partition of some topics."""
        cluster = Cluster(ClusterSettings(bootstrap=tuple(parse_bootstrap(bootstrap)), request_timeout_s=300))
        try:
            for request in self._creations():
                for topic in cluster.ask(request).topics:
                    assert topic.error_code == 0, (topic.name, topic.error_message)
            # On a busy machine the coordinators are not there yet: their logs are among 10,000 new topics.
            cluster.retrying(lambda: self._commit(cluster))
        finally:
            cluster.close()

    def _commit(self, cluster: Cluster) -> None:
        by_coordinator = cluster.coordinators([self.group(each) for each in range(self.groups)])
        for coordinator, groups in by_coordinator.items():
            for request in self._commits(groups):
                for answered in cluster.ask(request, coordinator, _COMMIT_VERSION).topics:
                    for each in answered.partitions:
                        raise_for(each.error_code, None, f"{request.group_id}: {answered.name}")

    def name(self, number: int) -> str:
        return f"large-{number:05}"

    def group(self, number: int) -> str:
        return f"group-{number:04}"

    def _creations(self) -> Iterator[CreateTopicsRequest]:
        kind = CreateTopicsRequest
        for start in range(0, self.topics, _TOPICS_A_REQUEST):
            numbers = range(start, min(start + _TOPICS_A_REQUEST, self.topics))
            topics = [
                kind.CreatableTopic(
                    name=TopicName(self.name(each)),
                    num_partitions=self.partitions_each,
                    replication_factor=1,
                )
                for each in numbers
            ]
            yield kind(topics=topics, timeout_ms=300_000)

    def _commits(self, groups: Iterable[str]) -> Iterator[OffsetCommitRequest]:
        kind = OffsetCommitRequest
        for group in groups:
            number = int(group.rpartition("-")[2])
            topics = [
                kind.OffsetCommitRequestTopic(
                    name=TopicName(self.name((number * _TOPICS_A_GROUP + each) % self.topics)),
                    partitions=[
                        kind.OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=0, committed_metadata=""
                        )
                        for index in range(self.partitions_each)
                    ],
                )
                for each in range(_TOPICS_A_GROUP)
            ]
            yield kind(group_id=GroupId(group), topics=topics)
