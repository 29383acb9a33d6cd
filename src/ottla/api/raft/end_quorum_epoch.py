"""EndQuorumEpoch 0-1: the leader resigns, and says who should stand for election first.

1 names those with their directories, and where the leader listens.
"""

from __future__ import annotations

from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.api.raft.endpoints import fitting
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    answer = node.raft.handle_end_quorum_epoch(request, ctx.listener_name)
    return fitting(answer, ctx.version, told_from=1)


API = Api(ApiKey.END_QUORUM_EPOCH, 0, 1, handle)
