"""The state of one share partition in the share coordinator, and how changes are merged into it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple, Protocol, TypeVar

from ottla.wire.uuid import uuid_to_str

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
NO_COUNT: Final = -1

_last = attrgetter("last")


class StateKey(NamedTuple):
    """A share partition: a partition as one group sees it."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key of FindCoordinator requests, which selects the coordinator's partition."""
        return f"{self.group_id}:{uuid_to_str(self.topic_id)}:{self.partition}"


class StateBatch(Protocol):
    """The `StateBatch` of a request, response or record: the share state messages each have their own."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


B = TypeVar("B", bound=StateBatch)


class Batch(NamedTuple):
    """A range of offsets (the last included) in one delivery state."""

    first: int
    last: int
    delivery_state: int
    delivery_count: int

    @classmethod
    def of(cls, message: StateBatch) -> Batch:
        """From the `StateBatch` of a request or record."""
        return cls(message.first_offset, message.last_offset, message.delivery_state, message.delivery_count)

    def to(self, message_class: Callable[..., B]) -> B:
        """As a `StateBatch` of the given class."""
        return message_class(
            first_offset=self.first,
            last_offset=self.last,
            delivery_state=self.delivery_state,
            delivery_count=self.delivery_count,
        )

    @property
    def progress(self) -> tuple[int, int]:
        """Of two states of the same record, the one with more progress is the newer."""
        return self.delivery_count, self.delivery_state


@dataclass(frozen=True, slots=True)
class ShareState:
    """One share partition at one moment."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[Batch, ...]
    create_timestamp: int
    write_timestamp: int


def combine(known: Iterable[Batch], new: Iterable[Batch], start_offset: int) -> tuple[Batch, ...]:
    """Merge new batches into known ones, drop offsets before the start, and join equal neighbours."""
    result: list[Batch] = []
    for batch in known:
        _merge(result, batch, start_offset)
    for batch in new:
        _merge(result, batch, start_offset)
    joined: list[Batch] = []
    for batch in result:
        if joined and joined[-1].last + 1 == batch.first and joined[-1].progress == batch.progress:
            joined[-1] = joined[-1]._replace(last=batch.last)
        else:
            joined.append(batch)
    return tuple(joined)


def _merge(result: list[Batch], batch: Batch, start_offset: int) -> None:
    if batch.first < start_offset:
        batch = batch._replace(first=start_offset)
    if batch.last < batch.first:
        return
    place = bisect_left(result, batch.first, key=_last)
    end = place
    pieces: list[Batch] = []
    next_offset = batch.first
    while end < len(result) and result[end].first <= batch.last:
        old = result[end]
        end += 1
        if old.first < batch.first:
            pieces.append(old._replace(last=batch.first - 1))
        elif old.first > next_offset:
            pieces.append(batch._replace(first=next_offset, last=old.first - 1))
        winner = max(old, batch, key=_progress)
        next_offset = min(old.last, batch.last) + 1
        pieces.append(winner._replace(first=max(old.first, batch.first), last=next_offset - 1))
        if old.last > batch.last:
            pieces.append(old._replace(first=batch.last + 1))
    if next_offset <= batch.last:
        pieces.append(batch._replace(first=next_offset))
    result[place:end] = pieces


_progress = attrgetter("progress")
