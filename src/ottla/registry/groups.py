"""Changes that wait to be written, in groups that share a batch of `_schemas` (group commit).

Registrations under different subjects touch the same state only by their ids: those of a batch are reserved while it is
decided. All other changes, and a second one of a subject, get a batch of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.registry.errors import RegistryError
from ottla.registry.records import Pair
from ottla.registry.state import Reserved

_MAX_CHANGES: Final = 64
_MAX_BYTES: Final = 256 << 10
"""What several changes put into one batch at most. A larger record has a batch of its own."""

Decide = Callable[[Reserved], Sequence[Pair]]
"""Gives the records of a change, by the state and by the ids that the batch has reserved. It may be called again."""


@dataclass(slots=True, eq=False)
class Change:
    """A change, and the future of the client that waits for it."""

    decide: Decide
    may_write: Callable[[], bool]
    subject: str | None = None
    """The subject that it registers a schema under; None for a change that shares no batch."""
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(slots=True)
class Batch:
    """The records of a group. `left` are the changes that did not fit."""

    pairs: list[Pair]
    members: list[Change]
    left: list[Change]


class ChangeQueue:
    """Changes in the order of their arrival. The HTTP server bounds them: one for each of its connections."""

    def __init__(self) -> None:
        self._waiting: deque[Change] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def append(self, change: Change) -> None:
        self._waiting.append(change)

    def put_back(self, changes: Sequence[Change]) -> None:
        self._waiting.extendleft(reversed(changes))

    def next_group(self) -> list[Change]:
        """The first change, and those right behind it that may share its batch."""
        group = [self._waiting.popleft()]
        subjects = {group[0].subject}
        while self._waiting and len(group) < _MAX_CHANGES:
            subject = self._waiting[0].subject
            if subject is None or None in subjects or subject in subjects:
                break
            subjects.add(subject)
            group.append(self._waiting.popleft())
        return group

    def cancel(self) -> None:
        """Give up what waits: the registry stops."""
        while self._waiting:
            self._waiting.popleft().done.cancel()


def decide(group: Sequence[Change]) -> Batch:
    """The records of a group. A change that is refused fails here, alone."""
    reserved = Reserved()
    batch = Batch([], [], [])
    size = 0
    for number, change in enumerate(group):
        try:
            pairs = change.decide(reserved)
        except RegistryError as error:
            change.fail(error)
            continue
        size += sum(len(key) + len(value or b"") for key, value in pairs)
        if batch.pairs and size > _MAX_BYTES:
            batch.left = list(group[number:])
            break
        batch.pairs += pairs
        batch.members.append(change)
    return batch
