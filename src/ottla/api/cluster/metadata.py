"""Metadata (key 3), versions 0-13.

Brokers, and topics with their partitions' leaders.

In 0 an empty list means all topics. 1 adds racks, the controller and internal topics; 2 the
cluster id; 4 whether topics may be created; 5 offline replicas; 6 LISTENER_NOT_FOUND; 7 leader epochs; 8 authorized
operations; 9 is flexible; 10 topic ids in the response, 12 in the request; 11 drops the cluster's operations; 13
adds an error for the whole response.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.api.authorization import allowed, authorized_operations, cluster_allowed, split
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.cluster.nodes import advertised_controller, cluster_operations, nodes
from ottla.api.cluster.partitions import ListenerView
from ottla.broker.services import Broker
from ottla.broker.topic_creation import auto_create_topics
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.metadata.image import PartitionRegistration, TopicImage
from ottla.metadata.topic_names import is_internal, why_invalid
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.uuid import ZERO_UUID

if TYPE_CHECKING:
    Topic = messages.MetadataResponse.MetadataResponseTopic

_TOPIC_IDS_FROM: Final = 12
_RETRY_S: Final = 0.01
_RETRIES: Final = 30
"""How long a response waits for the successor of a leader whose process has just died."""
_MAX_DELAYED_PARTITIONS: Final = 1000


def handle(
    broker: Broker, ctx: RequestContext, request: messages.MetadataRequest
) -> messages.MetadataResponse | Outcome:
    if broker.peers.gone() and _mentions_unreachable_leader(broker, request):
        _respond_later(broker, ctx, request, _RETRIES)
        return PARKED
    return _response(broker, ctx, request)


def _mentions_unreachable_leader(broker: Broker, request: messages.MetadataRequest) -> bool:
    """Whether the response would name a leader that is dead: the client asks because it has lost its leader.

    This check is repeated, so it covers few partitions: requests for all topics are answered at once.
    """
    gone, topics = broker.peers.gone(), broker.image.topics
    found = [
        topics.by_name.get(asked.name) if asked.name else topics.by_id.get(asked.topic_id)
        for asked in request.topics or ()
    ]
    known = [topic for topic in found if topic is not None]
    if sum(len(topic.partitions) for topic in known) > _MAX_DELAYED_PARTITIONS:
        return False
    return any(partition.leader in gone for topic in known for partition in topic.partitions.values())


def _respond_later(
    broker: Broker, ctx: RequestContext, request: messages.MetadataRequest, retries: int
) -> None:
    """Wait for the election of a new leader. A client that gets the old one would retry only after a second."""
    if ctx.closed:
        return
    if retries and broker.peers.gone() and _mentions_unreachable_leader(broker, request):
        broker.clock.call_later(_RETRY_S, _respond_later, broker, ctx, request, retries - 1)
    else:
        ctx.respond(_response(broker, ctx, request))


def _response(
    broker: Broker, ctx: RequestContext, request: messages.MetadataRequest
) -> messages.MetadataResponse:
    version = ctx.version
    image = broker.image
    response = messages.MetadataResponse
    if request.topics is None or (version == 0 and not request.topics):
        view = ListenerView(image, ctx.listener_name, broker.peers.gone())
        described, _ = split(
            broker,
            ctx,
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            image.topics.by_name.values(),
            lambda topic: topic.name,
            log_denied=False,
        )
        topics = [_existing(ctx, view, topic) for topic in described]
    else:
        topics = _requested(broker, ctx, request, request.topics)
    if version >= 8 and request.include_topic_authorized_operations:
        for topic in topics:
            # As in Kafka, a topic that does not exist yet has them too.
            if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = authorized_operations(
                    broker, ctx, ResourceType.TOPIC, topic.name
                )
    known = list(nodes(broker, ctx, image))
    alive = [node for node in known if not node.fenced]
    # librdkafka forgets the brokers that a response lacks. While a whole cluster starts, all of them are fenced for
    # some milliseconds: with none listed it may have nobody to ask for ever. Kafka's own clients ignore such a
    # response.
    listed = [node for node in known if not node.fenced or broker.departures.still_listed(node.id)] or known
    result = response(
        brokers=[
            response.MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in listed
        ],
        cluster_id=broker.cluster_id,
        controller_id=advertised_controller(broker, alive),
        topics=topics,
    )
    if 8 <= version <= 10 and request.include_cluster_authorized_operations:
        result.cluster_authorized_operations = cluster_operations(broker, ctx)
    return result


def _requested(
    broker: Broker,
    ctx: RequestContext,
    request: messages.MetadataRequest,
    topics: list[messages.MetadataRequest.MetadataRequestTopic],
) -> list[Topic]:
    if ctx.version < _TOPIC_IDS_FROM:
        for topic in topics:
            if topic.name is None or (ctx.version >= 10 and topic.topic_id != ZERO_UUID):
                raise ApiException(
                    ErrorCode.INVALID_REQUEST,
                    f"version {ctx.version} of Metadata names topics by name, not by id",
                )
    ids = {topic.topic_id for topic in topics if topic.topic_id != ZERO_UUID}
    if ids:
        return _by_id(broker, ctx, ids)
    names = dict.fromkeys(topic.name for topic in topics if topic.name is not None)
    described, denied = split(
        broker, ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, names, lambda name: name
    )
    found = _by_name(broker, ctx, described, allow_creation=request.allow_auto_topic_creation)
    return found + [_denied(name) for name in denied]


def _denied(name: TopicName | None, topic_id: bytes = ZERO_UUID) -> Topic:
    """A topic that the client may not know of, whether it exists or not."""
    return messages.MetadataResponse.MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=name,
        topic_id=topic_id,
        is_internal=name is not None and is_internal(name),
    )


def _by_id(broker: Broker, ctx: RequestContext, ids: Iterable[bytes]) -> list[Topic]:
    topics = broker.image.topics.by_id
    view = ListenerView(broker.image, ctx.listener_name, broker.peers.gone())
    found: list[Topic] = []
    for topic_id in ids:
        topic = topics.get(topic_id)
        if topic is None:
            found.append(
                messages.MetadataResponse.MetadataResponseTopic(
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
                )
            )
        elif not allowed(broker, ctx, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
            found.append(_denied(None, topic_id))
        else:
            found.append(_existing(ctx, view, topic))
    return found


def _by_name(
    broker: Broker, ctx: RequestContext, names: Collection[TopicName], *, allow_creation: bool
) -> list[Topic]:
    topics = broker.image.topics.by_name
    view = ListenerView(broker.image, ctx.listener_name, broker.peers.gone())
    missing = [name for name in names if name not in topics]
    errors: Mapping[TopicName, ErrorCode] = {}
    if missing:
        may_create = allow_creation and broker.config.bool("auto.create.topics.enable")
        refused: list[TopicName] = []
        if may_create and not cluster_allowed(broker, ctx, AclOperation.CREATE, log_denied=False):
            missing, refused = split(
                broker, ctx, AclOperation.CREATE, ResourceType.TOPIC, missing, lambda name: name
            )
        errors = (
            auto_create_topics(broker, missing) if may_create else {name: _absence(name) for name in missing}
        )
        errors = {**errors, **dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)}
    found = [_existing(ctx, view, topics[name]) for name in names if name in topics]
    return found + [
        messages.MetadataResponse.MetadataResponseTopic(
            error_code=error, name=name, is_internal=is_internal(name)
        )
        for name, error in errors.items()
    ]


def _absence(name: str) -> ErrorCode:
    return ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _existing(ctx: RequestContext, view: ListenerView, topic: TopicImage) -> Topic:
    return messages.MetadataResponse.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(ctx, view, index, partition) for index, partition in topic.partitions.items()],
    )


def _partition(
    ctx: RequestContext, view: ListenerView, index: int, partition: PartitionRegistration
) -> messages.MetadataResponse.MetadataResponsePartition:
    replicas, isr = list(partition.replicas), list(partition.isr)
    leader = view.leader(partition)
    error = ErrorCode.NONE
    if ctx.version == 0:
        # The oldest clients cannot handle brokers that are not in the list: they get an error instead.
        replicas = [replica for replica in replicas if view.reachable(replica)]
        isr = [replica for replica in isr if view.reachable(replica)]
        if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    if leader < 0:
        error = view.missing_leader_error(partition, ctx.version)
    return messages.MetadataResponse.MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=view.offline(partition),
    )


def on_error(
    ctx: RequestContext, request: messages.MetadataRequest, error: ApiException
) -> messages.MetadataResponse:
    response = messages.MetadataResponse
    named = ctx.version >= _TOPIC_IDS_FROM
    return response(
        error_code=error.code,
        topics=[
            response.MetadataResponseTopic(
                error_code=error.code,
                name=topic.name if named or topic.name is not None else TopicName(""),
                topic_id=topic.topic_id,
            )
            for topic in request.topics or ()
        ],
    )


API = Api(ApiKey.METADATA, handle, on_error, needs=BY_HANDLER)
