"""The admin client's methods for the cluster as a whole: brokers, directories, quorum, versions and features."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypedDict

from ottla.admin import log_dirs, quorum
from ottla.admin.log_dirs import Replica
from ottla.client.admin_base import AdminBase, Partitions
from ottla.client.errors import BrokerResponseError, for_code
from ottla.client.plain_data import Document
from ottla.client.structs import TopicPartitionReplica
from ottla.wire.apis import ApiKey
from ottla.wire.enums import UpgradeType


class BrokerVersionData(NamedTuple):
    """The oldest and the newest version of each API that a broker supports, by the API's key."""

    api_versions: dict[int, tuple[int, int]]


class FeatureLevels(TypedDict, total=False):
    """The levels of a feature that the cluster supports, and the one in force."""

    supported: tuple[int, int]
    finalized: tuple[int, int]
    finalized_epoch: int | None


class BrokerLogDirs(TypedDict):
    """The log directories of one broker."""

    broker: int
    log_dirs: list[Document]


class ClusterAdmin(AdminBase):
    """Describe the cluster, and change its features."""

    def describe_cluster(self) -> Document:
        """The brokers, the controller and the cluster's id.

        >>> admin.describe_cluster()["controller_id"]
        1
        """
        document = self._to_dict(self._run(quorum.describe_cluster, operations=True))
        for name in ("error_code", "error_message", "endpoint_type"):
            document.pop(name, None)
        return document

    def describe_log_dirs(
        self, topic_partitions: Partitions = None, brokers: Iterable[int] | None = None
    ) -> list[BrokerLogDirs]:
        """The directories of each broker with the sizes of these partitions; of all partitions if none is named.

        >>> [found] = admin.describe_log_dirs({"orders": [0]})
        >>> found["log_dirs"][0]["topics"][0]["name"]
        'orders'
        """
        wanted = None if topic_partitions is None else self._partitions(topic_partitions)
        results: list[BrokerLogDirs] = []
        for broker in self._broker_ids() if brokers is None else brokers:
            response = self._run(log_dirs.describe_log_dirs, broker, wanted)
            results.append({"broker": broker, "log_dirs": self._to_dict(response, broker)["results"]})
        return results

    def alter_replica_log_dirs(
        self, replica_assignments: Mapping[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, type[BrokerResponseError]]:
        """Move replicas to other directories of their brokers: NoError or the error for each.

        >>> from ottla import TopicPartitionReplica
        >>> [path] = [each["log_dir"] for each in admin.describe_log_dirs()[0]["log_dirs"]]
        >>> results = admin.alter_replica_log_dirs({TopicPartitionReplica("orders", 0, 1): path})
        >>> [error.__name__ for error in results.values()]
        ['NoError']
        """
        wanted = {}
        for given, path in replica_assignments.items():
            topic, partition, broker_id = given
            wanted[Replica(broker_id, topic, partition)] = path
        results = self._run(log_dirs.alter_replica_log_dirs, wanted)
        return {
            TopicPartitionReplica(one.topic, one.partition, one.broker): for_code(code)
            for one, code in results.items()
        }

    def describe_metadata_quorum(self) -> Document:
        """The controllers' quorum: its leader, voters and observers, and how far each has replicated.

        >>> admin.describe_metadata_quorum()["topics"][0]["partitions"][0]["leader_id"]
        1
        """
        document = self._to_dict(self._run(quorum.describe_quorum))
        code, text = document.pop("error_code"), document.pop("error_message", None)
        if code:
            raise for_code(code)(text or "the quorum cannot be described")
        for partition in (one for topic in document["topics"] for one in topic["partitions"]):
            code, text = partition.pop("error_code"), partition.pop("error_message", None)
            partition["error"] = str(for_code(code)(text or "")) if code else None
        return document

    def get_broker_version_data(self, broker_id: int) -> BrokerVersionData:
        """The API versions of one broker.

        >>> from ottla.wire.apis import ApiKey
        >>> admin.get_broker_version_data(1).api_versions[ApiKey.METADATA][0]
        0
        """
        return BrokerVersionData(self._versions(broker_id))

    def api_versions(self) -> dict[ApiKey, tuple[int, int]]:
        """The versions of each API that the cluster supports, from one of its brokers.

        >>> from ottla.wire.apis import ApiKey
        >>> ApiKey.FETCH in admin.api_versions()
        True
        """
        known = {int(key) for key in ApiKey}
        return {ApiKey(key): own for key, own in self._versions(None).items() if key in known}

    def _versions(self, broker_id: int | None) -> dict[int, tuple[int, int]]:
        return self._run(lambda cluster: dict(cluster.connection(broker_id).versions))

    def describe_features(self, send_request_to_controller: bool = False) -> dict[str, FeatureLevels]:
        """The features: the supported levels, and the one in force.

        Brokers and controllers agree on them, so `send_request_to_controller` makes no difference.

        >>> admin.describe_features()["metadata.version"]["finalized"][0] > 0
        True
        """
        response = self._run(quorum.describe_features)
        result: dict[str, FeatureLevels] = defaultdict(FeatureLevels)
        epoch = response.finalized_features_epoch
        for one in response.supported_features:
            result[one.name]["supported"] = (one.min_version, one.max_version)
        for each in response.finalized_features:
            result[each.name]["finalized"] = (each.min_version_level, each.max_version_level)
            result[each.name]["finalized_epoch"] = epoch if epoch >= 0 else None
        return dict(result)

    def update_features(
        self,
        feature_updates: Mapping[str, int | tuple[UpgradeType | int | str, int]],
        validate_only: bool = False,
        timeout_ms: int = 60_000,
    ) -> dict[str, str]:
        """Set the levels of features: up, or down with a tuple of an UpdateFeatureType and a level.

        >>> admin.update_features({"group.version": 1}, validate_only=True)
        {'group.version': 'OK'}
        """
        if not isinstance(feature_updates, Mapping):
            raise TypeError("feature_updates must be a dict of names and levels")
        levels = {name: _upgrade(given) for name, given in feature_updates.items()}
        response = self._run(
            quorum.update_features, levels, validate_only=validate_only, timeout_ms=timeout_ms
        )
        if response.error_code:
            raise for_code(response.error_code)(response.error_message or "the features are not updated")
        results = dict.fromkeys(feature_updates, "OK")
        for one in response.results:
            if one.error_code:
                results[one.feature] = str(for_code(one.error_code)(one.error_message or ""))
        return results


def _upgrade(given: int | tuple[UpgradeType | int | str, int]) -> tuple[UpgradeType, int]:
    direction, level = given if isinstance(given, tuple) else (UpgradeType.UPGRADE, given)
    kind = UpgradeType[direction.upper()] if isinstance(direction, str) else UpgradeType(direction)
    return kind, int(level)
