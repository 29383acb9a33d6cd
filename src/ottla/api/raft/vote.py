"""Vote (key 52), versions 0-2.

A voter asks for this node's vote.

1 names the addressed voter and the directories of both; 2 adds the pre-vote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.raft.leader_endpoints import without_unsupported_endpoints
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation

if TYPE_CHECKING:
    from ottla.wire.messages import VoteRequest, VoteResponse


def handle(node: Node, ctx: RequestContext, request: VoteRequest) -> VoteResponse | Outcome:
    response = node.raft.requests.handle_vote(request, ctx.listener_name)
    return without_unsupported_endpoints(response, ctx.version, supported_from=1)


API = Api(
    ApiKey.VOTE,
    handle,
    throttled=False,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (part.replica_id for topic in request.topics for part in topic.partitions),
)
