"""The state of a consumer: its partitions and positions. It has no engine and no clock."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.client.errors import IllegalStateError
from ottla.client.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from ottla.client.engine_types import EngineMessage
    from ottla.client.listeners import ConsumerRebalanceListener


class ConsumerState:
    """Subscription or manual assignment, positions, pauses, and records fetched but not yet handed out."""

    __slots__ = (
        "_positions",
        "assigned",
        "buffer",
        "epochs",
        "held",
        "latest",
        "listener",
        "manual",
        "pattern",
        "paused",
        "resets",
        "subscribed",
    )

    def __init__(self) -> None:
        self.subscribed: set[str] | None = None
        self.pattern: re.Pattern[str] | None = None
        self.listener: ConsumerRebalanceListener | None = None
        self.manual = False
        self.assigned: set[TopicPartition] = set()
        self._positions: dict[TopicPartition, int] = {}
        self.latest: EngineMessage | None = None
        self.epochs: dict[TopicPartition, int] = {}
        self.resets: dict[TopicPartition, str] = {}
        self.paused: set[TopicPartition] = set()
        self.buffer: deque[EngineMessage] = deque()
        self.held: dict[TopicPartition, list[EngineMessage]] = {}

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record of each partition."""
        self.settle()
        return self._positions

    def settle(self) -> None:
        """Take down how far the reading has come.

        `latest` is the last message handed out; noting each of them here would cost as much as handing it out,
        so it is done when the partition changes and on demand.
        """
        message = self.latest
        if message is not None:
            self.latest = None
            tp = _place(message)
            self._positions[tp] = message.offset() + 1
            epoch = message.leader_epoch()
            self.epochs[tp] = -1 if epoch is None else epoch

    def subscribe(
        self, topics: Iterable[str], pattern: str | None, listener: ConsumerRebalanceListener | None
    ) -> None:
        if self.manual:
            raise IllegalStateError(
                "partitions were assigned by hand: unsubscribe before subscribing to topics"
            )
        if isinstance(topics, str):
            topics = [topics]
        names = set(topics or ())
        if bool(names) == (pattern is not None):
            raise IllegalStateError("subscribe takes topics or a pattern: one of them, and not both")
        self.pattern = re.compile(pattern) if pattern is not None else None
        self.subscribed = names
        self.listener = listener

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        if self.subscribed is not None:
            raise IllegalStateError(
                "topics were subscribed to: unsubscribe before assigning partitions by hand"
            )
        self.manual = True
        self.replace(set(partitions))

    def replace(self, partitions: set[TopicPartition]) -> None:
        """Have these partitions and no others; what stays keeps its position."""
        self.drop(self.assigned - partitions)
        self.assigned = partitions

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        self.assigned = self.assigned | set(partitions)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self.settle()
        self.assigned = self.assigned - gone
        self.paused -= gone
        for tp in gone:
            for kept in (self.positions, self.epochs, self.resets, self.held):
                kept.pop(tp, None)
        self._forget_fetched(gone)

    def clear(self) -> None:
        self.drop(self.assigned)
        self.subscribed = self.pattern = self.listener = None
        self.manual = False
        self.buffer.clear()

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.settle()
        self.resets.pop(tp, None)
        self.epochs.pop(tp, None)
        self.positions[tp] = offset
        self.held.pop(tp, None)
        self._forget_fetched({tp})

    def reset(self, tp: TopicPartition, to: str) -> None:
        """Set the position to the start or end of the partition, which is looked up later."""
        self.settle()
        self.positions.pop(tp, None)
        self.epochs.pop(tp, None)
        self.resets[tp] = to
        self.held.pop(tp, None)
        self._forget_fetched({tp})

    def pause(self, tp: TopicPartition) -> None:
        self.paused.add(tp)
        of_it = [one for one in self.buffer if _place(one) == tp]
        if of_it:
            self._forget_fetched({tp})
            self.held[tp] = self.held.get(tp, []) + of_it

    def resume(self, tp: TopicPartition) -> None:
        self.paused.discard(tp)
        self.buffer.extendleft(reversed(self.held.pop(tp, [])))

    def reads(self, message: EngineMessage) -> bool:
        return _place(message) in self.assigned

    def without_position(self) -> list[TopicPartition]:
        if len(self.positions) == len(self.assigned):
            return []
        return sorted(self.assigned - self.positions.keys())

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that a commit without arguments commits."""
        self.settle()
        return {
            tp: OffsetAndMetadata(offset, "", self.epochs.get(tp, -1))
            for tp, offset in self.positions.items()
            if tp in self.assigned
        }

    def matching(self, topics: Iterable[str], is_internal: Callable[[str], bool]) -> set[str]:
        assert self.pattern is not None
        return {name for name in topics if self.pattern.match(name) and not is_internal(name)}

    def _forget_fetched(self, partitions: set[TopicPartition]) -> None:
        if self.buffer and partitions:
            self.buffer = deque(one for one in self.buffer if _place(one) not in partitions)


def _place(message: EngineMessage) -> TopicPartition:
    return TopicPartition(message.topic(), message.partition())
