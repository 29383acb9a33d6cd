"""Fetch (key 1), versions 4-18.

Read record batches from partitions, waiting for them if there are too few.

4   isolation level, last stable offset, aborted transactions
5   log start offsets, of followers and in the answer
7   fetch sessions (KIP-227)
9   the leader epoch that the client believes in is checked
10  zstd
11  rack of the client, preferred read replica in the answer
12  flexible; last fetched epoch and diverging epoch
13  topic ids instead of names
14  nothing for clients (tiered storage's OFFSET_MOVED_TO_TIERED_STORAGE)
15  a follower tells its epoch: replica state instead of replica id
16  the answer hints at the leader where this broker is not it
17  replica directory id    18  high watermark of a follower (raft)
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.api.base import PARKED, Api, Message, Outcome, RequestContext
from ottla.api.data.leaders import LeaderHint, endpoints, leader_hint
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.replica.consumer_read import ConsumerRead, Results
from ottla.replica.fetch_sessions import (
    FetchContext,
    FetchPartition,
    FetchSession,
    PartitionData,
    PartitionKey,
)
from ottla.replica.follower_read import FollowerRead
from ottla.wire.apis import ApiKey
from ottla.wire.messages import FetchResponse

if TYPE_CHECKING:
    from ottla.wire.messages import FetchRequest

READ_COMMITTED: Final = 1
_MAX_AT_ONCE: Final = 8 << 20
"""Beyond this the first bytes of an answer leave the processor's caches before they are sent."""
_WORTH_A_PARTITION: Final = 8 << 10
"""To look at a partition takes as long as to send so much: those who ask for thousands get more at once."""
_FROM_FOLLOWERS: Final = 11
_TOPIC_IDS: Final = 13
_REPLICA_STATE: Final = 15
_LEADER_HINTS: Final = 16
_STORAGE_ERRORS: Final = 6

_FOLLOWER_SESSION: Final = "follower's fetch session"
_HINTED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_TopicResponse: Any = FetchResponse.FetchableTopicResponse


def handle(broker: Broker, ctx: RequestContext, request: FetchRequest) -> FetchResponse | Outcome:
    version = ctx.version
    replica_id = request.replica_id if version < _REPLICA_STATE else request.replica_state.replica_id
    session = broker.fetch_sessions.open(
        version,
        request.session_id,
        request.session_epoch,
        _asked_for(request, version),
        _forgotten(request, version) if request.forgotten_topics_data else (),
        follower=replica_id >= 0,
    )
    if session.error:
        return FetchResponse(error_code=session.error)
    replica_epoch = -1 if version < _REPLICA_STATE else request.replica_state.replica_epoch
    if replica_id >= 0 and session.session is not None:
        return _fetch_for_follower(broker, ctx, request, session.session, replica_id, replica_epoch)
    max_bytes = min(request.max_bytes, broker.config.int("fetch.max.bytes"))
    if replica_id < 0:
        max_bytes = min(max_bytes, _fit_for_one_answer(request, session.partitions))
    fetch = ConsumerRead(
        broker.replicas,
        session.partitions,
        partial(_respond, broker, ctx, session),
        max_bytes=max_bytes,
        min_bytes=request.min_bytes,
        # A follower that opens a session has more to say at once: the changes since.
        max_wait_ms=request.max_wait_ms if replica_id < 0 or request.session_epoch else 0,
        read_committed=request.isolation_level == READ_COMMITTED,
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        only_leader=version < _FROM_FOLLOWERS,
        rack=request.rack_id,
        incremental=session.incremental,
    )
    results = fetch.start()
    if results is not None:
        return _response(broker, ctx, session, results)
    ctx.on_close(fetch.cancel)
    return PARKED


def _fit_for_one_answer(request: Message, partitions: list[FetchPartition]) -> int:
    """What a consumer gets at once: as much as it insists on, but not all that it would take."""
    insists_on: int = request.min_bytes
    first = partitions[0].max_bytes if partitions else 0
    return max(_MAX_AT_ONCE, _WORTH_A_PARTITION * len(partitions), insists_on, first)


def _fetch_for_follower(
    broker: Broker,
    ctx: RequestContext,
    request: Message,
    session: FetchSession,
    replica_id: int,
    replica_epoch: int,
) -> Message | Outcome:
    def response(sent: list[tuple[FetchPartition, PartitionData]]) -> Message:
        return _assemble(broker, ctx, ErrorCode.NONE, session.id, sent)

    fetch = FollowerRead(
        broker.replicas,
        session,
        lambda sent: ctx.respond(response(sent)),
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        max_bytes=min(request.max_bytes, broker.config.int("fetch.max.bytes")),
        min_bytes=request.min_bytes,
        max_wait_ms=request.max_wait_ms,
    )
    sent = fetch.start()
    if sent is not None:
        return response(sent)
    ctx.on_close(fetch.cancel)
    return PARKED


def _asked_for(request: Message, version: int) -> list[FetchPartition]:
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


def _forgotten(request: Message, version: int) -> Iterable[PartitionKey]:
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if version >= _TOPIC_IDS else topic.topic
        for index in topic.partitions:
            yield key, index


def _respond(broker: Broker, ctx: RequestContext, session: FetchContext, results: Results) -> None:
    ctx.respond(_response(broker, ctx, session, results))


def _response(broker: Broker, ctx: RequestContext, session: FetchContext, results: Results) -> Message:
    error, session_id, sent = session.finish(results)
    if session.follower and session_id:
        # Its partitions need not be watched for a follower that has gone: it will open another session.
        ctx.on_disconnect(_FOLLOWER_SESSION, partial(broker.fetch_sessions.drop, session_id))
    return _assemble(broker, ctx, error, session_id, sent)


def _assemble(
    broker: Broker,
    ctx: RequestContext,
    error: ErrorCode,
    session_id: int,
    sent: Iterable[tuple[FetchPartition, PartitionData]],
) -> Message:
    version = ctx.version
    by_id = version >= _TOPIC_IDS
    topics: list[Any] = []
    response = FetchResponse(error_code=error, session_id=session_id, responses=topics)
    hints: list[LeaderHint] = []
    topic: str | bytes | None = None
    partitions: list[Any] = []
    for part, data in sent:
        if part.key[0] != topic:
            topic = part.key[0]
            partitions = []
            if by_id:
                topics.append(_TopicResponse(topic_id=topic, partitions=partitions))
            else:
                topics.append(_TopicResponse(topic=topic, partitions=partitions))
        if data.error_code:
            _explain(broker, ctx, part, data, hints)
        partitions.append(data)
    if hints:
        response.node_endpoints = endpoints(FetchResponse, hints)
    return response


def _explain(
    broker: Broker, ctx: RequestContext, part: FetchPartition, data: Message, hints: list[LeaderHint]
) -> None:
    """Say where the leader is; and to clients that know no storage errors, something that they retry."""
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


API = Api(ApiKey.FETCH, handle, on_error)
