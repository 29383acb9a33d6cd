"""What a coordinator operation gives back: the records that make it so, and the answer once they are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from ottla.coordinator.records import CoordinatorRecord
from ottla.errors import ApiException

R = TypeVar("R")

Done = Callable[[R], None]
Failed = Callable[[ApiException], None]


class Deferred(Generic[R]):
    """An answer that is given later: a JoinGroup waits for the other members.

    Return it as the response of a `CoordinatorResult`, keep it, and call `complete` or `fail` once; later calls do
    nothing. Whoever keeps one fails it with NOT_COORDINATOR in `on_unloaded`.
    """

    __slots__ = ("_outcome", "_then")

    def __init__(self) -> None:
        self._outcome: tuple[R | None, ApiException | None] | None = None
        self._then: tuple[Done[R], Failed] | None = None

    @property
    def completed(self) -> bool:
        return self._outcome is not None

    def complete(self, response: R) -> None:
        self._settle(response, None)

    def fail(self, error: ApiException) -> None:
        self._settle(None, error)

    def then(self, done: Done[R], failed: Failed) -> None:
        """Who is to be told; the runtime sets it once the operation's records are committed."""
        self._then = (done, failed)
        if self._outcome is not None:
            self._tell()

    def _settle(self, response: R | None, error: ApiException | None) -> None:
        if self._outcome is None:
            self._outcome = (response, error)
            if self._then is not None:
                self._tell()

    def _tell(self) -> None:
        assert self._outcome is not None and self._then is not None
        response, error = self._outcome
        done, failed = self._then
        if error is not None:
            failed(error)
        else:
            done(response)  # type: ignore[arg-type]


class CoordinatorResult(NamedTuple, Generic[R]):
    """Records to append as one atomic unit, and the response that becomes true when they are committed."""

    records: Sequence[CoordinatorRecord]
    response: R | Deferred[R]
    replay: bool = True
    """False where the operation has changed the state itself (classic groups, whose state is mostly not in records)."""
    atomic: bool = True
    """False where the records may be spread over several batches: tombstones of a clean-up."""
    on_committed: Callable[[ApiException | None], None] | None = None
    """Told once, before the response goes out: None when the records are committed, else why they never will be."""
