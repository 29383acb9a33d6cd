"""When a failed request is sent again, and after which pause."""

from __future__ import annotations

import random
from typing import Final

from ottla.errors import ErrorCode

RETRIABLE: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that end without anyone's help in a healthy cluster."""

RETRIABLE_FOR_WRITERS: Final = RETRIABLE | {ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Long-running writers also wait for brokers that restart and for topics that were only just created.

A person at a command line wants to know at once that an address or a topic does not exist.
"""

_FACTOR: Final = 2
_JITTER: Final = 0.2


class Backoff:
    """Kafka's exponential back-off: pauses double from the first to the longest, each up to 20 % shorter or longer."""

    __slots__ = ("_longest_s", "_next_s")

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._next_s = min(first_s, longest_s)
        self._longest_s = longest_s

    def next_s(self) -> float:
        """The next pause in seconds."""
        pause_s = self._next_s
        self._next_s = min(_FACTOR * pause_s, self._longest_s)
        return pause_s * random.uniform(1 - _JITTER, 1 + _JITTER)
