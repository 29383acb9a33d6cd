"""The order in which a cluster's nodes are replaced, and what has to hold before the next one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from ottla.cli.findings import some


class System(Enum):
    """What a node runs."""

    OTTLA = "Ottla"
    APACHE = "Apache Kafka"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as the cluster shows it."""

    id: int
    address: str
    system: System
    version: str = ""
    """Ottla's version; for Apache Kafka the release of the newest metadata.version that the node supports."""
    is_broker: bool = True
    is_voter: bool = False
    leads_quorum: bool = False
    leaders: int = 0
    replicas: int = 0
    problem: str = ""
    """Why the node could not be asked."""

    @property
    def runs(self) -> str:
        return (
            f"{self.system.value} {self.version}".rstrip()
            if self.system is not System.UNKNOWN
            else self.problem
        )

    @property
    def roles(self) -> str:
        names = [name for name, has in (("broker", self.is_broker), ("controller", self.is_voter)) if has]
        return ",".join(names)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition's replicas, and how many of them must be in sync for a write."""

    name: str
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    min_in_sync: int = 1


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one moment."""

    cluster_id: str
    nodes: Sequence[NodeView]
    partitions: Sequence[PartitionView] = ()
    voters_behind: Sequence[int] = ()
    quorum_leader: int = -1
    reassigning: int = 0
    missing: Sequence[int] = field(default_factory=tuple)
    """Brokers that hold replicas and are not there."""

    def node(self, node_id: int) -> NodeView | None:
        return next((node for node in self.nodes if node.id == node_id), None)

    @property
    def under_replicated(self) -> list[str]:
        return [each.name for each in self.partitions if len(each.in_sync) < len(each.replicas)]

    @property
    def leaderless(self) -> list[str]:
        return [each.name for each in self.partitions if each.leader < 0]


def reasons_to_wait(view: ClusterView) -> list[str]:
    """Why no node may be stopped now; nothing if one may."""
    reasons: list[str] = []
    if view.quorum_leader < 0:
        reasons.append("the controllers have no leader")
    if view.leaderless:
        reasons.append(f"{len(view.leaderless)} partitions have no leader ({some(view.leaderless)})")
    lacking = view.under_replicated
    if lacking:
        reasons.append(
            f"{len(lacking)} of {len(view.partitions)} partitions lack a replica ({some(lacking)})"
        )
    if view.missing:
        reasons.append(f"{_nodes(view.missing)} not there")
    if view.voters_behind:
        reasons.append(f"{_nodes(view.voters_behind)} behind in the controllers' quorum")
    if view.reassigning:
        reasons.append(f"{view.reassigning} partitions are being reassigned")
    unknown = [node.id for node in view.nodes if node.system is System.UNKNOWN]
    if unknown:
        reasons.append(f"{_nodes(unknown)} not answering")
    return reasons


def _nodes(ids: Sequence[int]) -> str:
    names = " and ".join(map(str, sorted(ids)))
    return f"node {names} is" if len(ids) == 1 else f"nodes {names} are"


def replacement_order(view: ClusterView, target: System) -> list[NodeView]:
    """The nodes that do not run the target yet, first to last.

    Brokers come before dedicated controllers, and few leaders before many: each replacement moves that many leaders.
    The active controller comes last, so that the quorum elects a new leader only once.
    """
    waiting = [node for node in view.nodes if node.system is not target]
    return sorted(waiting, key=lambda node: (node.leads_quorum, not node.is_broker, node.leaders, node.id))


def consequences(view: ClusterView, node: NodeView) -> list[str]:
    """What is not available while this node is away."""
    found: list[str] = []
    own = [each for each in view.partitions if node.id in each.replicas]
    alone = [each.name for each in own if len(each.replicas) == 1]
    if alone:
        found.append(
            f"{len(alone)} partitions have no other replica and are not available while it is away: {some(alone)}"
        )
    refused = [
        each.name
        for each in own
        if len(each.replicas) > 1 and len(set(each.in_sync) - {node.id}) < each.min_in_sync
    ]
    if refused:
        found.append(
            f"{len(refused)} partitions refuse acks=all while it is away (min.insync.replicas): {some(refused)}"
        )
    voters = [each for each in view.nodes if each.is_voter]
    if node.is_voter:
        left = len(voters) - 1
        needed = len(voters) // 2 + 1
        if left < needed:
            found.append(
                f"{left} of {len(voters)} controllers are no majority: no topic can be created, and no leader "
                "elected, while it is away"
            )
        elif left == needed:
            found.append(
                f"{left} of {len(voters)} controllers are left: a majority, and no further one may fail"
            )
    return found


def commands(node: NodeView, target: System) -> list[tuple[str, str]]:
    """What to type on the node's machine, each with its purpose."""
    if target is System.OTTLA:
        return [
            ("ottla migrate check server.properties", "nothing may be refused"),
            (
                f"bin/kafka-server-stop.sh --node-id={node.id}",
                "of Apache Kafka, or your service manager; wait for it",
            ),
            ("ottla start --config server.properties", "as the same user, with the same file"),
        ]
    return [
        (
            f"bin/kafka-server-stop.sh --node-id={node.id}",
            "of Ottla, or Ctrl-C, or your service manager; wait for it",
        ),
        (
            "bin/kafka-server-start.sh server.properties",
            "of Apache Kafka, as the same user, with the same file",
        ),
    ]
