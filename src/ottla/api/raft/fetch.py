"""Fetch 4-18 of `__cluster_metadata`: what a controller's listener serves under this key.

12 adds the epoch of the follower's last record, and answers where logs diverge or a snapshot is to be fetched; 13 has
the topic's id; 15 moves the replica's id into the replica state; 17 adds its directory; 18 the high watermark that it
knows, so that the answer comes as soon as the leader knows a higher one.
"""

from __future__ import annotations

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.api.broker import Node
from ottla.wire.apis import ApiKey


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    node.raft.handle_fetch(request, ctx.respond, ctx.listener_name)
    return PARKED


API = Api(ApiKey.FETCH, 4, 18, handle)
