"""AddRaftVoter (key 80), versions 0-1.

An observer becomes a voter of a dynamic quorum.

1 may request a response before the change is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation

if TYPE_CHECKING:
    from ottla.wire.messages import AddRaftVoterRequest, AddRaftVoterResponse


def handle(node: Node, ctx: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse | Outcome:
    node.raft.voter_changes.add(request, ctx.respond)
    return PARKED


API = Api(ApiKey.ADD_RAFT_VOTER, handle, forward=True, throttled=False, needs=(Right(AclOperation.ALTER),))
