"""An operation of a coordinator that was run and whose records wait to be committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.errors import ApiException
from ottla.promise import Done, Failed, Promise

R = TypeVar("R")


class PendingOperation(Promise[R]):
    """Delivers the operation's `response` once: by `succeed` when it is committed, or an error by `fail` or `expire`.

    `late(response)` is called for a commit that comes after `expire` has delivered an error.
    """

    __slots__ = ("_late", "deadline", "end_offset", "on_committed", "response")

    def __init__(self, done: Done[R], failed: Failed, late: Done[R] | None = None) -> None:
        # The fields of Promise are set here: a call of its constructor and of `then` costs every commit 0.25 µs.
        self.settled = False
        self._done = done
        self._failed = failed
        self._late = late
        self.response: R | Promise[R] | None = None
        self.on_committed: Callable[[ApiException | None], None] | None = None
        self.end_offset = 0
        self.deadline: float | None = None

    def succeed(self) -> None:
        """The records are committed."""
        if self.on_committed is not None:
            self.on_committed(None)
        response = self.response
        if isinstance(response, Promise):
            response.then(self._late or _ignore if self.settled else self.resolve, self.reject)
        elif not self.settled:
            self.settled = True
            self._done(response)  # type: ignore[misc, arg-type]
        elif self._late is not None:
            self._late(response)  # type: ignore[arg-type]

    def fail(self, error: ApiException) -> None:
        """The records will never be committed, or there are none because the operation failed."""
        if self.on_committed is not None:
            self.on_committed(error)
        self.reject(error)

    @property
    def outlives_its_time(self) -> bool:
        """Whether the operation still waits for its commit after it has expired."""
        return self._late is not None

    def expire(self, error: ApiException) -> None:
        """The commit takes too long: deliver the error. A later commit goes to `late`, if there is one."""
        on_committed, self.on_committed = self.on_committed, None
        self.deadline = None
        if on_committed is not None:
            on_committed(error)
        self.reject(error)


AnyPendingOperation = PendingOperation[Any]
"""With a response of any type: what waits in one queue."""


def _ignore(response: object) -> None:
    """The error was delivered, and the caller does not want late commits."""
