"""UpdateRaftVoter (key 82), version 0.

A voter reports its listeners and the levels of kraft.version that it supports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation

if TYPE_CHECKING:
    from ottla.wire.messages import UpdateRaftVoterRequest, UpdateRaftVoterResponse


def handle(
    node: Node, ctx: RequestContext, request: UpdateRaftVoterRequest
) -> UpdateRaftVoterResponse | Outcome:
    node.raft.voter_changes.update(request, ctx.respond, ctx.listener_name)
    return PARKED


API = Api(
    ApiKey.UPDATE_RAFT_VOTER,
    handle,
    throttled=False,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (request.voter_id,),
)
