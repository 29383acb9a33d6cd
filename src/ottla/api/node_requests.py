"""Requests that only nodes send: whether the connection may speak for the node that the request names.

They are refused on listeners that serve clients alone, whatever the client's rights are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.api.authorization import refusal
from ottla.api.base import AnyApi, RequestContext
from ottla.security.grants import audit_log, printable
from ottla.wire.apis import ApiKey
from ottla.wire.enums import ResourceType

if TYPE_CHECKING:
    from ottla.broker.services import Node
    from ottla.wire.classes import WireMessage


def speaks_for(node: Node, ctx: RequestContext, claimed: Iterable[int]) -> bool:
    """Whether a connection may send a request in the name of these nodes. A refusal goes to the audit log."""
    if ctx.grants.internal:
        return True
    identity = node.node_identity
    claimed = list(claimed)
    if not ctx.forwarded and identity.serves_nodes(ctx.listener_name):
        if identity.may_send(ctx.principal, ctx.node_ids, claimed):
            return True
        why = "the connection is not that node's"
    else:
        why = f"listener {ctx.listener_name} serves clients, not nodes"
    nodes = ", ".join(map(str, claimed)) or "(any)"
    request = ApiKey(ctx.api_key).name
    if node.audit is not None:
        node.audit.event(
            "denied",
            {
                "principal": ctx.principal,
                "host": ctx.client_host,
                "request": request,
                "nodes": nodes,
                "rule": why,
            },
        )
    audit_log.info(
        "Principal = %s is Denied to act as node %s from host = %s for request = %s: %s",
        printable(ctx.principal),
        nodes,
        ctx.client_host,
        request,
        why,
    )
    return False


def check_sender(node: Node, api: AnyApi, ctx: RequestContext, request: WireMessage) -> None:
    """Check the node that a request says it is from. Raises CLUSTER_AUTHORIZATION_FAILED."""
    if api.claims is not None and not speaks_for(node, ctx, api.claims(request)):
        raise refusal(ResourceType.CLUSTER)
