"""FindCoordinator (key 10), versions 0-6.

Which broker coordinates a group, a transactional id or a share partition.

1 adds the type of key and the throttle time; 3 is flexible; 4 takes several keys; 5 can return
TRANSACTION_ABORTABLE; 6 adds share partitions.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.api.authorization import allowed, cluster_allowed, refusal
from ottla.api.base import BY_HANDLER, Api, RequestContext
from ottla.api.cluster.nodes import NO_NODE, alive_node
from ottla.broker.services import Broker
from ottla.broker.topic_creation import auto_create_topics
from ottla.coordinator.runtime import partition_for
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.metadata.topic_names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, CoordinatorType, ResourceType
from ottla.wire.uuid import uuid_from_str

_BATCHED_FROM = 4
_SHARE_FROM = 6

_TOPICS = {
    CoordinatorType.GROUP: OFFSETS_TOPIC,
    CoordinatorType.TRANSACTION: TRANSACTIONS_TOPIC,
    CoordinatorType.SHARE: SHARE_STATE_TOPIC,
}


_RESOURCES = {
    CoordinatorType.GROUP: ResourceType.GROUP,
    CoordinatorType.TRANSACTION: ResourceType.TRANSACTIONAL_ID,
}


class Found(NamedTuple):
    """The coordinator of one key, or why there is none."""

    error: ErrorCode
    message: str | None = None
    node_id: BrokerId = NO_NODE
    host: str = ""
    port: int = -1


def handle(
    broker: Broker, ctx: RequestContext, request: messages.FindCoordinatorRequest
) -> messages.FindCoordinatorResponse:
    response = messages.FindCoordinatorResponse
    if ctx.version < _BATCHED_FROM:
        found = _find(broker, ctx, request.key_type, request.key)
        return response(
            error_code=found.error,
            error_message=found.message,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )
    coordinators = []
    for key in request.coordinator_keys:
        found = _find(broker, ctx, request.key_type, key)
        coordinators.append(
            response.Coordinator(
                key=key,
                error_code=found.error,
                error_message=found.message,
                node_id=found.node_id,
                host=found.host,
                port=found.port,
            )
        )
    return response(coordinators=coordinators)


def _find(broker: Broker, ctx: RequestContext, key_type: int, key: str) -> Found:
    try:
        kind = CoordinatorType(key_type)
    except ValueError:
        return Found(ErrorCode.INVALID_REQUEST, f"the coordinator type {key_type} is not known")
    if kind is CoordinatorType.SHARE:
        if ctx.version < _SHARE_FROM:
            return Found(ErrorCode.INVALID_REQUEST, f"version {ctx.version} has no share coordinators")
        if not is_share_key(key):
            return Found(ErrorCode.INVALID_REQUEST, f"'{key}' is not of the form group:topic id:partition")
    refused = _refusal(broker, ctx, kind, key)
    if refused is not None:
        return Found(refused.code, refused.message)
    topic_name = _TOPICS[kind]
    topic = broker.image.topics.by_name.get(topic_name)
    if topic is None:
        auto_create_topics(broker, [topic_name])
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic_name} is being created")
    partition = topic.partitions[partition_for(key, len(topic.partitions))]
    node = alive_node(broker, ctx, broker.image, partition.leader)
    if node is None or node.id in broker.peers.gone():
        return Found(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator's partition of {topic_name} has no leader"
        )
    return Found(ErrorCode.NONE, None, node.id, node.host, node.port)


def _refusal(broker: Broker, ctx: RequestContext, kind: CoordinatorType, key: str) -> ApiException | None:
    if kind is CoordinatorType.SHARE:
        may = cluster_allowed(broker, ctx, AclOperation.CLUSTER_ACTION)
        return None if may else refusal(ResourceType.CLUSTER)
    resource = _RESOURCES[kind]
    return None if allowed(broker, ctx, AclOperation.DESCRIBE, resource, key) else refusal(resource)


def is_share_key(key: str) -> bool:
    """`group:topic id:partition`; the group may contain colons itself."""
    parts = key.rsplit(":", 2)
    if len(parts) != 3 or not parts[0].strip():
        return False
    try:
        uuid_from_str(parts[1])
        int(parts[2])
    except (ValueError, ApiException):
        return False
    return True


def on_error(
    ctx: RequestContext, request: messages.FindCoordinatorRequest, error: ApiException
) -> messages.FindCoordinatorResponse:
    response = messages.FindCoordinatorResponse
    if ctx.version < _BATCHED_FROM:
        return response(error_code=error.code, error_message=error.message, node_id=NO_NODE, port=-1)
    return response(
        coordinators=[
            response.Coordinator(
                key=key, error_code=error.code, error_message=error.message, node_id=NO_NODE, port=-1
            )
            for key in request.coordinator_keys
        ]
    )


API = Api(ApiKey.FIND_COORDINATOR, handle, on_error, needs=BY_HANDLER)
