"""UpdateRaftVoter (key 82), version 0.

A voter tells where it listens now, and which levels of kraft.version it supports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from ottla.wire.messages import UpdateRaftVoterRequest, UpdateRaftVoterResponse


def handle(
    node: Node, ctx: RequestContext, request: UpdateRaftVoterRequest
) -> UpdateRaftVoterResponse | Outcome:
    node.raft.handle_update_voter(request, ctx.respond, ctx.listener_name)
    return PARKED


API = Api(ApiKey.UPDATE_RAFT_VOTER, handle)
