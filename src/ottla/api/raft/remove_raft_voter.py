"""RemoveRaftVoter (key 81), version 0.

A voter of a dynamic quorum becomes an observer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation

if TYPE_CHECKING:
    from ottla.wire.messages import RemoveRaftVoterRequest, RemoveRaftVoterResponse


def handle(
    node: Node, ctx: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse | Outcome:
    node.raft.voter_changes.remove(request, ctx.respond)
    return PARKED


API = Api(ApiKey.REMOVE_RAFT_VOTER, handle, forward=True, throttled=False, needs=(Right(AclOperation.ALTER),))
