"""Kafka's share persister: keeps share state in the share coordinator, and retries until the coordinator is found.

`ask` (see `routes`) selects the broker and sends the request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.clock import Clock
from ottla.coordinator.share.service import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARY,
    WRITE,
    AnyStateApi,
    Ask,
    PartitionData,
    PartitionResult,
    ask_each,
)
from ottla.coordinator.share.state import StateKey
from ottla.errors import ErrorCode
from ottla.promise import Done
from ottla.wire import messages

_RETRIED: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_FIRST_BACKOFF_MS: Final = 20
_MAX_BACKOFF_MS: Final = 1_000
_MAX_ATTEMPTS: Final = 12
"""About seven seconds in all: enough to create the topic and to load it."""


class SharePersister:
    """Keeps and returns share state. `make_topic` creates `__share_group_state` where it does not exist."""

    __slots__ = ("_ask", "_clock", "_make_topic", "_stopped")

    def __init__(self, ask: Ask, clock: Clock, make_topic: Callable[[], object]) -> None:
        self._ask = ask
        self._clock = clock
        self._make_topic = make_topic
        self._stopped = False

    def initialize_state(
        self,
        request: messages.InitializeShareGroupStateRequest,
        done: Done[messages.InitializeShareGroupStateResponse],
    ) -> None:
        """InitializeShareGroupState."""
        ask_each(self._ask_until_found, INITIALIZE, request, done)

    def read_state(
        self, request: messages.ReadShareGroupStateRequest, done: Done[messages.ReadShareGroupStateResponse]
    ) -> None:
        """ReadShareGroupState."""
        ask_each(self._ask_until_found, READ, request, done)

    def read_summary(
        self,
        request: messages.ReadShareGroupStateSummaryRequest,
        done: Done[messages.ReadShareGroupStateSummaryResponse],
    ) -> None:
        """ReadShareGroupStateSummary."""
        ask_each(self._ask_until_found, SUMMARY, request, done)

    def write_state(
        self, request: messages.WriteShareGroupStateRequest, done: Done[messages.WriteShareGroupStateResponse]
    ) -> None:
        """WriteShareGroupState."""
        ask_each(self._ask_until_found, WRITE, request, done)

    def delete_state(
        self,
        request: messages.DeleteShareGroupStateRequest,
        done: Done[messages.DeleteShareGroupStateResponse],
    ) -> None:
        """DeleteShareGroupState."""
        ask_each(self._ask_until_found, DELETE, request, done)

    def shutdown(self) -> None:
        """Stop retrying."""
        self._stopped = True

    def _ask_until_found(
        self, api: AnyStateApi, key: StateKey, part: PartitionData, done: Done[PartitionResult]
    ) -> None:
        attempts = 0

        def ask() -> None:
            self._ask(api, key, part, responded)

        def responded(result: PartitionResult) -> None:
            nonlocal attempts
            attempts += 1
            if result.error_code not in _RETRIED or attempts >= _MAX_ATTEMPTS or self._stopped:
                done(result)
                return
            if result.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self._make_topic()
            backoff_ms = min(_MAX_BACKOFF_MS, _FIRST_BACKOFF_MS << (attempts - 1))
            self._clock.call_later(backoff_ms / 1000, ask)

        ask()
