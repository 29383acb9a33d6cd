"""Fetch (key 1), versions 4-18.

The `__cluster_metadata` partition: what a controller's listener serves under this key.

12 adds the epoch of the follower's last record, and answers where logs diverge or a snapshot is to be fetched; 13 has
the topic's id; 15 moves the replica's id into the replica state; 16 tells where the leader listens; 17 adds the
replica's directory; 18 the high watermark that it
knows, so that the answer comes as soon as the leader knows a higher one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Message, Outcome, RequestContext
from ottla.api.raft.endpoints import fitting
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey
from ottla.wire.messages import FetchResponse

if TYPE_CHECKING:
    from ottla.wire.messages import FetchRequest


def handle(node: Node, ctx: RequestContext, request: FetchRequest) -> FetchResponse | Outcome:
    def respond(answer: Message) -> None:
        if ctx.version < 12:
            _forget_leader(answer)
        ctx.respond(fitting(answer, ctx.version, told_from=16))

    node.raft.handle_fetch(request, respond, ctx.listener_name)
    return PARKED


def _forget_leader(answer: Message) -> None:
    """Who asks in so old a version is no replica: it gets the error alone."""
    for topic in answer.responses:
        for partition in topic.partitions:
            partition.current_leader = FetchResponse.LeaderIdAndEpoch()


API = Api(ApiKey.FETCH, handle)
