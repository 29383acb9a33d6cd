"""AddRaftVoter 0-1: an observer becomes a voter of a dynamic quorum.

1 may ask for the answer before the change is committed.
"""

from __future__ import annotations

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    node.raft.handle_add_voter(request, ctx.respond)
    return PARKED


API = Api(ApiKey.ADD_RAFT_VOTER, 0, 1, handle, forward=True)
