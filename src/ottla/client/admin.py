"""KafkaAdminClient: kafka-python's interface to the administration of a cluster.

Results are plain data with the protocol's own names, as in kafka-python. The requests are those of `ottla.admin`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, TypedDict

from ottla.admin import partitions as partition_requests
from ottla.admin import topics as topic_requests
from ottla.admin.cluster import Cluster
from ottla.admin.topics import NewPartitions, NewTopic
from ottla.client.admin_acls import AclAdmin
from ottla.client.admin_base import client_errors
from ottla.client.admin_cluster import ClusterAdmin
from ottla.client.admin_configs import ConfigAdmin
from ottla.client.admin_groups import GroupAdmin
from ottla.client.admin_partitions import PartitionAdmin
from ottla.client.admin_transactions import TransactionAdmin
from ottla.client.admin_users import UserAdmin
from ottla.client.cluster_settings import cluster_settings, writer_settings
from ottla.client.errors import KafkaConnectionError, KafkaTimeoutError, NoBrokersAvailable, for_code
from ottla.client.plain_data import Document, to_dict
from ottla.client.settings import COMMON, merge
from ottla.client.structs import TopicPartition

_READY_POLL_S = 0.02


class TopicOptions(TypedDict, total=False):
    """What `create_topics` takes for each name of a dict."""

    num_partitions: int
    replication_factor: int
    assignments: Mapping[int, list[int]] | None
    configs: Mapping[str, str] | None


class PartitionOptions(TypedDict, total=False):
    """What `create_partitions` takes for each name of a dict."""

    count: int
    assignments: list[list[int]] | None


class KafkaAdminClient(
    ConfigAdmin, GroupAdmin, PartitionAdmin, ClusterAdmin, TransactionAdmin, AclAdmin, UserAdmin
):
    """Topics, partitions, records, configurations, groups, transactions and users of a cluster.

    Settings have kafka-python's names, as in `bootstrap_servers` and `request_timeout_ms`. The client connects when
    it is created; `NoBrokersAvailable` if no bootstrap server answers within `bootstrap_timeout_ms`.

    >>> from ottla import KafkaAdminClient
    >>> with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as client:
    ...     topics = client.list_topics()
    """

    DEFAULT_CONFIG = COMMON

    def __init__(self, **configs: object) -> None:
        self.config = merge(COMMON, configs, "KafkaAdminClient")
        self._connect(Cluster(cluster_settings(self.config)))

    @classmethod
    def with_kafka_settings(
        cls, bootstrap_servers: str, options: Mapping[str, str] | None = None, **configs: object
    ) -> KafkaAdminClient:
        """A client whose security settings have Kafka's own names, as in `security.protocol`.

        >>> with KafkaAdminClient.with_kafka_settings(bootstrap_servers, {"security.protocol": "PLAINTEXT"}) as client:
        ...     topics = client.list_topics()
        """
        client = cls.__new__(cls)
        client.config = merge(COMMON, {**configs, "bootstrap_servers": bootstrap_servers}, "KafkaAdminClient")
        security = writer_settings(bootstrap_servers, options).security
        client._connect(Cluster(replace(cluster_settings(client.config), security=security)))
        return client

    def _connect(self, cluster: Cluster) -> None:
        self._cluster = cluster
        try:
            with client_errors():
                self._cluster.any()
        except KafkaConnectionError as error:
            raise NoBrokersAvailable(f"{error.args[0]}; is a broker running there?") from None

    # -- topics

    def list_topics(self) -> list[str]:
        """The names of all topics.

        >>> "orders" in admin.list_topics()
        True
        """
        return [topic["name"] for topic in self.describe_topics()]

    def create_topics(
        self,
        new_topics: Iterable[NewTopic | str] | Mapping[str, TopicOptions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> Document:
        """Create topics: names, NewTopics, or a dict of names to their options (`num_partitions`,
        `replication_factor`, `assignments`, `configs`).

        >>> from ottla import NewTopic
        >>> created = admin.create_topics([NewTopic("clicks", num_partitions=3)], wait_for_metadata=True)
        >>> created["topics"][0]["error_code"]
        0
        """
        if validate_only and wait_for_metadata:
            raise ValueError(
                "validate_only and wait_for_metadata exclude each other: a validated topic is not created"
            )
        topics = _new_topics(new_topics)
        if not topics:
            raise ValueError("no topics to create")
        response = self._run(
            topic_requests.create_topics,
            topics,
            timeout_ms=self._timeout_ms(timeout_ms),
            validate_only=validate_only,
        )
        document = self._to_dict(response)
        _raise_first(document["topics"], raise_errors)
        if wait_for_metadata:
            self.wait_for_topics([topic.name for topic in topics])
        return document

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = 10_000) -> None:
        """Wait until each partition of these topics has a leader.

        >>> admin.wait_for_topics(["orders"])
        """
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
    ) -> Document:
        """Delete topics with all their records.

        >>> _ = admin.create_topics(["to-delete"], wait_for_metadata=True)
        >>> admin.delete_topics(["to-delete"])["topics"][0]["name"]
        'to-delete'
        """
        response = self._run(topic_requests.delete_topics, topics, timeout_ms=self._timeout_ms(timeout_ms))
        document = self._to_dict(response)
        document["topics"] = document.pop("responses")
        _raise_first(document["topics"], raise_errors)
        return document

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions | PartitionOptions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Document:
        """Grow topics to these numbers of partitions.

        >>> _ = admin.create_topics(["growing"], wait_for_metadata=True)
        >>> admin.create_partitions({"growing": 3})["results"][0]["error_code"]
        0
        """
        wanted = {name: _new_partitions(given) for name, given in topic_partitions.items()}
        response = self._run(
            topic_requests.create_partitions,
            wanted,
            timeout_ms=self._timeout_ms(timeout_ms),
            validate_only=validate_only,
        )
        document = self._to_dict(response)
        _raise_first(document["results"], raise_errors)
        return document

    # -- records

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, Document]:
        """Delete the records before an offset of each partition; -1 stands for its end.

        >>> from ottla import TopicPartition
        >>> first = TopicPartition("orders", 0)
        >>> admin.delete_records({first: 0})[first]["low_watermark"]
        0
        """
        results: dict[TopicPartition, Document] = {}
        for response in self._run(
            partition_requests.delete_records,
            records_to_delete,
            broker_id=partition_leader_id,
            timeout_ms=self._timeout_ms(timeout_ms),
        ):
            version = self._version(response)
            for topic in response.topics:
                for one in topic.partitions:
                    if one.error_code:
                        raise for_code(one.error_code)(f"{topic.name}-{one.partition_index}")
                    results[TopicPartition(topic.name, one.partition_index)] = to_dict(one, version)
        return results

    # -- the end

    def close(self) -> None:
        """Close all connections. A `with` statement does it too.

        >>> from ottla import KafkaAdminClient
        >>> client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
        >>> client.close()
        """
        self._cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _new_topics(given: Iterable[NewTopic | str] | Mapping[str, TopicOptions]) -> list[NewTopic]:
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


def _new_partitions(given: int | NewPartitions | PartitionOptions) -> NewPartitions:
    if isinstance(given, NewPartitions):
        return given
    if isinstance(given, Mapping):
        return NewPartitions(given["count"], given.get("assignments"))
    return NewPartitions(given)


def _raise_first(results: Sequence[Document], raise_errors: bool) -> None:
    for one in results:
        if raise_errors and one["error_code"]:
            raise for_code(one["error_code"])(f"{one['name']}: {one.get('error_message') or 'refused'}")
