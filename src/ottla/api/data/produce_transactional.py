"""Produce for a transactional id: what the transaction's coordinator has to confirm before the append.

A batch whose transaction is already open in its partition needs no confirmation. `produce.py` owns the versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.api.base import NO_RESPONSE, PARKED, Outcome, RequestContext
from ottla.broker.services import Broker
from ottla.broker.verification import Errors, Supported, add_or_verify
from ottla.errors import ApiException, ErrorCode
from ottla.ids import ProducerId
from ottla.log.types import TopicPartition
from ottla.log.verification import UNVERIFIED, VerificationGuard
from ottla.records.batch import HEADER_SIZE, BatchHeader, read_header

if TYPE_CHECKING:
    from ottla.ids import TransactionalId
    from ottla.wire.messages import ProduceRequest, ProduceResponse

_ABORTABLE_FROM: Final = 11
_ADDS_FROM: Final = 12
_TOPIC_IDS: Final = 13

Key = tuple[str | bytes, int]
"""Topic name or id as the request has it, and the partition."""


class Verified(NamedTuple):
    """What the coordinator decided: errors of refused batches, and guards for batches that begin a transaction."""

    refused: Mapping[Key, ApiException]
    guards: Mapping[Key, VerificationGuard]


NOT_TRANSACTIONAL: Final = Verified(MappingProxyType({}), MappingProxyType({}))

Append = Callable[[Broker, RequestContext, "ProduceRequest", Verified], "ProduceResponse | Outcome"]

_RETRIED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # Another partition of the same request was refused.
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""Errors of the coordinator that a producer would not retry if a partition's leader returned them."""


def handle(
    broker: Broker,
    ctx: RequestContext,
    request: ProduceRequest,
    transactional_id: TransactionalId,
    append: Append,
) -> ProduceResponse | Outcome:
    """Append once the coordinator has confirmed the partitions."""
    supported = Supported.of(ctx.version, abortable_from=_ABORTABLE_FROM, adds_from=_ADDS_FROM)
    batches = _transactional(request, by_id=ctx.version >= _TOPIC_IDS)
    if not batches:
        return append(broker, ctx, request, NOT_TRANSACTIONAL)
    producers = {(header.producer_id, header.producer_epoch) for header in batches.values()}
    if len(producers) > 1:
        raise ApiException(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "The transactional records are of more than one producer"
        )
    if supported is not Supported.ADDS_PARTITIONS and not broker.config.bool(
        "transaction.partition.verification.enable"
    ):
        return append(broker, ctx, request, Verified({}, dict.fromkeys(batches, UNVERIFIED)))
    refused, guards, unconfirmed = _start(broker, batches, supported)
    if not unconfirmed:
        return append(broker, ctx, request, Verified(refused, guards))
    keep_records(request)

    def confirmed(errors: Errors) -> None:
        for tp, code in errors.items():
            refused[unconfirmed[tp]] = _refusal(tp, code, supported)
        response = append(broker, ctx, request, Verified(refused, guards))
        if not isinstance(response, Outcome):
            ctx.respond(response)

    ((producer_id, producer_epoch),) = producers
    add_or_verify(
        broker, transactional_id, ProducerId(producer_id), producer_epoch, unconfirmed, supported, confirmed
    )
    return PARKED if request.acks else NO_RESPONSE


def keep_records(request: ProduceRequest) -> int:
    """Copy the records, because the request's buffer is released when its handler returns; how many bytes."""
    size = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = bytes(data.records)
                size += len(data.records)
    return size


def _transactional(request: ProduceRequest, *, by_id: bool) -> dict[Key, BatchHeader]:
    """The headers of transactional batches. The append refuses records that are too short for a header."""
    found: dict[Key, BatchHeader] = {}
    for topic in request.topic_data:
        key = topic.topic_id if by_id else topic.name
        for data in topic.partition_data:
            if data.records is None or len(data.records) < HEADER_SIZE:
                continue
            header = read_header(data.records, 0)
            if header.producer_id >= 0 and header.is_transactional:
                found[key, data.index] = header
    return found


def _start(
    broker: Broker, batches: Mapping[Key, BatchHeader], supported: Supported
) -> tuple[dict[Key, ApiException], dict[Key, VerificationGuard], dict[TopicPartition, Key]]:
    """Errors of batches that are refused at once, guards, and the partitions that the coordinator has to confirm."""
    refused: dict[Key, ApiException] = {}
    guards: dict[Key, VerificationGuard] = {}
    unconfirmed: dict[TopicPartition, Key] = {}
    now_ms = broker.clock.now_ms()
    for key, header in batches.items():
        try:
            partition = broker.replicas.find(key)
            partition.check_leader()
            guard = partition.local_log().producers.start_verification(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                now_ms,
                adds_partitions=supported is Supported.ADDS_PARTITIONS,
            )
        except ApiException as error:
            refused[key] = error
            continue
        if guard is not None:
            guards[key] = guard
            unconfirmed[partition.topic_partition] = key
    return refused, guards, unconfirmed


def _refusal(tp: TopicPartition, code: ErrorCode, supported: Supported) -> ApiException:
    if code in _RETRIED or (
        # Clients that add partitions expect this error while the last transaction is being ended.
        code is ErrorCode.CONCURRENT_TRANSACTIONS and supported is not Supported.ADDS_PARTITIONS
    ):
        return ApiException(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"{tp} cannot be verified as part of a transaction: {code.name}"
        )
    return ApiException(code, f"{tp} is not part of the transaction")
