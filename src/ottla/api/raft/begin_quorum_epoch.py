"""BeginQuorumEpoch (key 53), versions 0-1.

A new leader announces itself to this voter.

1 names the addressed voter and the leader's address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.raft.leader_endpoints import without_unsupported_endpoints
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation

if TYPE_CHECKING:
    from ottla.wire.messages import BeginQuorumEpochRequest, BeginQuorumEpochResponse


def handle(
    node: Node, ctx: RequestContext, request: BeginQuorumEpochRequest
) -> BeginQuorumEpochResponse | Outcome:
    response = node.raft.requests.handle_begin_quorum_epoch(request, ctx.listener_name)
    return without_unsupported_endpoints(response, ctx.version, supported_from=1)


API = Api(
    ApiKey.BEGIN_QUORUM_EPOCH,
    handle,
    throttled=False,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (part.leader_id for topic in request.topics for part in topic.partitions),
)
