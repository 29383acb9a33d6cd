"""A Produce request that cannot be answered at once: it waits for threads, or for replicas to fetch.

`produce.py` owns the versions and the shape of the response.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.api.base import NO_RESPONSE, PARKED, Outcome, RequestContext
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import AppendInfo
from ottla.records.validation import RecordValidationError
from ottla.replica.partition import ACKS_ALL
from ottla.wire.messages import ProduceResponse

if TYPE_CHECKING:
    from ottla.counters import TopicCounters
    from ottla.log.fs import Buffer
    from ottla.log.verification import VerificationGuard
    from ottla.records.validation import ValidatedBatch
    from ottla.replica.delayed_requests import DelayedRequest
    from ottla.replica.partition import Partition

Finish = Callable[[Broker, RequestContext, int, ProduceResponse], ProduceResponse | Outcome]
_PartitionResponse = ProduceResponse.PartitionProduceResponse

_ONLY_EVENTS: Final = 1 << 62
"""More bytes than are ever appended: only a new high watermark or a change of leader wakes the request."""


def fill(answer: _PartitionResponse, result: AppendInfo | ApiException) -> None:
    """Write the result of an append into its place in the response."""
    if isinstance(result, AppendInfo):
        answer.base_offset = result.first_offset
        answer.log_append_time_ms = result.log_append_time
        answer.log_start_offset = result.log_start_offset
        return
    answer.error_code = result.code
    answer.error_message = result.message
    answer.base_offset = -1
    if isinstance(result, RecordValidationError):
        answer.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=message)
            for at, message in result.record_errors
        ]


_EXPECTED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""As in Kafka, these do not count as failed produce requests: clients meet them in the course of things."""
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def count_failure(counters: TopicCounters, error: ApiException, records: Buffer | None) -> None:
    """An append was refused."""
    counters.produces += 1
    if error.code not in _EXPECTED:
        counters.failed_produces += 1
    elif error.code in _TOO_LARGE and records is not None:
        counters.bytes_rejected += len(records)


class _Unreplicated(NamedTuple):
    partition: Partition
    leader_epoch: int
    end_offset: int
    answer: _PartitionResponse


class PendingProduce:
    """Completes the response and sends it when every partition has a result or the request times out.

    Holds nothing of the request: its buffers are released once the handler has returned.
    """

    __slots__ = (
        "_acks",
        "_broker",
        "_ctx",
        "_finish",
        "_in_threads",
        "_parked",
        "_response",
        "_started",
        "_timeout_s",
        "_unreplicated",
    )

    def __init__(
        self,
        broker: Broker,
        ctx: RequestContext,
        response: ProduceResponse,
        *,
        acks: int,
        timeout_ms: int,
        finish: Finish,
    ) -> None:
        self._broker = broker
        self._ctx = ctx
        self._response = response
        self._acks = acks
        self._timeout_s = max(timeout_ms, 0) / 1000
        self._finish = finish
        self._in_threads = 0
        self._started = False
        self._unreplicated: list[_Unreplicated] = []
        self._parked: DelayedRequest | None = None

    def append_later(
        self,
        partition: Partition,
        batch: ValidatedBatch,
        answer: _PartitionResponse,
        guard: VerificationGuard | None = None,
    ) -> None:
        """Append after what the partition has in threads; `answer` is filled in then."""
        self._in_threads += 1
        partition.append_later(batch, self._acks, partial(self._appended, partition, answer), guard)

    def secure(self, partition: Partition, appended: AppendInfo, answer: _PartitionResponse) -> None:
        """Wait for the disk if `flush.messages` demands it, and for the in-sync replicas if acks does."""
        if self._acks == ACKS_ALL and not partition.has_committed(appended.last_offset):
            self._unreplicated.append(
                _Unreplicated(partition, partition.leader_epoch, appended.last_offset + 1, answer)
            )
        if partition.flush_due():
            self._in_threads += 1
            partition.flush(partial(self._flushed, answer))

    def _flushed(self, answer: _PartitionResponse, error: ApiException | None) -> None:
        self._in_threads -= 1
        if error is not None:
            fill(answer, error)
        if self._started:
            self._advance()

    def start(self) -> ProduceResponse | Outcome:
        """All partitions are added: respond as soon as possible."""
        self._started = True
        if self._acks == 0:
            # The client expects no response, and its next requests must not wait for this one.
            self._advance()
            return NO_RESPONSE
        self._ctx.on_close(self._cancel)
        self._advance()
        return PARKED

    def _appended(
        self, partition: Partition, answer: _PartitionResponse, result: AppendInfo | ApiException
    ) -> None:
        self._in_threads -= 1
        fill(answer, result)
        if isinstance(result, AppendInfo):
            self.secure(partition, result, answer)
        else:
            count_failure(partition.counters, result, None)
        if self._started:
            self._advance()

    def _advance(self) -> None:
        if self._in_threads:
            return
        if not self._settled(expired=False):
            waiters = [each.partition.high_watermark_waiters for each in self._unreplicated]
            self._parked = self._broker.replicas.delayed_requests.park(
                waiters, _ONLY_EVENTS, self._timeout_s, self._woken
            )
            if self._parked is not None:
                return
            self._settled(expired=True)
        self._send()

    def _woken(self, expired: bool) -> int:
        if not self._settled(expired=expired):
            return _ONLY_EVENTS
        self._send()
        return 0

    def _settled(self, *, expired: bool) -> bool:
        """Whether every partition is replicated or has an error."""
        waiting = []
        for each in self._unreplicated:
            partition = each.partition
            code: ErrorCode | None
            if (
                partition.log is None
                or not partition.is_leader
                or each.leader_epoch < partition.leading_since
            ):
                # Another leader, now or meanwhile, may have the record or may not.
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                code = partition.replicated(partition.log, each.end_offset)
                if code is None and expired:
                    code = ErrorCode.REQUEST_TIMED_OUT
            if code is None:
                waiting.append(each)
            else:
                each.answer.error_code = code
        self._unreplicated = waiting
        return not waiting

    def _send(self) -> None:
        self._parked = None
        response = self._finish(self._broker, self._ctx, self._acks, self._response)
        if not isinstance(response, Outcome):
            self._ctx.respond(response)

    def _cancel(self) -> None:
        if self._parked is not None:
            self._parked.cancel()
            self._parked = None
