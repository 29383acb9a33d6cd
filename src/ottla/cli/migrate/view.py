"""Looks at a cluster over the protocol: what each node runs, where replicas are, how far the controllers are.

Apache Kafka and Ottla answer alike, so a node is asked for the key `ottla.version`: only Ottla describes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.admin.configs import ask_configs
from ottla.admin.connection import Connection, Node
from ottla.admin.errors import raise_for
from ottla.admin.quorum import describe_cluster, describe_quorum
from ottla.admin.reassignments import list_reassignments
from ottla.cli.migrate.order import ClusterView, NodeView, PartitionView, System
from ottla.config.describe import VERSION_KEY
from ottla.errors import ApiException
from ottla.metadata.features import METADATA_VERSION, METADATA_VERSIONS
from ottla.wire.enums import ConfigResourceType
from ottla.wire.messages import ApiVersionsRequest, DescribeConfigsRequest

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.wire.messages import DescribeQuorumResponse, MetadataResponse

_MIN_IN_SYNC: Final = "min.insync.replicas"
_BEHIND_MS: Final = 5_000
"""A controller that was last at the end of the log this long before the leader is behind."""
_TOPICS_A_REQUEST: Final = 1_000


def look(cluster: Cluster) -> ClusterView:
    """The whole cluster at this moment. ApiException if it does not answer."""
    metadata = cluster.metadata()
    described = describe_cluster(cluster)
    quorum = describe_quorum(cluster)
    raise_for(quorum.error_code, quorum.error_message)
    state = quorum.topics[0].partitions[0]
    raise_for(state.error_code, state.error_message)
    partitions = _partitions(metadata, _min_in_sync(cluster, metadata))
    brokers = cluster.nodes()
    voters = {voter.replica_id for voter in state.current_voters}
    leaders = Counter(each.leader for each in partitions)
    replicas = Counter(replica for each in partitions for replica in each.replicas)
    nodes: list[NodeView] = []
    for node in [*brokers.values(), *_controllers(quorum, voters - brokers.keys())]:
        system, version, problem = identify(cluster, node)
        nodes.append(
            NodeView(
                id=node.id,
                address=node.address,
                system=system,
                version=version,
                is_broker=node.id in brokers,
                is_voter=node.id in voters,
                leads_quorum=node.id == state.leader_id,
                leaders=leaders[node.id],
                replicas=replicas[node.id],
                problem=problem,
            )
        )
    return ClusterView(
        cluster_id=described.cluster_id,
        nodes=sorted(nodes, key=lambda each: each.id),
        partitions=partitions,
        voters_behind=voters_behind(state),
        quorum_leader=state.leader_id,
        reassigning=len(list_reassignments(cluster)),
        missing=sorted(replicas.keys() - brokers.keys()),
    )


def identify(cluster: Cluster, node: Node) -> tuple[System, str, str]:
    """What a node runs, its version, and why that could not be seen."""
    try:
        return (*_identified(cluster.connect_to(node), node.id), "")
    except ApiException as error:
        # The connection may be one to the process that ran there before.
        known = cluster.connected(node)
        if known is not None:
            cluster.drop(known)
        return System.UNKNOWN, "", error.message or error.code.name


def _identified(connection: Connection, node_id: int) -> tuple[System, str]:
    kind = DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name=str(node_id), configuration_keys=[VERSION_KEY]
    )
    (result,) = connection.ask(kind(resources=[resource])).results
    raise_for(result.error_code, result.error_message)
    versions = [entry.value or "" for entry in result.configs if entry.name == VERSION_KEY]
    if versions:
        return System.OTTLA, versions[0]
    answer = connection.ask(ApiVersionsRequest(client_software_name="ottla", client_software_version="1"))
    raise_for(answer.error_code)
    newest = next(
        (each.max_version for each in answer.supported_features if each.name == METADATA_VERSION), -1
    )
    return System.APACHE, METADATA_VERSIONS.get(newest, "").partition("-")[0]


def _controllers(quorum: DescribeQuorumResponse, wanted: Collection[int]) -> list[Node]:
    """The addresses of voters that are not brokers."""
    return [
        Node(each.node_id, each.listeners[0].host, each.listeners[0].port)
        for each in quorum.nodes
        if each.node_id in wanted and each.listeners
    ]


def voters_behind(state: DescribeQuorumResponse.PartitionData) -> list[int]:
    """The voters that do not keep up with the leader."""
    leader = next((each for each in state.current_voters if each.replica_id == state.leader_id), None)
    if leader is None:
        return []
    return [
        each.replica_id
        for each in state.current_voters
        if leader.last_caught_up_timestamp - each.last_caught_up_timestamp > _BEHIND_MS
    ]


def _partitions(metadata: MetadataResponse, min_in_sync: Mapping[str, int]) -> list[PartitionView]:
    return [
        PartitionView(
            name=f"{topic.name}-{each.partition_index}",
            leader=each.leader_id,
            replicas=tuple(each.replica_nodes),
            in_sync=tuple(each.isr_nodes),
            min_in_sync=min_in_sync.get(topic.name or "", 1),
        )
        for topic in metadata.topics
        for each in topic.partitions
    ]


def _min_in_sync(cluster: Cluster, metadata: MetadataResponse) -> dict[str, int]:
    names = [topic.name for topic in metadata.topics if topic.name is not None]
    found: dict[str, int] = {}
    for start in range(0, len(names), _TOPICS_A_REQUEST):
        asked: dict[tuple[ConfigResourceType, str], Iterable[str] | None] = {
            (ConfigResourceType.TOPIC, name): [_MIN_IN_SYNC]
            for name in names[start : start + _TOPICS_A_REQUEST]
        }
        for _, response in ask_configs(cluster, asked):
            for result in response.results:
                for entry in result.configs:
                    if entry.name == _MIN_IN_SYNC and (entry.value or "").isdecimal():
                        found[result.resource_name] = int(entry.value or "1")
    return found
