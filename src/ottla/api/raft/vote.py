"""Vote 0-2: a voter asks for this node's vote.

1 names the voter that is meant and the directories of both; 2 may ask first whether the vote would be given.
"""

from __future__ import annotations

from ottla.api.base import Answer, Api, Message, RequestContext
from ottla.api.raft.endpoints import fitting
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey


def handle(node: Node, ctx: RequestContext, request: Message) -> Answer:
    answer = node.raft.handle_vote(request, ctx.listener_name)
    return fitting(answer, ctx.version, told_from=1)


API = Api(ApiKey.VOTE, 0, 2, handle)
