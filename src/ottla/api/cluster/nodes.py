"""Brokers as the clients of a listener see them: which ones are alive, and their addresses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.api.authorization import authorized_operations, cluster_allowed
from ottla.api.base import RequestContext
from ottla.broker.services import Node
from ottla.ids import BrokerId
from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.wire.enums import CLUSTER_NAME, AclOperation, ResourceType

NO_NODE: Final = BrokerId(-1)


class NodeAddress(NamedTuple):
    """A broker's address for the clients of one listener."""

    id: BrokerId
    host: str
    port: int
    rack: str | None
    fenced: bool


def node_of(broker: Node, ctx: RequestContext, registration: BrokerRegistration) -> NodeAddress | None:
    """The broker's address for this client; None if the broker does not have the client's listener."""
    endpoint = registration.listeners.get(ctx.listener_name)
    if endpoint is None:
        return None
    host, port = endpoint.host, endpoint.port
    if registration.id == broker.node_id and broker.config.advertised(ctx.listener_name) is None:
        # Without advertised.listeners, the address that this client has used is known to work.
        host, port = ctx.local_host, ctx.local_port
    return NodeAddress(registration.id, host, port, registration.rack, registration.fenced)


def nodes(broker: Node, ctx: RequestContext, image: MetadataImage) -> Iterator[NodeAddress]:
    """All registered brokers that have the client's listener, fenced ones included."""
    for registration in image.brokers.values():
        node = node_of(broker, ctx, registration)
        if node is not None:
            yield node


def alive_node(
    broker: Node, ctx: RequestContext, image: MetadataImage, node_id: BrokerId
) -> NodeAddress | None:
    """The address of a broker that is registered and not fenced."""
    registration = image.brokers.get(node_id)
    if registration is None or registration.fenced:
        return None
    return node_of(broker, ctx, registration)


def advertised_controller(broker: Node, alive: list[NodeAddress]) -> BrokerId:
    """The node that clients see as controller: any alive broker, since each one forwards admin requests."""
    return broker.clock.random.choice(alive).id if alive else NO_NODE


def cluster_operations(node: Node, ctx: RequestContext) -> int:
    """`authorized_operations` of the cluster: none for a client that may not describe it."""
    if not cluster_allowed(node, ctx, AclOperation.DESCRIBE, log_denied=False):
        return 0
    return authorized_operations(node, ctx, ResourceType.CLUSTER, CLUSTER_NAME)
