"""FetchSnapshot (key 59), versions 0-1.

A part of a metadata snapshot, for a replica whose log ends before the leader's log begins.

1 adds the replica's directory and the leader's address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.raft.leader_endpoints import without_unsupported_endpoints
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation

if TYPE_CHECKING:
    from ottla.wire.messages import FetchSnapshotRequest, FetchSnapshotResponse


def handle(node: Node, ctx: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse | Outcome:
    response = node.raft.requests.handle_fetch_snapshot(request, ctx.listener_name)
    return without_unsupported_endpoints(response, ctx.version, supported_from=1)


API = Api(
    ApiKey.FETCH_SNAPSHOT,
    handle,
    throttled=False,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (request.replica_id,),
)
