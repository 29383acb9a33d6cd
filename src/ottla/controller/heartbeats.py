"""What only the running controller knows of brokers: how far each has read, and since when one is shutting down.

None of it is in the log; a new controller learns it from the next heartbeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.controller.brokers import BrokerControlState
from ottla.controller.cluster import is_active
from ottla.controller.result import Message
from ottla.metadata.image import MetadataImage


@dataclass(slots=True)
class _BrokerProgress:
    registration_offset: int
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    """The last record of what began its controlled shutdown."""


class BrokerHeartbeats:
    """Progress of the brokers, by id."""

    __slots__ = ("_brokers", "_node_id")

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._brokers: dict[int, _BrokerProgress] = {}

    def forget_all(self) -> None:
        self._brokers.clear()

    def note_registrations(self, records: Sequence[Message], first_offset: int, step: int = 1) -> None:
        """Remember where in the log each broker's registration is."""
        for index, record in enumerate(records):
            if record.NAME == "RegisterBrokerRecord":
                self._brokers[record.broker_id] = _BrokerProgress(first_offset + index * step)
            elif record.NAME == "UnregisterBrokerRecord":
                self._brokers.pop(record.broker_id, None)

    def registration_offset(self, broker_id: int) -> int:
        progress = self._brokers.get(broker_id)
        return -1 if progress is None else progress.registration_offset

    def has_session(self, broker_id: int) -> bool:
        """Whether a broker of this id is known to live, so that another may not take its place.

        Who registers with our own id speaks from within this process: the one before is surely gone.
        """
        progress = self._brokers.get(broker_id)
        return broker_id != self._node_id and progress is not None and progress.metadata_offset >= 0

    def touch(
        self, broker_id: int, metadata_offset: int, state: BrokerControlState, last_offset: int
    ) -> None:
        """A heartbeat came; `last_offset` is the end of the log after what it led to."""
        progress = self._brokers.setdefault(broker_id, _BrokerProgress(-1))
        progress.metadata_offset = metadata_offset
        if state is not BrokerControlState.CONTROLLED_SHUTDOWN:
            progress.shutdown_offset = None
        elif progress.shutdown_offset is None:
            progress.shutdown_offset = last_offset

    def others_know_shutdown(self, image: MetadataImage, broker_id: int) -> bool:
        """Whether all active brokers have read what began the controlled shutdown of this one."""
        progress = self._brokers.get(broker_id)
        if progress is None or progress.shutdown_offset is None:
            return True
        return all(
            (other := self._brokers.get(active)) is not None
            and other.metadata_offset >= progress.shutdown_offset
            for active in image.brokers
            if active != broker_id and is_active(image, active)
        )
