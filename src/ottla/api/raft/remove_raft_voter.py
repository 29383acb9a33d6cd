"""RemoveRaftVoter 0: a voter of a dynamic quorum becomes an observer."""

from __future__ import annotations

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    node.raft.handle_remove_voter(request, ctx.respond)
    return PARKED


API = Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, handle, forward=True)
