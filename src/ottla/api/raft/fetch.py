"""Fetch (key 1), versions 4-18.

Fetches of the `__cluster_metadata` partition, which controller listeners serve under this key.

12 adds the epoch of the follower's last record, and reports diverging logs and snapshots to fetch; 13 has the topic's
id; 15 moves the replica's id into the replica state; 16 adds the leader's address; 17 adds the replica's directory; 18
adds the follower's high watermark, so that the response comes as soon as the leader has a higher one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.api.raft.leader_endpoints import without_unsupported_endpoints
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import FetchResponse

if TYPE_CHECKING:
    from ottla.wire.messages import FetchRequest


def handle(node: Node, ctx: RequestContext, request: FetchRequest) -> FetchResponse | Outcome:
    def respond(response: FetchResponse) -> None:
        if ctx.version < 12:
            _remove_leader(response)
        ctx.respond(without_unsupported_endpoints(response, ctx.version, supported_from=16))

    ctx.from_follower()
    node.raft.requests.handle_fetch(request, respond, ctx.listener_name)
    return PARKED


def _remove_leader(response: FetchResponse) -> None:
    """A client of a version below 12 is not a replica of the metadata log: it gets the error alone."""
    for topic in response.responses:
        for partition in topic.partitions:
            partition.current_leader = FetchResponse.LeaderIdAndEpoch()


API = Api(
    ApiKey.FETCH,
    handle,
    throttled=False,
    needs=(Right(AclOperation.CLUSTER_ACTION),),
    claims=lambda request: (request.replica_id, request.replica_state.replica_id),
)
