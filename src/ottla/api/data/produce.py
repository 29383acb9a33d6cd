"""Produce (key 0), versions 3-13.

Append record batches to partitions.

3   transactional id; only batches of magic 2, one for each partition
5   log start offset in the response
7   zstd
8   the response names the records that were refused, and the reason
9   flexible
10  the response reports the leader if this broker does not lead the partition
11  KIP-890: the client can handle TRANSACTION_ABORTABLE
12  KIP-890 part 2: a transactional batch adds its partition to the transaction
13  topic ids instead of names

ApiVersions reports a range from 0, because old librdkafka clients check for it; versions 0 to 2 are not answered.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.api.authorization import allowed
from ottla.api.authorization import refusal as refusal_of
from ottla.api.base import BY_HANDLER, NO_RESPONSE, Api, Outcome, RequestContext
from ottla.api.data import produce_transactional
from ottla.api.data.leaders import LeaderHint, endpoints, leader_hint
from ottla.api.data.produce_pending import PendingProduce, count_failure, fill
from ottla.api.data.produce_transactional import NOT_TRANSACTIONAL, Verified
from ottla.api.data.produce_unready_logs import must_wait, wait_for_logs
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import AppendInfo
from ottla.metadata.topic_names import INTERNAL_TOPICS
from ottla.records.batch import TRANSACTIONAL_FLAG
from ottla.replica.partition import ACKS_ALL
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import ProduceResponse

if TYPE_CHECKING:
    from ottla.ids import TransactionalId
    from ottla.wire.messages import ProduceRequest

_ATTRIBUTES_LOW_BYTE: Final = 22
_TOPIC_IDS: Final = 13
_LEADER_HINTS: Final = 10
_WRITE: Final = 1 << AclOperation.WRITE
_ADMIN_CLIENT: Final = "__admin_client"

_TopicResponse = ProduceResponse.TopicProduceResponse
_PartitionResponse = ProduceResponse.PartitionProduceResponse


def handle(broker: Broker, ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | Outcome:
    refusal = _refusal(request)
    if refusal is None and broker.authorizer is not None and request.transactional_id is not None:
        refusal = _transactional_refusal(broker, ctx, request.transactional_id)
    if refusal is not None:
        return _finish(broker, ctx, request.acks, on_error(ctx, request, refusal))
    by_id = ctx.version >= _TOPIC_IDS
    if broker.replicas.unready and must_wait(broker, request, by_id=by_id):
        proceed = partial(_proceed, broker, ctx, request)
        return wait_for_logs(broker, ctx, request, proceed, on_error, by_id=by_id)
    return _proceed(broker, ctx, request)


def _proceed(broker: Broker, ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | Outcome:
    if request.transactional_id is not None:
        return produce_transactional.handle(broker, ctx, request, request.transactional_id, _append)
    return _append(broker, ctx, request, NOT_TRANSACTIONAL)


def _append(
    broker: Broker, ctx: RequestContext, request: ProduceRequest, verified: Verified
) -> ProduceResponse | Outcome:
    acks = request.acks
    find = broker.replicas.find
    refused, guards = verified
    version = ctx.version
    by_id = version >= _TOPIC_IDS
    now_ms = broker.clock.now_ms()
    topics: list[ProduceResponse.TopicProduceResponse] = []
    response = ProduceResponse(responses=topics)
    pending: PendingProduce | None = None
    failed = False
    denied: Collection[str | bytes] = ()
    authorizer = broker.authorizer
    if authorizer is not None:
        known = ctx.known_topics(authorizer.generation)
        for topic in request.topic_data:
            if not known.get(topic.topic_id if by_id else topic.name, 0) & _WRITE:
                asked = [topic.topic_id if by_id else topic.name for topic in request.topic_data]
                denied = denied_topics(broker, ctx, AclOperation.WRITE, asked)
                break
    for topic in request.topic_data:
        key = topic.topic_id if by_id else topic.name
        answers: list[ProduceResponse.PartitionProduceResponse] = []
        topics.append(_TopicResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
        for data in topic.partition_data:
            index = data.index
            partition = None
            try:
                if denied and key in denied:
                    raise NOT_AUTHORIZED
                partition = find((key, index))
                if partition.topic in INTERNAL_TOPICS and ctx.client_id != _ADMIN_CLIENT:
                    raise _internal(partition.topic)
                if refused and (key, index) in refused:
                    raise refused[key, index]
                guard = guards.get((key, index)) if guards else None
                result = partition.append(data.records or b"", acks, now_ms, version, guard)
            except ApiException as error:
                failed = True
                answers.append(_failed(index, error))
                if partition is not None:
                    count_failure(partition.counters, error, data.records)
                continue
            if isinstance(result, AppendInfo):
                answer = _PartitionResponse(
                    index=index,
                    base_offset=result.first_offset,
                    log_append_time_ms=result.log_append_time,
                    log_start_offset=result.log_start_offset,
                )
                answers.append(answer)
                if (
                    acks != ACKS_ALL or partition.has_committed(result.last_offset)
                ) and not partition.flush_due():
                    continue
            else:
                answer = _PartitionResponse(index=index)
                answers.append(answer)
            if pending is None:
                pending = PendingProduce(
                    broker, ctx, response, acks=acks, timeout_ms=request.timeout_ms, finish=_finish
                )
            if isinstance(result, AppendInfo):
                pending.secure(partition, result, answer)
            else:
                pending.append_later(partition, result, answer, guard)
    if pending is not None:
        return pending.start()
    return _finish(broker, ctx, acks, response) if failed or acks == 0 else response


def _transactional_refusal(
    broker: Broker, ctx: RequestContext, transactional_id: TransactionalId
) -> ApiException | None:
    kind = ResourceType.TRANSACTIONAL_ID
    return None if allowed(broker, ctx, AclOperation.WRITE, kind, transactional_id) else refusal_of(kind)


def _failed(index: int, error: ApiException) -> ProduceResponse.PartitionProduceResponse:
    answer = _PartitionResponse(index=index)
    fill(answer, error)
    return answer


def _refusal(request: ProduceRequest) -> ApiException | None:
    """The error if the whole request is refused."""
    if not -1 <= request.acks <= 1:
        return ApiException(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}, expected -1, 0 or 1")
    if request.transactional_id is None:
        for topic in request.topic_data:
            for data in topic.partition_data:
                records = data.records
                if (
                    records is not None
                    and len(records) > _ATTRIBUTES_LOW_BYTE
                    and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG
                ):
                    return ApiException(
                        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                        "Transactional records need a transactional id",
                    )
    return None


def _internal(topic: str) -> ApiException:
    return ApiException(
        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Clients may not write to the internal topic {topic}"
    )


def _finish(
    broker: Broker, ctx: RequestContext, acks: int, response: ProduceResponse
) -> ProduceResponse | Outcome:
    """Add the leader hints. With acks=0 there is no response: an error closes the connection instead."""
    hints: list[LeaderHint] = []
    for topic in response.responses:
        for answer in topic.partition_responses:
            code = answer.error_code
            if not code:
                continue
            ctx.note_error(code)
            if acks == 0:
                ctx.abort()
                return NO_RESPONSE
            if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and ctx.version >= _LEADER_HINTS:
                key = topic.topic_id if ctx.version >= _TOPIC_IDS else topic.name
                hint = leader_hint(broker, ctx, key, answer.index)
                hints.append(hint)
                answer.current_leader = ProduceResponse.LeaderIdAndEpoch(
                    leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
                )
    if hints:
        response.node_endpoints = endpoints(ProduceResponse.NodeEndpoint, hints)
    return NO_RESPONSE if acks == 0 else response


def on_error(ctx: RequestContext, request: ProduceRequest, error: ApiException) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            _TopicResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_failed(data.index, error) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


API = Api(ApiKey.PRODUCE, handle, on_error, gated=True, needs=BY_HANDLER)
