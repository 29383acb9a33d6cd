"""The admin client's part about the cluster as a whole: its brokers, directories, quorum, versions and features."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.admin_connections import to_dict
from ottla.client.admin_topic_view import Partitions, TopicView
from ottla.client.errors import BrokerResponseError, for_code
from ottla.client.structs import TopicPartitionReplica
from ottla.wire import messages as m
from ottla.wire.apis import ApiKey
from ottla.wire.enums import UpgradeType

_METADATA_TOPIC = "__cluster_metadata"


class BrokerVersionData(NamedTuple):
    """The versions of each API that a broker speaks, by its key: the oldest and the newest."""

    api_versions: dict[int, tuple[int, int]]


class ClusterAdmin(TopicView):
    """Look at the cluster, and change its features."""

    def describe_cluster(self) -> dict[str, Any]:
        """The brokers, the controller and the cluster's id."""
        answer, version = self._connections.ask(
            m.DescribeClusterRequest(include_cluster_authorized_operations=True)
        )
        if answer.error_code:
            raise for_code(answer.error_code)(answer.error_message or "")
        told = to_dict(answer, version)
        for name in ("error_code", "error_message", "endpoint_type", "throttle_time_ms"):
            told.pop(name, None)
        return told

    def describe_log_dirs(
        self, topic_partitions: Partitions = None, brokers: Iterable[int] | None = None
    ) -> list[dict[str, Any]]:
        """The directories of each broker, and what these partitions take up in them; all, if none is named."""
        wanted = None
        if topic_partitions is not None:
            topic = m.DescribeLogDirsRequest.DescribableLogDirTopic
            wanted = [
                topic(topic=name, partitions=numbers)
                for name, numbers in self._partitions(topic_partitions).items()
            ]
        results = []
        for broker in self._connections.broker_ids() if brokers is None else brokers:
            answer, version = self._connections.ask(m.DescribeLogDirsRequest(topics=wanted), broker)
            results.append({"broker": broker, "log_dirs": to_dict(answer, version)["results"]})
        return results

    def alter_replica_log_dirs(
        self, replica_assignments: Mapping[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, type[BrokerResponseError]]:
        """Move replicas to other directories of their brokers: NoError or the error for each."""
        moves: dict[int, dict[str, dict[str, list[int]]]] = {}
        for given, path in replica_assignments.items():
            replica = TopicPartitionReplica(*given)
            directories = moves.setdefault(replica.broker_id, {})
            directories.setdefault(path, {}).setdefault(replica.topic, []).append(replica.partition)
        kind = m.AlterReplicaLogDirsRequest
        results = {}
        for broker, directories in moves.items():
            request = kind(
                dirs=[
                    kind.AlterReplicaLogDir(
                        path=path,
                        topics=[
                            kind.AlterReplicaLogDirTopic(name=name, partitions=numbers)
                            for name, numbers in topics.items()
                        ],
                    )
                    for path, topics in directories.items()
                ]
            )
            answer, _ = self._connections.ask(request, broker)
            for topic in answer.results:
                for one in topic.partitions:
                    replica = TopicPartitionReplica(topic.topic_name, one.partition_index, broker)
                    results[replica] = for_code(one.error_code)
        return results

    def describe_metadata_quorum(self) -> dict[str, Any]:
        """The controllers' quorum: its leader, voters and observers, and how far each has come."""
        kind = m.DescribeQuorumRequest
        request = kind(
            topics=[
                kind.TopicData(topic_name=_METADATA_TOPIC, partitions=[kind.PartitionData(partition_index=0)])
            ]
        )
        answer, version = self._connections.ask(request)
        told = to_dict(answer, version)
        told.pop("throttle_time_ms", None)
        code, text = told.pop("error_code"), told.pop("error_message", None)
        if code:
            raise for_code(code)(text or "the quorum cannot be described")
        for partition in (one for topic in told["topics"] for one in topic["partitions"]):
            code, text = partition.pop("error_code"), partition.pop("error_message", None)
            partition["error"] = str(for_code(code)(text or "")) if code else None
        return told

    def get_broker_version_data(self, broker_id: int) -> BrokerVersionData:
        """What one broker speaks."""
        return BrokerVersionData(self._connections.versions(broker_id))

    def api_versions(self) -> dict[ApiKey, tuple[int, int]]:
        """The versions of each API that the cluster speaks, as one of its brokers says."""
        known = {int(key) for key in ApiKey}
        return {ApiKey(key): own for key, own in self._connections.versions(None).items() if key in known}

    def describe_features(self, send_request_to_controller: bool = False) -> dict[str, dict[str, Any]]:
        """The features: which levels are supported, and which one is in force.

        Brokers and controllers agree on them, so that it does not matter who is asked.
        """
        request = m.ApiVersionsRequest(client_software_name="ottla", client_software_version="1")
        answer, _ = self._connections.ask(request)
        if answer.error_code:
            raise for_code(answer.error_code)("the features cannot be described")
        result: dict[str, dict[str, Any]] = defaultdict(dict)
        epoch = answer.finalized_features_epoch
        for one in answer.supported_features:
            result[one.name]["supported"] = (one.min_version, one.max_version)
        for one in answer.finalized_features:
            result[one.name]["finalized"] = (one.min_version_level, one.max_version_level)
            result[one.name]["finalized_epoch"] = epoch if epoch >= 0 else None
        return dict(result)

    def update_features(
        self,
        feature_updates: Mapping[str, int | tuple[UpgradeType | int | str, int]],
        validate_only: bool = False,
        timeout_ms: int = 60_000,
    ) -> dict[str, str]:
        """Set the levels of features, up or, with a tuple of an UpgradeType and a level, down."""
        if not isinstance(feature_updates, Mapping):
            raise TypeError("feature_updates must be a dict of names and levels")
        request = m.UpdateFeaturesRequest(
            timeout_ms=timeout_ms,
            feature_updates=[_update(name, given) for name, given in feature_updates.items()],
            validate_only=validate_only,
        )
        answer, _ = self._connections.ask(request)
        if answer.error_code:
            raise for_code(answer.error_code)(answer.error_message or "the features are not updated")
        told = dict.fromkeys(feature_updates, "OK")
        for one in answer.results:
            if one.error_code:
                told[one.feature] = str(for_code(one.error_code)(one.error_message or ""))
        return told


def _update(name: str, given: int | tuple[UpgradeType | int | str, int]) -> Any:
    way, level = given if isinstance(given, tuple) else (UpgradeType.UPGRADE, given)
    kind = UpgradeType[way.upper()] if isinstance(way, str) else UpgradeType(way)
    return m.UpdateFeaturesRequest.FeatureUpdateKey(
        feature=name,
        max_version_level=int(level),
        upgrade_type=kind,
    )
