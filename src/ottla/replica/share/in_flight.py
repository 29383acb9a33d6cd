"""The records of a share partition between the first unfinished and the last acquired one, as runs of offsets.

Runs follow each other without gaps from the start offset to the end offset. All records of a run have one state. A
batch is one run until a part of it changes; then the run is split. A thousand records in one state cost as much as
one. `acquisition` and `acknowledgement` decide the changes; this module keeps the runs in order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from ottla.replica.share.states import RecordState, StateBatch

NO_MEMBER = ""
"""The member id of a run that no member holds."""

_first = attrgetter("first")


class Origin(NamedTuple):
    """The offsets that were first acquired together: repeated deliveries give out ever smaller parts of them."""

    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class Change:
    """Acknowledged records on their way to the share coordinator: reverted if it does not persist them."""

    __slots__ = ("batches", "first", "last")

    def __init__(self) -> None:
        self.batches: list[StateBatch] = []
        self.first = -1
        self.last = -1

    def add(self, first: int, last: int, state: RecordState, delivery_count: int) -> None:
        self.first = first if self.first < 0 else min(self.first, first)
        self.last = max(self.last, last)
        add_state(self.batches, first, last, state, delivery_count)


def add_state(
    batches: list[StateBatch], first: int, last: int, state: RecordState, delivery_count: int
) -> None:
    """Add to a list of changes; extends the last one if both have the same state."""
    if batches:
        before = batches[-1]
        if before.last + 1 == first and before.state == state and before.delivery_count == delivery_count:
            batches[-1] = before._replace(last=last)
            return
    batches.append(StateBatch(first, last, state, delivery_count))


class Run:
    """Offsets from `first` to `last` that are in the same state."""

    __slots__ = (
        "before",
        "change",
        "deadline",
        "delivery_count",
        "first",
        "last",
        "member",
        "origin",
        "state",
    )

    def __init__(
        self, first: int, last: int, state: RecordState, delivery_count: int, origin: Origin | None = None
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member = NO_MEMBER
        self.deadline = 0.0
        """When the member's lock ends, on the monotonic clock."""
        self.change: Change | None = None
        """The unfinished change that brought this run into its state."""
        self.before: tuple[RecordState, str] = (state, NO_MEMBER)
        """State and member to restore if the change fails."""
        self.origin = origin or Origin(first, last)

    def __repr__(self) -> str:
        who = f" by {self.member}" if self.member else ""
        return f"<{self.first}-{self.last} {self.state.name}{who} x{self.delivery_count}>"

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def available(self) -> bool:
        return self.state is RecordState.AVAILABLE and self.change is None

    def split(self, at: int) -> Run:
        """Split before offset `at`; returns the second part."""
        rest = Run(at, self.last, self.state, self.delivery_count, self.origin)
        rest.member = self.member
        rest.deadline = self.deadline
        rest.change = self.change
        rest.before = self.before
        self.last = at - 1
        return rest


class InFlight:
    """The runs of one share partition, from `start_offset` to `end_offset`."""

    __slots__ = ("_look_from", "end_offset", "runs", "start_offset", "terminal")

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        """Everything before is done."""
        self.end_offset = start_offset
        """The last offset in flight, or the next to be fetched where there are none."""
        self.runs: list[Run] = []
        self.terminal = 0
        """Records in flight that are done, but stand behind one that is not."""
        self._look_from: int | None = None
        """No run that begins before this offset is available; None: no run at all is."""

    @classmethod
    def load(cls, start_offset: int, batches: Iterable[StateBatch]) -> InFlight:
        """From persisted state. Records without a state were held by a member, or never acquired."""
        flight = cls(start_offset)
        next_offset = start_offset
        for batch in sorted(batches):
            if batch.first < next_offset or batch.last < batch.first:
                raise ValueError(f"the states of offsets {batch.first} to {batch.last} are out of order")
            if batch.first > next_offset:
                flight.append(Run(next_offset, batch.first - 1, RecordState.AVAILABLE, 0))
            flight.append(Run(batch.first, batch.last, RecordState(batch.state), batch.delivery_count))
            next_offset = batch.last + 1
        flight._look_from = start_offset
        flight.advance()
        return flight

    # -- lookups

    @property
    def count(self) -> int:
        """Records in flight, whatever their state."""
        return self.end_offset - self.start_offset + 1 if self.runs else 0

    @property
    def next_new_offset(self) -> int:
        """The first offset that was never in flight."""
        return self.end_offset + 1 if self.runs else self.end_offset

    def next_fetch_offset(self) -> int:
        """Where to read next: the first available record, or after the last one in flight."""
        if self._look_from is not None:
            for run in self.runs[self.index(self._look_from) :]:
                if run.available:
                    self._look_from = run.first
                    return run.first
            self._look_from = None
        return self.next_new_offset

    def index(self, offset: int) -> int:
        """The position of the run that holds an offset, or of the first run after it."""
        place = bisect_right(self.runs, offset, key=_first) - 1
        if place < 0:
            return 0
        return place if self.runs[place].last >= offset else place + 1

    def over(self, first: int, last: int) -> Iterator[Run]:
        """The runs that overlap a range, not split."""
        runs = self.runs
        place = self.index(first)
        while place < len(runs) and runs[place].first <= last:
            yield runs[place]
            place += 1

    # -- changes

    def cut(self, first: int, last: int) -> list[Run]:
        """The runs of exactly a range, split at its ends where needed."""
        runs = self.runs
        place = self.index(first)
        if place < len(runs) and runs[place].first < first:
            runs.insert(place + 1, runs[place].split(first))
            place += 1
        end = place
        while end < len(runs) and runs[end].first <= last:
            if runs[end].last > last:
                runs.insert(end + 1, runs[end].split(last + 1))
            end += 1
        return runs[place:end]

    def append(self, run: Run) -> None:
        """Add a run behind the last one."""
        self.runs.append(run)
        self.end_offset = run.last
        if run.state.terminal:
            self.terminal += run.count

    def set_state(self, run: Run, state: RecordState, member: str = NO_MEMBER) -> None:
        if state.terminal != run.state.terminal:
            self.terminal += run.count if state.terminal else -run.count
        run.state = state
        run.member = member
        if state is RecordState.AVAILABLE:
            self.look_at(run.first)

    def look_at(self, offset: int) -> None:
        """A run that begins here may be available."""
        self._look_from = offset if self._look_from is None else min(self._look_from, offset)

    def archive(self, run: Run) -> None:
        """Finish a run for good, also if a pending change fails."""
        run.change = None
        self.set_state(run, RecordState.ARCHIVED)

    def advance(self) -> bool:
        """Move the start offset over finished runs; whether it moved."""
        runs = self.runs
        done = 0
        for run in runs:
            if not run.state.terminal or run.change is not None:
                break
            self.terminal -= run.count
            done += 1
        if not done:
            return False
        if done == len(runs):
            self.start_offset = self.end_offset = runs[-1].last + 1
            self._look_from = None
        else:
            self.start_offset = runs[done].first
        del runs[:done]
        return True

    def drop_before(self, offset: int) -> None:
        """The log no longer has the records before an offset: drop them."""
        if offset <= self.start_offset:
            return
        if self.runs:
            for run in self.cut(self.start_offset, offset - 1):
                if run.state.terminal:
                    self.terminal -= run.count
            del self.runs[: self.index(offset)]
        self.start_offset = offset
        if not self.runs:
            self.end_offset = offset
            self._look_from = None
        self.advance()
