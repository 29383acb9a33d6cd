"""Metadata (key 3), versions 0-13.

Brokers, and topics with their partitions' leaders.

0 has no way to ask for no topics: an empty list means all. 1 adds racks, the controller and internal topics; 2 the
cluster id; 4 whether topics may be created; 5 offline replicas; 6 LISTENER_NOT_FOUND; 7 leader epochs; 8 authorized
operations; 9 is flexible; 10 topic ids in the answer, 12 in the request; 11 drops the cluster's operations; 13 adds
an error for the whole answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.api.base import PARKED, Api, Message, Outcome, RequestContext
from ottla.api.cluster.nodes import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, advertised_controller, nodes
from ottla.api.cluster.partitions import ListenerView
from ottla.broker.auto_topic_creation import auto_create_topics
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import PartitionRegistration, TopicImage
from ottla.metadata.topic_names import is_internal, why_invalid
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.uuid import ZERO_UUID

_TOPIC_IDS_FROM = 12


_LOOK_AGAIN_S: Final = 0.01
_LOOKS: Final = 30
"""So often and so long an answer waits for the successor of a leader whose process has just gone."""
_HELD_BACK_PARTITIONS: Final = 1000


def handle(
    broker: Broker, ctx: RequestContext, request: messages.MetadataRequest
) -> messages.MetadataResponse | Outcome:
    if broker.peers.gone() and _names_the_dead(broker, request):
        _answer_later(broker, ctx, request, _LOOKS)
        return PARKED
    return _answer(broker, ctx, request)


def _names_the_dead(broker: Broker, request: Message) -> bool:
    """Whether the answer would send the client to a leader that is gone: it comes to ask because it has seen that.

    Looked at again and again, so only for few partitions: who asks for all topics is answered at once.
    """
    gone, topics = broker.peers.gone(), broker.image.topics
    found = [
        topics.by_name.get(asked.name) if asked.name else topics.by_id.get(asked.topic_id)
        for asked in request.topics or ()
    ]
    known = [topic for topic in found if topic is not None]
    if sum(len(topic.partitions) for topic in known) > _HELD_BACK_PARTITIONS:
        return False
    return any(partition.leader in gone for topic in known for partition in topic.partitions.values())


def _answer_later(broker: Broker, ctx: RequestContext, request: Message, looks: int) -> None:
    """A new leader is about to be elected. A client that is told the old one would ask again only after a second."""
    if ctx.closed:
        return
    if looks and broker.peers.gone() and _names_the_dead(broker, request):
        broker.clock.call_later(_LOOK_AGAIN_S, _answer_later, broker, ctx, request, looks - 1)
    else:
        ctx.respond(_answer(broker, ctx, request))


def _answer(broker: Broker, ctx: RequestContext, request: Message) -> Message:
    version = ctx.version
    image = broker.image
    response = messages.MetadataResponse
    all_topics = request.topics is None or (version == 0 and not request.topics)
    if all_topics:
        view = ListenerView(image, ctx.listener_name, broker.peers.gone())
        topics = [_existing(ctx, view, topic) for topic in image.topics.by_name.values()]
    else:
        topics = _asked_for(broker, ctx, request)
    if version >= 8 and request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    known = list(nodes(broker, ctx, image))
    alive = [node for node in known if not node.fenced]
    answer = response(
        brokers=[
            response.MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in known
            if not node.fenced or broker.departures.still_listed(node.id)
        ],
        cluster_id=broker.cluster_id,
        controller_id=advertised_controller(broker, alive),
        topics=topics,
    )
    if 8 <= version <= 10 and request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer


def _asked_for(broker: Broker, ctx: RequestContext, request: Message) -> list[Message]:
    if ctx.version < _TOPIC_IDS_FROM:
        for topic in request.topics:
            if topic.name is None or (ctx.version >= 10 and topic.topic_id != ZERO_UUID):
                raise ApiException(
                    ErrorCode.INVALID_REQUEST,
                    f"version {ctx.version} of Metadata asks for topics by name, not by id",
                )
    ids = {topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID}
    if ids:
        return _by_id(broker, ctx, ids)
    return _by_name(broker, ctx, request)


def _by_id(broker: Broker, ctx: RequestContext, ids: Iterable[bytes]) -> list[Message]:
    topics = broker.image.topics.by_id
    view = ListenerView(broker.image, ctx.listener_name, broker.peers.gone())
    return [
        _existing(ctx, view, topics[topic_id])
        if topic_id in topics
        else messages.MetadataResponse.MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
        )
        for topic_id in ids
    ]


def _by_name(broker: Broker, ctx: RequestContext, request: Message) -> list[Message]:
    topics = broker.image.topics.by_name
    view = ListenerView(broker.image, ctx.listener_name, broker.peers.gone())
    names = dict.fromkeys(topic.name for topic in request.topics if topic.name is not None)
    missing = [name for name in names if name not in topics]
    errors: dict[str, ErrorCode] = {}
    if missing:
        may_create = request.allow_auto_topic_creation and broker.config.bool("auto.create.topics.enable")
        errors = (
            auto_create_topics(broker, missing) if may_create else {name: _absence(name) for name in missing}
        )
    found = [_existing(ctx, view, topics[name]) for name in names if name in topics]
    return found + [
        messages.MetadataResponse.MetadataResponseTopic(
            error_code=error, name=name, is_internal=is_internal(name)
        )
        for name, error in errors.items()
    ]


def _absence(name: str) -> ErrorCode:
    return ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _existing(ctx: RequestContext, view: ListenerView, topic: TopicImage) -> Message:
    return messages.MetadataResponse.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(ctx, view, index, partition) for index, partition in topic.partitions.items()],
    )


def _partition(
    ctx: RequestContext, view: ListenerView, index: int, partition: PartitionRegistration
) -> Message:
    replicas, isr = list(partition.replicas), list(partition.isr)
    leader = view.leader(partition)
    error = ErrorCode.NONE
    if ctx.version == 0:
        # The oldest clients do not know about brokers that are not in the list: they get an error instead.
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
                name=topic.name if named or topic.name is not None else "",
                topic_id=topic.topic_id,
            )
            for topic in request.topics or ()
        ],
    )


API = Api(ApiKey.METADATA, handle, on_error)
