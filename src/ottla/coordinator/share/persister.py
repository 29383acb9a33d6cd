"""The way to the share coordinator for those who need share state kept: find it, ask it, ask again if it must be.

Which broker is asked, and how, is behind `ask` (`routes`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from ottla.clock import Clock
from ottla.coordinator.share.service import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARY,
    WRITE,
    Answer,
    Ask,
    StateApi,
    ask_each,
)
from ottla.coordinator.share.state import StateKey
from ottla.errors import ErrorCode

_logger = logging.getLogger(__name__)

Message = Any

_RETRIED: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_FIRST_BACKOFF_MS: Final = 20
_MAX_BACKOFF_MS: Final = 1_000
_MAX_ATTEMPTS: Final = 12
"""About seven seconds in all: long enough to make the topic and to load it."""


class SharePersister:
    """Keeps and gives share state. `make_topic` creates `__share_group_state` where it does not exist."""

    __slots__ = ("_ask", "_clock", "_make_topic", "_stopped")

    def __init__(self, ask: Ask, clock: Clock, make_topic: Callable[[], object]) -> None:
        self._ask = ask
        self._clock = clock
        self._make_topic = make_topic
        self._stopped = False

    def initialize_state(self, request: Message, done: Answer) -> None:
        ask_each(self._ask_until_found, INITIALIZE, request, done)

    def read_state(self, request: Message, done: Answer) -> None:
        ask_each(self._ask_until_found, READ, request, done)

    def read_summary(self, request: Message, done: Answer) -> None:
        ask_each(self._ask_until_found, SUMMARY, request, done)

    def write_state(self, request: Message, done: Answer) -> None:
        ask_each(self._ask_until_found, WRITE, request, done)

    def delete_state(self, request: Message, done: Answer) -> None:
        ask_each(self._ask_until_found, DELETE, request, done)

    def shutdown(self) -> None:
        """Nothing is asked again."""
        self._stopped = True

    def _ask_until_found(self, api: StateApi, key: StateKey, part: Message, done: Answer) -> None:
        attempts = 0

        def ask() -> None:
            self._ask(api, key, part, answered)

        def answered(result: Message) -> None:
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
