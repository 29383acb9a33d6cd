"""The result of a coordinator operation: records to append, and the response that is sent once they are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from ottla.coordinator.records import CoordinatorRecord
from ottla.errors import ApiException
from ottla.promise import Promise

R = TypeVar("R")


class CoordinatorResult(NamedTuple, Generic[R]):
    """Records to append as one atomic unit, and the response that becomes true when they are committed.

    A response may be a `Promise`: a JoinGroup waits for the other members. The shard that keeps the promise rejects it
    with NOT_COORDINATOR in `on_unloaded`.
    """

    records: Sequence[CoordinatorRecord]
    response: R | Promise[R]
    replay: bool = True
    """False where the operation has changed the state itself (classic groups, whose state is mostly not in records)."""
    atomic: bool = True
    """False where the records may be spread over several batches: tombstones of a clean-up."""
    on_committed: Callable[[ApiException | None], None] | None = None
    """Called once, before the response is sent: None when the records are committed, else why they never will be."""
