"""Whether a node serves: the reasons why not, as probes of Kubernetes and load balancers ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.lifecycle import BrokerState

if TYPE_CHECKING:
    from ottla.broker.services import Broker, Node

METADATA_WITHIN_S: Final = 10.0


def not_ready(node: Node, broker: Broker | None) -> list[str]:
    """Why clients should not be sent here; empty if they should."""
    reasons: list[str] = []
    contact = node.raft.last_contact
    if node.raft.leader_id is None:
        reasons.append("the metadata quorum has no leader that this node knows")
    if contact is None:
        reasons.append("this node has not reached the metadata quorum yet")
    elif (age_s := node.clock.monotonic() - contact) > METADATA_WITHIN_S:
        reasons.append(f"the metadata is {age_s:.0f} s old: this node does not reach the metadata quorum")
    if node.config.is_broker:
        reasons += _broker_reasons(node, broker)
    return reasons


def _broker_reasons(node: Node, broker: Broker | None) -> list[str]:
    if broker is None:
        return ["the broker is not registered, or its logs are still being loaded"]
    state = broker.lifecycle.state
    if state is not BrokerState.RUNNING:
        return [f"the broker is in state {state.name}"]
    registration = node.image.brokers.get(node.node_id)
    if registration is None or registration.fenced:
        return ["the controller has fenced this broker"]
    return []
