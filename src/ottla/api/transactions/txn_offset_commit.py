"""TxnOffsetCommit (key 28), versions 0-5.

Commits offsets of a group as part of a transaction.

2 adds the leader epoch; 3 is flexible and names the member, which is checked
4 (KIP-890): the client can handle TRANSACTION_ABORTABLE
5 (KIP-890 part 2): the request itself adds the group's partition to the transaction
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ottla.api.authorization import require
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.topic_rights import NOT_AUTHORIZED, denied_topics
from ottla.broker.services import Broker
from ottla.broker.verification import Errors, Supported, add_or_verify
from ottla.coordinator.errors import coordinator_error
from ottla.coordinator.group.context import RequestInfo
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.log.types import TopicPartition
from ottla.log.verification import UNVERIFIED, VerificationGuard
from ottla.metadata.topic_names import OFFSETS_TOPIC
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_LOADING_FROM: Final = 2
_ABORTABLE_FROM: Final = 4
_ADDS_FROM: Final = 5
_NO_SEQUENCE: Final = -1

_RequestTopic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_RequestPartition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
_ResponseTopic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic


def handle(
    broker: Broker, ctx: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Outcome:
    if not request.group_id:
        raise ApiException(ErrorCode.INVALID_GROUP_ID, "The group id is empty")
    require(broker, ctx, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    require(broker, ctx, AclOperation.READ, ResourceType.GROUP, request.group_id)
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_of(request.group_id))
    denied = denied_topics(broker, ctx, AclOperation.READ, (topic.name for topic in request.topics))
    known, unknown = _split(broker, request, denied)
    if not known:
        return _response(unknown)
    supported = Supported.of(ctx.version, abortable_from=_ABORTABLE_FROM, adds_from=_ADDS_FROM)
    info = RequestInfo(ctx.version, ctx.client_id or "", ctx.client_host, ctx.principal)
    accepted = TxnOffsetCommitRequest(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=known,
    )

    def failed(error: ApiException) -> None:
        ctx.respond(_response([*unknown, *_refused(ctx, known, error.code)]))

    def commit(guard: VerificationGuard | None) -> None:
        broker.groups.runtime.write_transactional(
            partition.partition,
            request.producer_id,
            request.producer_epoch,
            lambda shard, now_ms: shard.commits.commit_transactional(info, accepted, now_ms),
            lambda response: ctx.respond(_response([*unknown, *response.topics])),
            failed,
            guard,
        )

    _verify(broker, request, partition, supported, commit, failed)
    return PARKED


def _verify(
    broker: Broker,
    request: TxnOffsetCommitRequest,
    partition: TopicPartition,
    supported: Supported,
    then: Callable[[VerificationGuard | None], None],
    failed: Callable[[ApiException], None],
) -> None:
    """Call `then` once the group's partition is part of the transaction."""
    if supported is not Supported.ADDS_PARTITIONS and not broker.config.bool(
        "transaction.partition.verification.enable"
    ):
        then(UNVERIFIED)
        return
    try:
        offsets = broker.replicas.find(partition)
        offsets.check_leader()
        guard = offsets.local_log().producers.start_verification(
            request.producer_id,
            request.producer_epoch,
            _NO_SEQUENCE,
            broker.clock.now_ms(),
            adds_partitions=supported is Supported.ADDS_PARTITIONS,
        )
    except ApiException as error:
        failed(coordinator_error(error))
        return
    if guard is None:
        then(None)
        return

    def settled(errors: Errors) -> None:
        code = errors.get(partition)
        if code is None:
            then(guard)
        else:
            failed(ApiException(code, f"{request.group_id} is not part of the transaction"))

    add_or_verify(
        broker,
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        supported,
        settled,
    )


def _split(
    broker: Broker, request: TxnOffsetCommitRequest, denied: set[str | bytes]
) -> tuple[list[_RequestTopic], list[_ResponseTopic]]:
    """The request's topics with the partitions that exist, and responses for those that do not or are denied."""
    known: list[_RequestTopic] = []
    unknown: list[_ResponseTopic] = []
    by_name = broker.image.topics.by_name
    for topic in request.topics:
        if topic.name in denied:
            unknown.append(_topic_response(topic.name, topic.partitions, NOT_AUTHORIZED.code))
            continue
        partitions = by_name[topic.name].partitions if topic.name in by_name else {}
        existing = [each for each in topic.partitions if each.partition_index in partitions]
        missing = [each for each in topic.partitions if each.partition_index not in partitions]
        if existing:
            known.append(_RequestTopic(name=topic.name, partitions=existing))
        if missing:
            unknown.append(_topic_response(topic.name, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return known, unknown


def _topic_response(
    name: TopicName, partitions: Iterable[_RequestPartition], code: ErrorCode
) -> _ResponseTopic:
    return _ResponseTopic(
        name=name,
        partitions=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                partition_index=each.partition_index, error_code=code
            )
            for each in partitions
        ],
    )


def _refused(ctx: RequestContext, topics: Iterable[_RequestTopic], code: ErrorCode) -> list[_ResponseTopic]:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and ctx.version < _LOADING_FROM:
        # Producers of these versions do not expect it here.
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return [_topic_response(topic.name, topic.partitions, code) for topic in topics]


def _response(topics: Iterable[_ResponseTopic]) -> TxnOffsetCommitResponse:
    """Merge the entries of a topic of which some partitions exist and some do not."""
    merged: dict[TopicName, _ResponseTopic] = {}
    for topic in topics:
        if topic.name in merged:
            merged[topic.name].partitions.extend(topic.partitions)
        else:
            merged[topic.name] = topic
    return TxnOffsetCommitResponse(topics=list(merged.values()))


def on_error(
    ctx: RequestContext, request: TxnOffsetCommitRequest, error: ApiException
) -> TxnOffsetCommitResponse:
    return _response(_refused(ctx, request.topics, error.code))


API = Api(ApiKey.TXN_OFFSET_COMMIT, handle, on_error, needs=BY_HANDLER)
