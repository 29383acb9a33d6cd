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


def replay(state: ReplayState, records: Sequence[Message], last_offset: int, epoch: int) -> ReplayState:
    """The state after these records, the last of which is at `last_offset`."""
    before = state.before_transaction
    delta = MetadataDelta(state.image)
    for record in records:
        if record.NAME == "BeginTransactionRecord":
            before = delta.apply(last_offset, epoch)
            delta = MetadataDelta(before)
        elif record.NAME == "AbortTransactionRecord":
            delta = MetadataDelta(delta.image if before is None else before)
            before = None
        elif record.NAME == "EndTransactionRecord":
            before = None
        else:
            delta.replay(record)
    return ReplayState(delta.apply(last_offset, epoch), before)
