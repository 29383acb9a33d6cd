"""`Promise`: a result that arrives later, as a value or as a `ApiException`. The one type for it off the hot path.

Delivery is synchronous, always: a callback runs inside the call that makes it due. That is `resolve` or `reject` when
`then` was called before, and `then` when the result was there before. A caller of `then` must therefore accept that
its callback runs before `then` returns; a caller of `resolve` must have finished its own work first.
Everything runs on the event loop; nothing here is safe for threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from ottla.errors import ApiException

T = TypeVar("T")

Done = Callable[[T], None]
"""Called with the value."""
Failed = Callable[[ApiException], None]
"""Called with the error, in place of `Done`."""

_MISSING: Final = object()


class Promise(Generic[T]):
    """A value or an error that one party delivers once and another party receives once.

    The first of `resolve` and `reject` settles the promise; later calls do nothing. The owner of a promise must settle
    it on every path, with an error when it gives up.
    """

    __slots__ = ("_done", "_error", "_failed", "_value", "settled")

    def __init__(self) -> None:
        self.settled = False
        """Whether there is a result, delivered or not."""
        self._done: Done[T] | None = None
        self._failed: Failed | None = None
        self._value: object = None
        self._error: ApiException | None = None

    def resolve(self, value: T) -> None:
        """Deliver the value, unless the promise is settled."""
        if self.settled:
            return
        self.settled = True
        if self._done is not None:
            self._done(value)
        else:
            self._value = value

    def reject(self, error: ApiException) -> None:
        """Deliver the error, unless the promise is settled."""
        if self.settled:
            return
        self.settled = True
        if self._failed is not None:
            self._failed(error)
        else:
            self._error = error

    def then(self, done: Done[T], failed: Failed) -> None:
        """Name the receiver: exactly one of the two is called, exactly once, now or when the result arrives.

        A second call replaces a receiver that has not been called.
        """
        assert self._done is None or not self.settled, "the result was delivered to another receiver"
        self._done, self._failed = done, failed
        if not self.settled:
            return
        if self._error is not None:
            failed(self._error)
        else:
            done(cast("T", self._value))


class Gather(Generic[T]):
    """Calls `done` with `count` values in the order of their indexes, once each of them was put.

    With a count of 0 it calls `done` at once. The values may themselves stand for errors; there is no other failure.
    """

    __slots__ = ("_done", "_missing", "_values")

    def __init__(self, count: int, done: Done[list[T]]) -> None:
        self._values: list[object] = [_MISSING] * count
        self._missing = count
        self._done = done
        if not count:
            done([])

    def put(self, index: int, value: T) -> None:
        """Set one value. Each index is put once."""
        assert self._values[index] is _MISSING, f"value {index} is there already"
        self._values[index] = value
        self._missing -= 1
        if not self._missing:
            self._done(cast("list[T]", self._values))
