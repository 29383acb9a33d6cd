"""Sessions of brokers: the last heartbeat of each, and how much of the metadata log it has read.

Only the offsets of registrations are in the log. A new controller gives every unfenced broker a new session and learns
the rest from the next heartbeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.controller.brokers import BrokerControlState
from ottla.controller.cluster import is_active
from ottla.ids import BrokerId
from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.wire.classes import WireMessage
from ottla.wire.messages import RegisterBrokerRecord, UnregisterBrokerRecord

if TYPE_CHECKING:
    from ottla.wire.messages import BrokerHeartbeatRequest


@dataclass(slots=True)
class BrokerSession:
    """A broker that is alive as far as the controller knows."""

    epoch: int
    last_contact_s: float
    has_heartbeat: bool = False
    """It has sent a heartbeat to this controller."""
    connection: str | None = None
    """The connection of its last heartbeat; None when that is lost."""
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    """The offset of the last record of the change that started its controlled shutdown."""


@dataclass(slots=True)
class BrokerSessions:
    """The brokers' sessions, by broker id."""

    node_id: int
    timeout_s: float
    _sessions: dict[BrokerId, BrokerSession] = field(default_factory=dict)
    _registration_offsets: dict[BrokerId, int] = field(default_factory=dict)

    # Events of the log, on every controller

    def forget_registrations(self) -> None:
        self._registration_offsets.clear()

    def note_registrations(self, records: Sequence[WireMessage], first_offset: int) -> None:
        """Remember the offset of each broker's registration."""
        for index, record in enumerate(records):
            if isinstance(record, RegisterBrokerRecord):
                self._registration_offsets[record.broker_id] = first_offset + index
                session = self._sessions.get(record.broker_id)
                if session is not None and session.epoch != record.broker_epoch:
                    # The previous incarnation is gone. The session of this one starts with its first heartbeat.
                    del self._sessions[record.broker_id]
            elif isinstance(record, UnregisterBrokerRecord):
                self._registration_offsets.pop(record.broker_id, None)
                self._sessions.pop(record.broker_id, None)

    def registration_offset(self, broker_id: BrokerId) -> int:
        return self._registration_offsets.get(broker_id, -1)

    # Events on the active controller

    def begin(self, image: MetadataImage, now_s: float) -> None:
        """This controller becomes active: give every unfenced broker a full session."""
        self._sessions = {
            broker.id: BrokerSession(broker.epoch, now_s)
            for broker in image.brokers.values()
            if not broker.fenced
        }

    def end_all(self) -> None:
        self._sessions = {}

    def end(self, broker_id: BrokerId) -> None:
        self._sessions.pop(broker_id, None)

    def of(self, broker_id: BrokerId, epoch: int) -> BrokerSession | None:
        session = self._sessions.get(broker_id)
        return session if session is not None and session.epoch == epoch else None

    def touch(self, request: BrokerHeartbeatRequest, connection: str | None, now_s: float) -> BrokerSession:
        """Renew the session of a broker of the current epoch that sent a heartbeat."""
        session = self.of(request.broker_id, request.broker_epoch)
        if session is None:
            session = self._sessions[request.broker_id] = BrokerSession(request.broker_epoch, now_s)
        session.last_contact_s = now_s
        session.has_heartbeat = True
        session.connection = connection
        session.metadata_offset = request.current_metadata_offset
        return session

    def note_state(self, broker_id: BrokerId, state: BrokerControlState, last_offset: int) -> None:
        """Record the state that follows from a heartbeat; `last_offset` is the last offset of its records."""
        session = self._sessions[broker_id]
        if state is BrokerControlState.SHUTDOWN_NOW:
            # The broker stops, and may come back at once as another incarnation.
            self.end(broker_id)
        elif state is not BrokerControlState.CONTROLLED_SHUTDOWN:
            session.shutdown_offset = None
        elif session.shutdown_offset is None:
            session.shutdown_offset = last_offset

    def without_heartbeat(self) -> list[tuple[BrokerId, BrokerSession]]:
        """Brokers that have not sent a heartbeat to this controller yet."""
        return [
            (broker_id, session) for broker_id, session in self._sessions.items() if not session.has_heartbeat
        ]

    def is_alive(self, existing: BrokerRegistration, directories: Sequence[bytes], now_s: float) -> bool:
        """Whether the registered incarnation may be alive, so that another may not replace it.

        A broker that registers with one of its directories holds that directory's lock. If the old incarnation has no
        connection either, its process is gone. The same holds for this node's id: that broker is in this process.
        """
        session = self.of(existing.id, existing.epoch)
        if session is None or session.last_contact_s + self.timeout_s < now_s:
            return False
        if session.connection is not None:
            return True
        same_place = bool(set(existing.directories) & set(directories))
        return not (same_place or existing.id == self.node_id)

    def next_deadline_s(self) -> float | None:
        """When the next session expires, unless that broker sends a heartbeat."""
        if not self._sessions:
            return None
        return min(session.last_contact_s for session in self._sessions.values()) + self.timeout_s

    def expired(self, now_s: float) -> list[tuple[BrokerId, int]]:
        """(id, epoch) of the brokers whose sessions have expired."""
        return [
            (broker_id, session.epoch)
            for broker_id, session in self._sessions.items()
            if session.last_contact_s + self.timeout_s <= now_s
        ]

    def renew_all(self, now_s: float) -> None:
        """Give every broker a full session from now on."""
        for session in self._sessions.values():
            session.last_contact_s = now_s

    def others_know_shutdown(self, image: MetadataImage, broker_id: BrokerId) -> bool:
        """Whether all active brokers have read the records that started the controlled shutdown of this one."""
        session = self._sessions.get(broker_id)
        if session is None or session.shutdown_offset is None:
            return True
        return all(
            (other := self._sessions.get(active)) is not None
            and other.metadata_offset >= session.shutdown_offset
            for active in image.brokers
            if active != broker_id and is_active(image, active)
        )
