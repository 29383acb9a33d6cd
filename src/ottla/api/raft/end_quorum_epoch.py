"""EndQuorumEpoch (key 54), versions 0-1.

The leader resigns, and says who should stand for election first.

1 names those with their directories, and where the leader listens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext
from ottla.api.raft.endpoints import fitting
from ottla.broker.services import Node
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from ottla.wire.messages import EndQuorumEpochRequest, EndQuorumEpochResponse


def handle(
    node: Node, ctx: RequestContext, request: EndQuorumEpochRequest
) -> EndQuorumEpochResponse | Outcome:
    answer = node.raft.handle_end_quorum_epoch(request, ctx.listener_name)
    return fitting(answer, ctx.version, told_from=1)


API = Api(ApiKey.END_QUORUM_EPOCH, handle)
