"""BeginQuorumEpoch (key 53), versions 0-1.

A voter tells that it was elected.

1 names the voter that is meant and where the leader listens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext
from ottla.api.raft.endpoints import fitting
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from ottla.wire.messages import BeginQuorumEpochRequest, BeginQuorumEpochResponse


def handle(
    node: Node, ctx: RequestContext, request: BeginQuorumEpochRequest
) -> BeginQuorumEpochResponse | Outcome:
    answer = node.raft.handle_begin_quorum_epoch(request, ctx.listener_name)
    return fitting(answer, ctx.version, told_from=1)


API = Api(ApiKey.BEGIN_QUORUM_EPOCH, handle)
