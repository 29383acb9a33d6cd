"""FetchSnapshot (key 59), versions 0-1.

A piece of a snapshot of the metadata, for a replica whose log ends before the leader's begins.

1 adds the directory of the replica, and where the leader listens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext
from ottla.api.raft.endpoints import fitting
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from ottla.wire.messages import FetchSnapshotRequest, FetchSnapshotResponse


def handle(node: Node, ctx: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse | Outcome:
    answer = node.raft.handle_fetch_snapshot(request, ctx.listener_name)
    return fitting(answer, ctx.version, told_from=1)


API = Api(ApiKey.FETCH_SNAPSHOT, handle)
