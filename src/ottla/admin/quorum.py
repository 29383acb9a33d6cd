"""The cluster as a whole: its brokers and controllers, the metadata quorum, and the levels of features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.admin.errors import raise_for
from ottla.ids import BrokerId, TopicName
from ottla.wire.enums import UpgradeType
from ottla.wire.messages import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeQuorumRequest,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.wire.messages import (
        ApiVersionsResponse,
        DescribeClusterResponse,
        DescribeQuorumResponse,
        UpdateFeaturesResponse,
    )

METADATA_TOPIC: Final = TopicName("__cluster_metadata")
_BROKERS, _CONTROLLERS = 1, 2
_TIMEOUT_MS: Final = 30_000
_FEATURES_TIMEOUT_MS: Final = 60_000


def describe_cluster(
    cluster: Cluster, *, controllers: bool = False, fenced: bool = False, operations: bool = False
) -> DescribeClusterResponse:
    """The cluster's id, its controller, and its brokers or controllers; `fenced` adds fenced brokers."""
    response = cluster.ask(
        DescribeClusterRequest(
            endpoint_type=_CONTROLLERS if controllers else _BROKERS,
            include_fenced_brokers=fenced,
            include_cluster_authorized_operations=operations,
        )
    )
    raise_for(response.error_code, response.error_message)
    return response


def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Remove a broker that is gone for good from the cluster's metadata."""
    response = cluster.ask(UnregisterBrokerRequest(broker_id=BrokerId(broker_id)))
    raise_for(response.error_code, response.error_message)


def describe_quorum(cluster: Cluster) -> DescribeQuorumResponse:
    """The metadata quorum as its leader knows it; the response has error codes."""
    kind = DescribeQuorumRequest
    partition = kind.PartitionData(partition_index=0)
    return cluster.ask(kind(topics=[kind.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]))


def add_voter(
    cluster: Cluster, voter_id: int, directory_id: bytes, listeners: Iterable[tuple[str, str, int]]
) -> None:
    """Add a controller to the quorum, by its id, directory, and (name, host, port) of its listeners."""
    kind = AddRaftVoterRequest
    request = kind(
        cluster_id=None,
        timeout_ms=_TIMEOUT_MS,
        voter_id=voter_id,
        voter_directory_id=directory_id,
        listeners=[kind.Listener(name=name, host=host, port=port) for name, host, port in listeners],
    )
    response = cluster.ask(request)
    raise_for(response.error_code, response.error_message)


def remove_voter(cluster: Cluster, voter_id: int, directory_id: bytes) -> None:
    """Remove a controller from the quorum."""
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id)
    response = cluster.ask(request)
    raise_for(response.error_code, response.error_message)


def describe_features(cluster: Cluster) -> ApiVersionsResponse:
    """The features that a broker supports, and their levels in force, from its ApiVersions response."""
    response = cluster.ask(ApiVersionsRequest(client_software_name="ottla", client_software_version="1"))
    raise_for(response.error_code)
    return response


def update_features(
    cluster: Cluster,
    levels: Mapping[str, tuple[UpgradeType, int]],
    *,
    validate_only: bool = False,
    timeout_ms: int = _FEATURES_TIMEOUT_MS,
) -> UpdateFeaturesResponse:
    """Set the levels of features; the response has one code for all of them, or one for each."""
    kind = UpdateFeaturesRequest
    updates = [
        kind.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade)
        for name, (upgrade, level) in levels.items()
    ]
    return cluster.ask(kind(timeout_ms=timeout_ms, feature_updates=updates, validate_only=validate_only))
