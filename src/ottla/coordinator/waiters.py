"""Who waits for a write of a coordinator to be committed, and what a failed write is called towards clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.coordinator.result import Deferred
from ottla.errors import ApiException, ErrorCode

_TOLD_AS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(error: ApiException) -> ApiException:
    """What the log refused, in the words that a coordinator's clients know."""
    code = _TOLD_AS.get(error.code)
    return error if code is None else ApiException(code, error.message)


class Waiter:
    """One operation that was run. It is told once, by `succeed` or by `fail`.

    `late(response)` is for who has to know of a commit even when it comes after `expire` has told a failure.
    """

    __slots__ = ("_done", "_failed", "_late", "deadline", "end_offset", "on_committed", "response")

    def __init__(
        self,
        done: Callable[[Any], None],
        failed: Callable[[ApiException], None],
        late: Callable[[Any], None] | None = None,
    ) -> None:
        self._done = done
        self._failed = failed
        self._late = late
        self.response: Any = None
        self.on_committed: Callable[[ApiException | None], None] | None = None
        self.end_offset = 0
        self.deadline: float | None = None

    def succeed(self) -> None:
        if self.on_committed is not None:
            self.on_committed(None)
        if isinstance(self.response, Deferred):
            self.response.then(self._done, self._failed)
        else:
            self._done(self.response)

    def fail(self, error: ApiException) -> None:
        if self.on_committed is not None:
            self.on_committed(error)
        self._failed(error)

    @property
    def outlives_its_time(self) -> bool:
        return self._late is not None

    def expire(self, error: ApiException) -> None:
        """Its time is up: it is told so, and from now on waits to tell of a late commit, or for nothing."""
        failed, late = self._failed, self._late
        on_committed, self.on_committed = self.on_committed, None
        self._done, self._failed, self._late = late or _ignore, _ignore, None
        self.deadline = None
        if on_committed is not None:
            on_committed(error)
        failed(error)


def _ignore(outcome: Any) -> None:
    """Whoever asked has been told already."""
