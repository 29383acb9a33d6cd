"""Produce for a transactional id: what has to be settled with the transaction's coordinator before the append.

A batch whose transaction is open in its partition already needs no question. Versions are `produce.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.api.base import NO_RESPONSE, PARKED, Message, Outcome, RequestContext
from ottla.broker.services import Broker
from ottla.broker.verification import Errors, Supported, add_or_verify
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import TopicPartition
from ottla.log.verification import UNVERIFIED, VerificationGuard
from ottla.records.batch import HEADER_SIZE, BatchHeader, read_header

_ABORTABLE_FROM: Final = 11
_ADDS_FROM: Final = 12
_TOPIC_IDS: Final = 13

Key = tuple[str | bytes, int]
"""Topic name or id as the request has it, and the partition."""


class Verified(NamedTuple):
    """What the coordinator said: batches that may not be appended, and guards for those that begin a transaction."""

    refused: Mapping[Key, ApiException]
    guards: Mapping[Key, VerificationGuard]


NOT_TRANSACTIONAL: Final = Verified(MappingProxyType({}), MappingProxyType({}))

Append = Callable[[Broker, RequestContext, Message, Verified], Message | Outcome]

_RETRIED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        # Another partition of the question was refused.
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
"""Errors of the coordinator that a producer would not retry if its partition's leader told them."""


def handle(broker: Broker, ctx: RequestContext, request: Message, append: Append) -> Message | Outcome:
    """Append once the coordinator has agreed: now if it answers at once."""
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
    refused, guards, asked = _start(broker, batches, supported)
    if not asked:
        return append(broker, ctx, request, Verified(refused, guards))

    answered: list[Message | Outcome] = []
    parked = False

    def settled(errors: Errors) -> None:
        for tp, code in errors.items():
            refused[asked[tp]] = _refusal(tp, code, supported)
        answer = append(broker, ctx, request, Verified(refused, guards))
        if not parked:
            answered.append(answer)
        elif answer is not PARKED and answer is not NO_RESPONSE:
            ctx.respond(answer)

    ((producer_id, producer_epoch),) = producers
    add_or_verify(broker, request.transactional_id, producer_id, producer_epoch, asked, supported, settled)
    if answered:
        return answered[0]
    parked = True
    for topic in request.topic_data:
        for data in topic.partition_data:
            # The request's buffer goes when this returns.
            data.records = None if data.records is None else bytes(data.records)
    return PARKED if request.acks else NO_RESPONSE


def _transactional(request: Message, *, by_id: bool) -> dict[Key, BatchHeader]:
    """The headers of transactional batches. What is too short for one is refused by the append."""
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
    """Batches that are refused right away, guards, and the partitions that the coordinator has to be asked about."""
    refused: dict[Key, ApiException] = {}
    guards: dict[Key, VerificationGuard] = {}
    asked: dict[TopicPartition, Key] = {}
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
            asked[partition.topic_partition] = key
    return refused, guards, asked


def _refusal(tp: TopicPartition, code: ErrorCode, supported: Supported) -> ApiException:
    if code in _RETRIED or (
        # Those who add partitions know that it is common while the last transaction is being ended.
        code is ErrorCode.CONCURRENT_TRANSACTIONS and supported is not Supported.ADDS_PARTITIONS
    ):
        return ApiException(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"{tp} cannot be verified as part of a transaction: {code.name}"
        )
    return ApiException(code, f"{tp} is not part of the transaction")
