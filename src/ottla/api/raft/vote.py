"""Vote (key 52), versions 0-2.

A voter asks for this node's vote.

1 names the voter that is meant and the directories of both; 2 may ask first whether the vote would be given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext
from ottla.api.raft.endpoints import fitting
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from ottla.wire.messages import VoteRequest, VoteResponse


def handle(node: Node, ctx: RequestContext, request: VoteRequest) -> VoteResponse | Outcome:
    answer = node.raft.handle_vote(request, ctx.listener_name)
    return fitting(answer, ctx.version, told_from=1)


API = Api(ApiKey.VOTE, handle)
