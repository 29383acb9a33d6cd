"""The controller's own state: the image of everything appended, including open metadata transactions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.wire.classes import WireMessage


class ReplayState(msgspec.Struct, frozen=True):
    """An image, and the one to restore if the open transaction is aborted."""

    image: MetadataImage = EMPTY_IMAGE
    before_transaction: MetadataImage | None = None

    @property
    def in_transaction(self) -> bool:
        return self.before_transaction is not None


class Replay:
    """Applies records to a state; `finish` returns the next state."""

    __slots__ = ("_before", "_delta")

    def __init__(self, state: ReplayState) -> None:
        self._before = state.before_transaction
        self._delta = MetadataDelta(state.image)

    def feed(self, records: Sequence[WireMessage]) -> None:
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
        """The state after all records, the last of which is at this offset."""
        return ReplayState(self._delta.apply(last_offset, epoch), self._before)


def replay(state: ReplayState, records: Sequence[WireMessage], last_offset: int, epoch: int) -> ReplayState:
    """The state after these records, the last of which is at `last_offset`."""
    on_top = Replay(state)
    on_top.feed(records)
    return on_top.finish(last_offset, epoch)
