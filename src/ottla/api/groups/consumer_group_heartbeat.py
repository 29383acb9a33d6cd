"""ConsumerGroupHeartbeat (key 68), versions 0-1.

Joins a consumer group, stays in it, reconciles with it or leaves it (KIP-848).

1 adds the regular expression over topic names, and lets the client create its member id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.authorization import require
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.api.groups.requests import info_of
from ottla.broker.services import Broker
from ottla.coordinator.group.consumer.heartbeat import validate
from ottla.coordinator.group.group import GroupType
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.wire.messages import ConsumerGroupHeartbeatRequest

_FEATURE = "group.version"


def require_consumer_protocol(broker: Broker) -> None:
    """Raise UNSUPPORTED_VERSION, without a message as Kafka does, if a config or the feature's level disables it."""
    protocols = broker.config.list("group.coordinator.rebalance.protocols")
    if GroupType.CONSUMER.value not in protocols or broker.image.features.get(_FEATURE, 0) < 1:
        raise ApiException(ErrorCode.UNSUPPORTED_VERSION)


def handle(
    broker: Broker, ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Outcome:
    require_consumer_protocol(broker)
    require(broker, ctx, AclOperation.READ, ResourceType.GROUP, request.group_id)
    validate(request, ctx.version, broker.config)
    if denied_topics(broker, ctx, AclOperation.DESCRIBE, request.subscribed_topic_names or ()):
        raise NOT_AUTHORIZED
    info = info_of(ctx, broker)

    def failed(error: ApiException) -> None:
        ctx.respond(
            ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)
        )

    broker.groups.write(
        request.group_id,
        lambda shard, now_ms: shard.consumer.heartbeat(info, request, now_ms),
        ctx.respond,
        failed,
    )
    return PARKED


API = Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, handle, needs=BY_HANDLER)
