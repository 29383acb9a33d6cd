"""EndQuorumEpoch (key 54), versions 0-1.

The leader resigns and proposes the order in which voters stand for election.

1 adds the candidates' directories and the leader's address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.raft.leader_endpoints import without_unsupported_endpoints
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation

if TYPE_CHECKING:
    from ottla.wire.messages import EndQuorumEpochRequest, EndQuorumEpochResponse


def handle(
    node: Node, ctx: RequestContext, request: EndQuorumEpochRequest
) -> EndQuorumEpochResponse | Outcome:
    response = node.raft.requests.handle_end_quorum_epoch(request, ctx.listener_name)
    return without_unsupported_endpoints(response, ctx.version, supported_from=1)


API = Api(
    ApiKey.END_QUORUM_EPOCH,
    handle,
    throttled=False,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (part.leader_id for topic in request.topics for part in topic.partitions),
)
