"""UpdateRaftVoter 0: a voter tells where it listens now, and which levels of kraft.version it supports."""

from __future__ import annotations

from ottla.api.base import PARKED, Answer, Api, Message, RequestContext
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    node.raft.handle_update_voter(request, ctx.respond, ctx.listener_name)
    return PARKED


API = Api(ApiKey.UPDATE_RAFT_VOTER, 0, 0, handle)
