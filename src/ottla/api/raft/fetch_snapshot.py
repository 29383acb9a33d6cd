"""FetchSnapshot 0-1: a piece of a snapshot of the metadata, for a replica whose log ends before the leader's begins.

1 adds the directory of the replica, and where the leader listens.
"""

from __future__ import annotations

from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.api.raft.endpoints import fitting
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    answer = node.raft.handle_fetch_snapshot(request, ctx.listener_name)
    return fitting(answer, ctx.version, told_from=1)


API = Api(ApiKey.FETCH_SNAPSHOT, 0, 1, handle)
