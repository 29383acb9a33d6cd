"""KafkaAdminClient: kafka-python's interface to what a cluster is told to do, over the wire protocol.

Answers are plain data with the protocol's own names, as kafka-python gives them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from ottla.client.admin_acls import AclAdmin
from ottla.client.admin_cluster import ClusterAdmin
from ottla.client.admin_configs import ConfigAdmin
from ottla.client.admin_connections import Connections, to_dict
from ottla.client.admin_groups import GroupAdmin
from ottla.client.admin_partitions import PartitionAdmin
from ottla.client.admin_transactions import TransactionAdmin
from ottla.client.admin_types import NewPartitions, NewTopic
from ottla.client.admin_users import UserAdmin
from ottla.client.errors import KafkaTimeoutError, for_code
from ottla.client.settings import COMMON, merge
from ottla.client.structs import TopicPartition
from ottla.wire import messages as m

_READY_POLL_S = 0.02
_EARLIEST, _LATEST = -2, -1


class KafkaAdminClient(
    ConfigAdmin, GroupAdmin, PartitionAdmin, ClusterAdmin, TransactionAdmin, AclAdmin, UserAdmin
):
    """Topics, partitions, records, configurations, groups, transactions and users of a cluster."""

    DEFAULT_CONFIG = COMMON

    def __init__(self, **configs: Any) -> None:
        self.config = merge(COMMON, configs, "KafkaAdminClient")
        self._connections = Connections(self.config)

    # -- topics

    def list_topics(self) -> list[str]:
        """The names of all topics."""
        return [topic["name"] for topic in self.describe_topics()]

    def create_topics(
        self,
        new_topics: Iterable[NewTopic | str] | Mapping[str, Mapping[str, Any]],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> dict[str, Any]:
        """Create topics: names, NewTopics, or a dict of names to their options (`num_partitions`,
        `replication_factor`, `assignments`, `configs`)."""
        if validate_only and wait_for_metadata:
            raise ValueError("what is only validated will not appear: validate_only or wait_for_metadata")
        topics = [_creatable(topic) for topic in _new_topics(new_topics)]
        if not topics:
            raise ValueError("no topics to create")
        request = m.CreateTopicsRequest(
            topics=topics, timeout_ms=self._timeout_ms(timeout_ms), validate_only=validate_only
        )
        answer, version = self._ask_controller(request)
        told = to_dict(answer, version)
        told.pop("throttle_time_ms", None)
        _raise_first(told["topics"], raise_errors)
        if wait_for_metadata:
            self.wait_for_topics([topic.name for topic in topics])
        return told

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = 10_000) -> None:
        """Wait until each partition of these topics has a leader."""
        names = list(topic_names)
        deadline = time.monotonic() + timeout_ms / 1000
        while names:
            if all(
                topic["error_code"] == 0 and all(one["leader_id"] >= 0 for one in topic["partitions"])
                for topic in self.describe_topics(names)
            ):
                return
            if time.monotonic() >= deadline:
                raise KafkaTimeoutError(f"{', '.join(names)} were not ready within {timeout_ms} ms")
            time.sleep(_READY_POLL_S)

    def delete_topics(
        self, topics: Iterable[str], timeout_ms: int | None = None, raise_errors: bool = True
    ) -> dict[str, Any]:
        """Delete topics with all their records."""
        request = m.DeleteTopicsRequest(
            topics=[m.DeleteTopicsRequest.DeleteTopicState(name=name) for name in topics],
            timeout_ms=self._timeout_ms(timeout_ms),
        )
        answer, version = self._ask_controller(request)
        told = to_dict(answer, version)
        told.pop("throttle_time_ms", None)
        told["topics"] = told.pop("responses")
        _raise_first(told["topics"], raise_errors)
        return told

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions | Mapping[str, Any]],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> dict[str, Any]:
        """Have topics grow to these numbers of partitions."""
        wanted = []
        for name, given in topic_partitions.items():
            count, places = given, None
            if isinstance(given, NewPartitions):
                count, places = given.total_count, given.new_assignments
            elif isinstance(given, Mapping):
                count, places = given["count"], given.get("assignments")
            topic = m.CreatePartitionsRequest.CreatePartitionsTopic
            assignments = places and [
                topic.CreatePartitionsAssignment(broker_ids=list(one)) for one in places
            ]
            wanted.append(topic(name=name, count=count, assignments=assignments))
        request = m.CreatePartitionsRequest(
            topics=wanted, timeout_ms=self._timeout_ms(timeout_ms), validate_only=validate_only
        )
        answer, version = self._ask_controller(request)
        told = to_dict(answer, version)
        _raise_first(told["results"], raise_errors)
        return told

    # -- records

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Delete what is below an offset of each partition; -1 stands for its end."""
        results: dict[TopicPartition, dict[str, Any]] = {}
        if partition_leader_id is None:
            leaders = self._by_leader(records_to_delete)
        else:
            leaders = {partition_leader_id: list(records_to_delete)}
        for leader, partitions in leaders.items():
            by_topic = defaultdict(list)
            for tp in partitions:
                by_topic[tp.topic].append(
                    m.DeleteRecordsRequest.DeleteRecordsPartition(
                        partition_index=tp.partition, offset=records_to_delete[tp]
                    )
                )
            request = m.DeleteRecordsRequest(
                topics=[
                    m.DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=parts)
                    for name, parts in by_topic.items()
                ],
                timeout_ms=self._timeout_ms(timeout_ms),
            )
            answer, version = self._connections.ask(request, leader)
            for one in answer.topics:
                for part in one.partitions:
                    if part.error_code:
                        raise for_code(part.error_code)(f"{one.name}-{part.partition_index}")
                    results[TopicPartition(one.name, part.partition_index)] = to_dict(part, version)
        return results

    # -- the end

    def close(self) -> None:
        self._connections.close()

    def __enter__(self) -> KafkaAdminClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask_controller(self, request: Any) -> tuple[Any, int]:
        # A broker of today hands such requests on to the controller itself.
        return self._connections.ask(request)


def _new_topics(given: Iterable[NewTopic | str] | Mapping[str, Mapping[str, Any]]) -> list[NewTopic]:
    if isinstance(given, Mapping):
        return [
            NewTopic(
                name,
                options.get("num_partitions", -1),
                options.get("replication_factor", -1),
                options.get("assignments"),
                options.get("configs"),
            )
            for name, options in given.items()
        ]
    return [NewTopic(topic) if isinstance(topic, str) else topic for topic in given]


def _creatable(topic: NewTopic) -> Any:
    request = m.CreateTopicsRequest
    return request.CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.replica_assignments else topic.num_partitions,
        replication_factor=-1 if topic.replica_assignments else topic.replication_factor,
        assignments=[
            request.CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in (topic.replica_assignments or {}).items()
        ],
        configs=[
            request.CreatableTopicConfig(name=name, value=None if value is None else str(value))
            for name, value in (topic.topic_configs or {}).items()
        ],
    )


def _raise_first(results: list[dict[str, Any]], raise_errors: bool) -> None:
    for one in results:
        if raise_errors and one["error_code"]:
            raise for_code(one["error_code"])(f"{one['name']}: {one.get('error_message') or 'refused'}")
