"""The controller's own reading of its log: the image of everything appended, open metadata transactions included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.controller.result import Message
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage


@dataclass(frozen=True, slots=True)
class ReplayState:
    """An image, and the one to go back to should the open transaction be aborted."""

    image: MetadataImage = EMPTY_IMAGE
    before_transaction: MetadataImage | None = None

    @property
    def in_transaction(self) -> bool:
        return self.before_transaction is not None


class Replay:
    """Takes in records on top of a state; `finish` gives the next one."""

    __slots__ = ("_before", "_delta")

    def __init__(self, state: ReplayState) -> None:
        self._before = state.before_transaction
        self._delta = MetadataDelta(state.image)

    def feed(self, records: Sequence[Message]) -> None:
        for record in records:
            if record.NAME == "BeginTransactionRecord":
                image = self._delta.image
                self._before = self._delta.apply(image.offset, image.epoch)
                self._delta = MetadataDelta(self._before)
            elif record.NAME == "AbortTransactionRecord":
                self._delta = MetadataDelta(self._delta.image if self._before is None else self._before)
                self._before = None
            elif record.NAME == "EndTransactionRecord":
                self._before = None
            else:
                self._delta.replay(record)

    def finish(self, last_offset: int, epoch: int) -> ReplayState:
        """The state after all that was fed, which ends at this offset."""
        return ReplayState(self._delta.apply(last_offset, epoch), self._before)


def replay(state: ReplayState, records: Sequence[Message], last_offset: int, epoch: int) -> ReplayState:
    """The state after these records, the last of which is at `last_offset`."""
    on_top = Replay(state)
    on_top.feed(records)
    return on_top.finish(last_offset, epoch)
