"""AlterShareGroupOffsets (key 91), version 0.

Restarts partitions of a share group without members at other offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.share.requests import require_share_groups
from ottla.broker.services import Broker
from ottla.coordinator.group.service import require_group_id
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import AlterShareGroupOffsetsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import AlterShareGroupOffsetsRequest


def handle(
    broker: Broker, ctx: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse | Outcome:
    require_share_groups(broker)
    require_group_id(request.group_id)

    def failed(error: ApiException) -> None:
        ctx.respond(AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message))

    broker.share.groups.alter_offsets(request, ctx.respond, failed)
    return PARKED


API = Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, handle, needs=BY_HANDLER)
