"""Producer ids for idempotent producers: the controller allocates blocks, this module gives out single ids.

The function that requests a block from the controller is passed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.errors import ApiException, ErrorCode
from ottla.ids import ProducerId
from ottla.limits import MAX_WAITING_FOR_PRODUCER_ID

BlockDone = Callable[[int, int, ApiException | None], None]
"""`done(first_id, count, error)`."""

Allocate = Callable[[BlockDone], None]
IdDone = Callable[[ProducerId, ApiException | None], None]

_NO_PRODUCER_ID: Final = ProducerId(-1)
_REQUEST_AHEAD: Final = 0.9
"""The next block is requested when this part of the current one is used."""


class ProducerIds:
    """Gives out producer ids from the current block and requests the next one before it is used up."""

    __slots__ = ("_allocate", "_end", "_next", "_request_at", "_requesting", "_spare", "_waiting")

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._request_at = 0
        self._spare: tuple[int, int] | None = None
        """First id and end of the block after the current one."""
        self._requesting = False
        self._waiting: deque[IdDone] = deque()

    def next_id(self, done: IdDone) -> None:
        """Call `done(id, None)` at once while the block has ids, else when the controller has responded."""
        if self._next == self._end and self._spare is not None:
            self._begin_block(*self._spare)
            self._spare = None
        if self._next == self._end:
            if len(self._waiting) >= MAX_WAITING_FOR_PRODUCER_ID:
                done(
                    _NO_PRODUCER_ID,
                    ApiException(
                        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "Too many requests wait for a producer id"
                    ),
                )
                return
            self._waiting.append(done)
            self._request()
            return
        producer_id = self._next
        self._next += 1
        if producer_id >= self._request_at and self._spare is None:
            self._request()
        done(ProducerId(producer_id), None)

    def _begin_block(self, first: int, end: int) -> None:
        self._next, self._end = first, end
        self._request_at = first + int((end - first) * _REQUEST_AHEAD)

    def _request(self) -> None:
        if not self._requesting:
            self._requesting = True
            self._allocate(self._allocated)

    def _allocated(self, first: int, count: int, error: ApiException | None) -> None:
        self._requesting = False
        waiting, self._waiting = self._waiting, deque()
        if error is None:
            self._spare = (first, first + count)
            for done in waiting:
                self.next_id(done)
            return
        for done in waiting:
            # Producers retry this error; they do not know the controller's errors.
            done(_NO_PRODUCER_ID, ApiException(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message))
