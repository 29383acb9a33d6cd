"""Appends whose batches must be decoded (another codec, keys of a compacted topic): in a thread, in order.

Offsets are assigned in the order of requests. While one batch of a partition is in a thread, later ones wait here.
`ottla.records.validation` checks and re-encodes the batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ApiException, ErrorCode
from ottla.limits import MAX_QUEUED_APPEND_BYTES
from ottla.log.types import AppendInfo
from ottla.log.verification import VerificationGuard
from ottla.records.validation import ValidatedBatch, finish
from ottla.replica.offload import outcome

if TYPE_CHECKING:
    from ottla.replica.offload import Offloader
    from ottla.replica.partition import Partition

AppendDone = Callable[[AppendInfo | ApiException], None]


class _Queued(NamedTuple):
    batch: ValidatedBatch
    acks: int
    done: AppendDone
    guard: VerificationGuard | None


class AppendQueue:
    """The appends of one partition that must wait. The first of the queue is in a thread."""

    __slots__ = ("_bytes", "_offload", "_partition", "_queue")

    def __init__(self, partition: Partition, offload: Offloader) -> None:
        self._partition = partition
        self._offload = offload
        self._queue: deque[_Queued] = deque()
        self._bytes = 0

    @property
    def busy(self) -> bool:
        return bool(self._queue)

    def add(
        self, batch: ValidatedBatch, acks: int, done: AppendDone, guard: VerificationGuard | None = None
    ) -> None:
        """Queue a detached batch; `done` is called on the event loop."""
        if self._bytes + batch.size_in_bytes > MAX_QUEUED_APPEND_BYTES and self._queue:
            done(
                ApiException(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{self._bytes} bytes are waiting to be validated before they can be appended to "
                    f"{self._partition.topic}-{self._partition.index}",
                )
            )
            return
        self._bytes += batch.size_in_bytes
        self._queue.append(_Queued(batch, acks, done, guard))
        if len(self._queue) == 1:
            self._advance()

    def _advance(self) -> None:
        """Append from the head of the queue up to the next batch that needs a thread."""
        queue = self._queue
        while queue:
            head = queue[0]
            if head.batch.pending:
                self._offload.run(partial(finish, head.batch), self._finished)
                return
            self._append(head, head.batch)

    def _finished(self, future: Future[ValidatedBatch]) -> None:
        head = self._queue[0]
        ready = outcome(future)
        try:
            if isinstance(ready, ApiException):
                self._pop(head)
                head.done(ready)
            else:
                self._append(head, ready)
        finally:
            self._advance()

    def _append(self, head: _Queued, batch: ValidatedBatch) -> None:
        self._pop(head)
        result: AppendInfo | ApiException
        try:
            result = self._partition.append_validated(batch, head.acks, head.guard)
        except ApiException as error:
            result = error
        head.done(result)

    def _pop(self, head: _Queued) -> None:
        self._queue.popleft()
        self._bytes -= head.batch.size_in_bytes
