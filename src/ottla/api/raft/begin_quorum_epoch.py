"""BeginQuorumEpoch 0-1: a voter tells that it was elected.

1 names the voter that is meant and where the leader listens.
"""

from __future__ import annotations

from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.api.raft.endpoints import fitting
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    answer = node.raft.handle_begin_quorum_epoch(request, ctx.listener_name)
    return fitting(answer, ctx.version, told_from=1)


API = Api(ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, handle)
