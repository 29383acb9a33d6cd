"""Where a partition's leader is: the hint saves a misdirected client a Metadata request."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ottla.api.base import RequestContext
from ottla.api.cluster.nodes import NodeAddress, alive_node
from ottla.broker.services import Broker
from ottla.ids import BrokerId, TopicName

E = TypeVar("E")


class LeaderHint(NamedTuple):
    """The leader that this broker knows; -1 if it knows none."""

    leader_id: BrokerId
    leader_epoch: int
    node: NodeAddress | None


def leader_hint(broker: Broker, ctx: RequestContext, topic: str | bytes, index: int) -> LeaderHint:
    """The leader of a partition, by topic name or id, with its address for this client."""
    image = broker.image
    known = (
        image.topics.by_name.get(TopicName(topic))
        if isinstance(topic, str)
        else image.topics.by_id.get(topic)
    )
    registration = None if known is None else known.partitions.get(index)
    if registration is None:
        return LeaderHint(BrokerId(-1), -1, None)
    node = alive_node(broker, ctx, image, registration.leader)
    return LeaderHint(registration.leader, registration.leader_epoch, node)


def endpoints(node_endpoint: Callable[..., E], hints: list[LeaderHint]) -> list[E]:
    """The `node_endpoints` of a response, of its class `NodeEndpoint`: each leader once."""
    found = {hint.node.id: hint.node for hint in hints if hint.node is not None}
    return [
        node_endpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in found.values()
    ]
