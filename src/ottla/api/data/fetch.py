"""Fetch (key 1), versions 4-18.

Read record batches from partitions, waiting for them if there are too few.

4   isolation level, last stable offset, aborted transactions
5   log start offsets, in followers' requests and in the response
7   fetch sessions (KIP-227)
9   the client's leader epoch is checked
10  zstd
11  rack of the client, preferred read replica in the response
12  flexible; last fetched epoch and diverging epoch
13  topic ids instead of names
14  nothing for clients (tiered storage's OFFSET_MOVED_TO_TIERED_STORAGE)
15  a follower reports its broker epoch: replica state instead of replica id
16  the response reports the leader if this broker does not lead the partition
17  replica directory id    18  high watermark of a follower (raft)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.api.authorization import cluster_allowed
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.leaders import LeaderHint, endpoints, leader_hint
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.api.node_requests import speaks_for
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.replica.consumer_read import ConsumerRead, Results
from ottla.replica.fetch_partition import FetchPartition, PartitionKey
from ottla.replica.fetch_sessions import FetchContext, FollowerSession
from ottla.replica.follower_read import FollowerRead, Sent
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import FetchResponse

if TYPE_CHECKING:
    from ottla.wire.messages import FetchRequest

READ_COMMITTED: Final = 1
_READ: Final = 1 << AclOperation.READ
_LARGE_RESPONSE: Final = 8 << 20
"""Beyond this the first bytes of a response leave the processor's caches before they are sent."""
_WORTH_A_PARTITION: Final = 8 << 10
"""Looking at a partition takes as long as sending this much: a fetch of thousands gets a larger response."""
_PARTITION_BYTES: Final = 40
"""What a partition takes in a response besides its records."""
_FROM_FOLLOWERS: Final = 11
_TOPIC_IDS: Final = 13
_REPLICA_STATE: Final = 15
_LEADER_HINTS: Final = 16
_STORAGE_ERRORS: Final = 6

_FOLLOWER_SESSION: Final = "follower's fetch session"
_HINTED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_TopicResponse = FetchResponse.FetchableTopicResponse


def handle(broker: Broker, ctx: RequestContext, request: FetchRequest) -> FetchResponse | Outcome:
    version = ctx.version
    replica_id = request.replica_id if version < _REPLICA_STATE else request.replica_state.replica_id
    context = broker.fetch_sessions.open(
        version,
        request.session_id,
        request.session_epoch,
        _requested(request, version),
        _forgotten(request, version) if request.forgotten_topics_data else (),
        follower=replica_id >= 0,
    )
    if context.error:
        ctx.note_error(context.error)
        return FetchResponse(error_code=context.error)
    if context.follower is not None:
        ctx.from_follower()
        if not (
            speaks_for(broker, ctx, (replica_id,))
            and cluster_allowed(broker, ctx, AclOperation.CLUSTER_ACTION)
        ):
            return _denied_follower(broker, ctx, request)
        if ctx.meter is not None:
            ctx.meter.exempt()
        return _fetch_for_follower(broker, ctx, request, context, context.follower, replica_id)
    max_bytes = min(request.max_bytes, broker.config.int("fetch.max.bytes"))
    min_bytes = request.min_bytes
    if ctx.metered and (most := ctx.max_fetch_bytes()) is not None:
        max_bytes = min(max_bytes, most)
        min_bytes = min(min_bytes, max_bytes)
    partitions = context.partitions
    respond = partial(_respond, broker, ctx, context)
    denied: Set[str | bytes] = frozenset()
    authorizer = broker.authorizer
    if authorizer is not None:
        known = ctx.known_topics(authorizer.generation)
        for part in partitions:
            if not known.get(part.key[0], 0) & _READ:
                denied = denied_topics(broker, ctx, AclOperation.READ, (part.key[0] for part in partitions))
                partitions = [part for part in partitions if part.key[0] not in denied]
                break
    read = ConsumerRead(
        broker.replicas,
        partitions,
        respond if not denied else lambda results: respond(_with_denied(context.partitions, denied, results)),
        max_bytes=min(max_bytes, _response_size(request, partitions)),
        min_bytes=min_bytes,
        # An error is answered at once.
        max_wait_ms=0 if denied else request.max_wait_ms,
        read_committed=request.isolation_level == READ_COMMITTED,
        only_leader=version < _FROM_FOLLOWERS,
        rack=request.rack_id,
    )
    results = read.start()
    if results is not None:
        if denied:
            results = _with_denied(context.partitions, denied, results)
        return _response(broker, ctx, context, results)
    ctx.on_close(read.cancel)
    return PARKED


def _with_denied(partitions: Sequence[FetchPartition], denied: Set[str | bytes], results: Results) -> Results:
    """The results of all partitions, from those that the client may read."""
    rest = iter(results)
    return [_denied(part.key[1]) if part.key[0] in denied else next(rest) for part in partitions]


def _denied(index: int) -> FetchResponse.PartitionData:
    return FetchResponse.PartitionData(
        partition_index=index, error_code=NOT_AUTHORIZED.code, high_watermark=-1, records=b""
    )


def _denied_follower(broker: Broker, ctx: RequestContext, request: FetchRequest) -> FetchResponse:
    """The answer to a client that poses as a follower: an error for each partition, and no session."""
    asked = _requested(request, ctx.version)
    return _assemble(broker, ctx, ErrorCode.NONE, 0, [(part, _denied(part.key[1])) for part in asked])


def _response_size(request: FetchRequest, partitions: Sequence[FetchPartition]) -> int:
    """What a consumer gets in one response: as much as it insists on, but not all that it would take."""
    first = partitions[0].max_bytes if partitions else 0
    return max(_LARGE_RESPONSE, _WORTH_A_PARTITION * len(partitions), request.min_bytes, first)


def _fetch_for_follower(
    broker: Broker,
    ctx: RequestContext,
    request: FetchRequest,
    context: FetchContext,
    session: FollowerSession,
    replica_id: BrokerId,
) -> FetchResponse | Outcome:
    full = not context.incremental

    def response(sent: Sent) -> FetchResponse:
        session_id = context.open_session(sent)
        if full and session_id:
            # The session ends with its connection: a follower that connects again opens another.
            ctx.on_disconnect(_FOLLOWER_SESSION, partial(broker.fetch_sessions.drop, session_id))
        for part, data in sent:
            if part.partition is not None and data.records:
                part.partition.counters.replication_bytes_out += len(data.records)
        return _assemble(broker, ctx, ErrorCode.NONE, session_id, sent)

    read = FollowerRead(
        broker.replicas,
        session,
        lambda sent: ctx.respond(response(sent)),
        replica_id=replica_id,
        replica_epoch=-1 if ctx.version < _REPLICA_STATE else request.replica_state.replica_epoch,
        max_bytes=min(request.max_bytes, broker.config.int("fetch.max.bytes")),
        min_bytes=request.min_bytes,
        # A fetch that opens a session does not wait: the follower sends its changes with the next one.
        max_wait_ms=request.max_wait_ms if request.session_epoch else 0,
    )
    sent = read.start()
    if sent is not None:
        return response(sent)
    ctx.on_close(read.cancel)
    return PARKED


def _requested(request: FetchRequest, version: int) -> list[FetchPartition]:
    return [
        FetchPartition(
            topic.topic_id if version >= _TOPIC_IDS else topic.topic,
            part.partition,
            part.fetch_offset,
            part.partition_max_bytes,
            part.current_leader_epoch,
            part.last_fetched_epoch,
            part.log_start_offset,
        )
        for topic in request.topics
        for part in topic.partitions
    ]


def _forgotten(request: FetchRequest, version: int) -> Iterable[PartitionKey]:
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if version >= _TOPIC_IDS else topic.topic
        for index in topic.partitions:
            yield key, index


def _respond(broker: Broker, ctx: RequestContext, context: FetchContext, results: Results) -> None:
    ctx.respond(_response(broker, ctx, context, results))


def _response(broker: Broker, ctx: RequestContext, context: FetchContext, results: Results) -> FetchResponse:
    if ctx.metered and (throttle_ms := ctx.fetched(_size(results))):
        error, session_id = context.throttled()
        return FetchResponse(error_code=error, session_id=session_id, throttle_time_ms=throttle_ms)
    error, session_id, sent = context.finish(results)
    for part, data in sent:
        if part.partition is not None and data.records:
            part.partition.counters.bytes_out += len(data.records)
    return _assemble(broker, ctx, error, session_id, sent)


def _size(results: Results) -> int:
    """What the response takes, but for a few bytes for each topic."""
    size = 0
    for data in results:
        if data is not None:
            size += len(data.records or b"") + _PARTITION_BYTES
    return size


def _assemble(
    broker: Broker,
    ctx: RequestContext,
    error: ErrorCode,
    session_id: int,
    sent: Iterable[tuple[FetchPartition, FetchResponse.PartitionData]],
) -> FetchResponse:
    topics: list[FetchResponse.FetchableTopicResponse] = []
    response = FetchResponse(error_code=error, session_id=session_id, responses=topics)
    hints: list[LeaderHint] = []
    topic: str | bytes | None = None
    partitions: list[FetchResponse.PartitionData] = []
    for part, data in sent:
        if part.key[0] != topic:
            topic = part.key[0]
            partitions = []
            if isinstance(topic, bytes):
                topics.append(_TopicResponse(topic_id=topic, partitions=partitions))
            else:
                topics.append(_TopicResponse(topic=TopicName(topic), partitions=partitions))
        if data.error_code:
            ctx.note_error(data.error_code)
            _explain(broker, ctx, part, data, hints)
        partitions.append(data)
    if hints:
        response.node_endpoints = endpoints(FetchResponse.NodeEndpoint, hints)
    return response


def _explain(
    broker: Broker,
    ctx: RequestContext,
    part: FetchPartition,
    data: FetchResponse.PartitionData,
    hints: list[LeaderHint],
) -> None:
    """Add where the leader is. Clients that do not know storage errors get an error that they retry instead."""
    version = ctx.version
    if data.error_code in _HINTED and version >= _LEADER_HINTS:
        hint = leader_hint(broker, ctx, *part.key)
        hints.append(hint)
        data.current_leader = FetchResponse.LeaderIdAndEpoch(
            leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
        )
    elif data.error_code == ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERRORS:
        data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


def on_error(ctx: RequestContext, request: FetchRequest, error: ApiException) -> FetchResponse:
    if ctx.version >= 7:
        return FetchResponse(error_code=error.code)
    return FetchResponse(
        responses=[
            _TopicResponse(
                topic=topic.topic,
                partitions=[
                    FetchResponse.PartitionData(
                        partition_index=part.partition, error_code=error.code, high_watermark=-1, records=b""
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(ApiKey.FETCH, handle, on_error, needs=BY_HANDLER)
