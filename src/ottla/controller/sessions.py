"""What only the running controller knows of brokers: who was heard of when, how far each has read.

None of it is in the log, but for the offsets of registrations: a new controller gives every unfenced broker a fresh
session and learns the rest from the next heartbeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.controller.brokers import BrokerControlState
from ottla.controller.cluster import is_active
from ottla.controller.result import Message
from ottla.metadata.image import BrokerRegistration, MetadataImage


@dataclass(slots=True)
class BrokerSession:
    """A broker that lives as far as we know."""

    epoch: int
    last_contact_s: float
    heard: bool = False
    """It has sent a heartbeat to this controller."""
    connection: str | None = None
    """The connection of its last heartbeat; None when it is lost."""
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    """The last record of what began its controlled shutdown."""


@dataclass(slots=True)
class BrokerSessions:
    """The brokers' sessions, by broker id."""

    node_id: int
    timeout_s: float
    _sessions: dict[int, BrokerSession] = field(default_factory=dict)
    _registration_offsets: dict[int, int] = field(default_factory=dict)

    # What the log says, whoever leads

    def forget_registrations(self) -> None:
        self._registration_offsets.clear()

    def note_registrations(self, records: Sequence[Message], first_offset: int) -> None:
        """Remember where in the log each broker's registration is."""
        for index, record in enumerate(records):
            if record.NAME == "RegisterBrokerRecord":
                self._registration_offsets[record.broker_id] = first_offset + index
                session = self._sessions.get(record.broker_id)
                if session is not None and session.epoch != record.broker_epoch:
                    # The incarnation before is gone; this one's session begins with its first heartbeat.
                    del self._sessions[record.broker_id]
            elif record.NAME == "UnregisterBrokerRecord":
                self._registration_offsets.pop(record.broker_id, None)
                self._sessions.pop(record.broker_id, None)

    def registration_offset(self, broker_id: int) -> int:
        return self._registration_offsets.get(broker_id, -1)

    # What the active controller learns

    def begin(self, image: MetadataImage, now_s: float) -> None:
        """This controller is active from now on: every broker that may serve has a whole session before it."""
        self._sessions = {
            broker.id: BrokerSession(broker.epoch, now_s)
            for broker in image.brokers.values()
            if not broker.fenced
        }

    def end_all(self) -> None:
        self._sessions = {}

    def end(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    def of(self, broker_id: int, epoch: int) -> BrokerSession | None:
        session = self._sessions.get(broker_id)
        return session if session is not None and session.epoch == epoch else None

    def touch(self, request: Message, connection: str | None, now_s: float) -> BrokerSession:
        """A heartbeat came from a broker of the current epoch."""
        session = self.of(request.broker_id, request.broker_epoch)
        if session is None:
            session = self._sessions[request.broker_id] = BrokerSession(request.broker_epoch, now_s)
        session.last_contact_s = now_s
        session.heard = True
        session.connection = connection
        session.metadata_offset = request.current_metadata_offset
        return session

    def note_state(self, broker_id: int, state: BrokerControlState, last_offset: int) -> None:
        """What the heartbeat led to; `last_offset` is the end of the log with it."""
        session = self._sessions[broker_id]
        if state is BrokerControlState.SHUTDOWN_NOW:
            # It goes, and may come back at once as another incarnation.
            self.end(broker_id)
        elif state is not BrokerControlState.CONTROLLED_SHUTDOWN:
            session.shutdown_offset = None
        elif session.shutdown_offset is None:
            session.shutdown_offset = last_offset

    def unheard(self) -> list[tuple[int, BrokerSession]]:
        """Brokers that have not spoken to this controller yet."""
        return [(broker_id, session) for broker_id, session in self._sessions.items() if not session.heard]

    def is_alive(self, existing: BrokerRegistration, directories: Sequence[bytes], now_s: float) -> bool:
        """Whether the registered incarnation may live, so that another may not take its place.

        Who registers with a directory of it holds that directory's lock; when the one before has no connection to us
        either, its process is gone. The same goes for our own id: that broker would be in this process.
        """
        session = self.of(existing.id, existing.epoch)
        if session is None or session.last_contact_s + self.timeout_s < now_s:
            return False
        if session.connection is not None:
            return True
        same_place = bool(set(existing.directories) & set(directories))
        return not (same_place or existing.id == self.node_id)

    def next_deadline_s(self) -> float | None:
        """When the next session runs out unless that broker is heard of."""
        if not self._sessions:
            return None
        return min(session.last_contact_s for session in self._sessions.values()) + self.timeout_s

    def expired(self, now_s: float) -> list[tuple[int, int]]:
        """(id, epoch) of brokers that were silent for too long."""
        return [
            (broker_id, session.epoch)
            for broker_id, session in self._sessions.items()
            if session.last_contact_s + self.timeout_s <= now_s
        ]

    def start_afresh(self, now_s: float) -> None:
        for session in self._sessions.values():
            session.last_contact_s = now_s

    def others_know_shutdown(self, image: MetadataImage, broker_id: int) -> bool:
        """Whether all active brokers have read what began the controlled shutdown of this one."""
        session = self._sessions.get(broker_id)
        if session is None or session.shutdown_offset is None:
            return True
        return all(
            (other := self._sessions.get(active)) is not None
            and other.metadata_offset >= session.shutdown_offset
            for active in image.brokers
            if active != broker_id and is_active(image, active)
        )
