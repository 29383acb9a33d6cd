"""Where a partition's leader is: the hint that saves a misdirected client a round of metadata."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.api.base import RequestContext
from ottla.api.cluster.nodes import NodeAddress, alive_node
from ottla.broker.services import Broker


class LeaderHint(NamedTuple):
    """The leader as far as this broker knows; -1 where it knows of none."""

    leader_id: int
    leader_epoch: int
    node: NodeAddress | None


def leader_hint(broker: Broker, ctx: RequestContext, topic: str | bytes, index: int) -> LeaderHint:
    """The leader of a partition, by topic name or id, with its address for this client."""
    image = broker.image
    known = image.topics.by_name.get(topic) if isinstance(topic, str) else image.topics.by_id.get(topic)
    registration = None if known is None else known.partitions.get(index)
    if registration is None:
        return LeaderHint(-1, -1, None)
    node = alive_node(broker, ctx, image, registration.leader)
    return LeaderHint(registration.leader, registration.leader_epoch, node)


def endpoints(response_class: Any, hints: list[LeaderHint]) -> list[Any]:
    """The `node_endpoints` of a response: each leader once."""
    found = {hint.node.id: hint.node for hint in hints if hint.node is not None}
    return [
        response_class.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in found.values()
    ]
