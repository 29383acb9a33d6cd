"""StreamsGroupHeartbeat (key 88), version 0.

Joins a streams group, stays in it or leaves it (KIP-1071).

It also creates missing internal topics of the group's topology: the member gets MISSING_INTERNAL_TOPICS and retries.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.api.authorization import cluster_allowed, require
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.api.groups.requests import info_of
from ottla.broker.services import Broker
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.streams.heartbeat import HeartbeatResult
from ottla.coordinator.group.streams.status import StatusCode
from ottla.coordinator.group.streams.topology import TopicInfo
from ottla.coordinator.group.streams.validate import validate_heartbeat
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.metadata.topic_names import is_internal, why_invalid
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import CreateTopicsRequest, StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.wire.messages import CreateTopicsResponse, StreamsGroupHeartbeatRequest

_logger = logging.getLogger(__name__)

_FEATURE: Final = "streams.version"
_USE_DEFAULT: Final = -1
_NAMED_IN_A_SENTENCE: Final = 3


def require_streams_protocol(broker: Broker) -> None:
    """Raise UNSUPPORTED_VERSION, without a message as Kafka does, if a config or the feature's level disables it."""
    protocols = broker.config.list("group.coordinator.rebalance.protocols")
    if GroupType.STREAMS.value not in protocols or broker.image.features.get(_FEATURE, 0) < 1:
        raise ApiException(ErrorCode.UNSUPPORTED_VERSION)


def handle(
    broker: Broker, ctx: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse | Outcome:
    require_streams_protocol(broker)
    require(broker, ctx, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if request.topology is not None:
        topics = _topics_of(request.topology)
        _check_topics(topics)
        if denied_topics(broker, ctx, AclOperation.DESCRIBE, sorted(topics)):
            raise NOT_AUTHORIZED
    validate_heartbeat(request)
    info = info_of(ctx)

    def done(result: HeartbeatResult) -> None:
        if result.topics_to_create:
            may_create = _creatable_by(broker, ctx, result.topics_to_create)
            _create(broker, may_create, result.response.heartbeat_interval_ms)
            _report_failures(broker, result)
        ctx.respond(result.response)

    def failed(error: ApiException) -> None:
        ctx.respond(StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None))

    broker.groups.write(
        request.group_id, lambda shard, now_ms: shard.streams.heartbeat(info, request, now_ms), done, failed
    )
    return PARKED


def _creatable_by(
    broker: Broker, ctx: RequestContext, topics: Mapping[TopicName, TopicInfo]
) -> Mapping[TopicName, TopicInfo]:
    """The internal topics that the client may create; the status says which are missing."""
    if cluster_allowed(broker, ctx, AclOperation.CREATE, log_denied=False):
        return topics
    denied = denied_topics(broker, ctx, AclOperation.CREATE, topics)
    return {name: info for name, info in topics.items() if name not in denied}


def _topics_of(topology: StreamsGroupHeartbeatRequest.Topology) -> set[TopicName]:
    return {
        name
        for one in topology.subtopologies
        for name in (
            *one.source_topics,
            *one.repartition_sink_topics,
            *(topic.name for topic in one.repartition_source_topics),
            *(topic.name for topic in one.state_changelog_topics),
        )
    }


def _check_topics(topics: set[TopicName]) -> None:
    internal = sorted(filter(is_internal, topics))
    if internal:
        raise ApiException(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited.",
        )
    invalid = sorted(filter(why_invalid, topics))
    if invalid:
        raise ApiException(
            ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Topic names {','.join(invalid)} are not valid topic names."
        )


def _create(broker: Broker, topics: Mapping[TopicName, TopicInfo], interval_ms: int) -> None:
    creations = broker.creations
    names = creations.begin(topics, broker.clock.monotonic())
    if not names:
        return

    def remember(name: TopicName, why: str | None) -> None:
        _logger.warning("Cannot create internal topic %s: %s", name, why)
        creations.failed(name, why or "unknown reason", broker.clock.monotonic() + 2 * interval_ms / 1000)

    def created(response: CreateTopicsResponse) -> None:
        creations.end(names)
        for topic in response.topics:
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                remember(topic.name, topic.error_message)

    def failed(error: ApiException) -> None:
        creations.end(names)
        for name in names:
            remember(name, error.message)

    timeout_ms = broker.config.int("request.timeout.ms")
    request = CreateTopicsRequest(topics=[_creatable(topics[name]) for name in names], timeout_ms=timeout_ms)
    broker.to_controller.send(request, created, failed, timeout_s=timeout_ms / 1000)


def _creatable(topic: TopicInfo) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or _USE_DEFAULT,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in topic.configs
        ],
    )


def _report_failures(broker: Broker, result: HeartbeatResult) -> None:
    failures = broker.creations.failures(result.topics_to_create, broker.clock.monotonic())
    if not failures:
        return
    listed = ", ".join(f"{name} ({why})" for name, why in list(failures.items())[:_NAMED_IN_A_SENTENCE])
    if len(failures) > _NAMED_IN_A_SENTENCE:
        listed += f" and {len(failures) - _NAMED_IN_A_SENTENCE} more"
    for status in result.response.status or ():
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; Creation failed: {listed}."


API = Api(ApiKey.STREAMS_GROUP_HEARTBEAT, handle, needs=BY_HANDLER)
