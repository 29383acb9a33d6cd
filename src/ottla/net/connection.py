"""One client's connection: cuts frames, keeps the order of responses, and never holds more than its bounds.

Requests are taken in order and answered in order; the next one is handled while an earlier one is still parked. The
dispatcher interprets frames, and `ottla.net.admission` decides which connections are accepted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable
from struct import Struct
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from ottla.counters import ListenerCounters, RequestCounters
from ottla.limits import MAX_PIPELINED_REQUESTS, MAX_WRITE_BUFFER_BYTES
from ottla.net.buffers import FIRST_GROWTH_BYTES, GROWTH, ReceiveBuffers
from ottla.net.request import Request
from ottla.security.grants import Grants, audit_log
from ottla.security.quotas.managers import UNMEASURED, ClientMeasures
from ottla.wire.enums import AclOperation
from ottla.wire.primitives import Buffer

if TYPE_CHECKING:
    from ottla.api.data.produce_repeated import RepeatedProduce
    from ottla.api.groups.offset_commit_repeated import RepeatedOffsetCommit
    from ottla.clock import Clock, Timer
    from ottla.net.busy_poll import BusyPoller
    from ottla.net.failed_logins import FailedLogins

_logger = logging.getLogger(__name__)

_SIZE = Struct(">i")
_WRITE = 1 << AclOperation.WRITE
_PROGRESS_BYTES = 1024
"""Smaller reads that do not complete a request do not count as activity: slow-drip clients count as idle."""
_JOIN_BELOW_BYTES = 16 << 10
"""Responses smaller than this are joined: one copy is cheaper than several entries in the write queue."""
_SMALL_READ_BYTES = 4 << 10
_BYTES_PER_TURN = 1 << 20
"""After this much from one client the others and the timers come first: libuv would read 32 times in a row."""
_HTTP = frozenset({b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"CONN", b"DELE", b"PRI "})
_LEARN_FROM = 2
"""The request that is looked at for what the next ones may share: clients that send one only gain nothing."""
_SECONDS_PER_TURN = 0.01
"""The same limit in time, however small the requests."""


class ClientInfo(msgspec.Struct, frozen=True):
    """The client at the other end of a connection, and the listener that accepted it."""

    connection_id: str
    client_host: str
    local_host: str
    local_port: int
    listener_name: str
    on_controller_listener: bool
    principal: str = "User:ANONYMOUS"
    node_ids: frozenset[int] = frozenset()
    """The nodes that the client's certificate names."""
    token_authenticated: bool = False
    """The client has logged in with a delegation token."""


class Gate(Protocol):
    """What a connection waits for with its next request unread."""

    def wait(self, resume: Callable[[], None]) -> None:
        """Call back when the gate opens."""
        ...

    def forget(self, resume: Callable[[], None]) -> None:
        """Do not call back any more."""
        ...


class FrameHandler(Protocol):
    """Takes the frames of a connection: the dispatcher of its listener, or what lets its client in before."""

    def dispatch(self, connection: Connection, frame: memoryview, now: float) -> None:
        """Take one request."""
        ...

    def forward(self, request: Request) -> None:
        """Have the active controller answer a request."""
        ...


class Connection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket."""

    __slots__ = (
        "_buffers",
        "_busy_poller",
        "_call_soon",
        "_clock",
        "_counters",
        "_end",
        "_failed_logins",
        "_finishing",
        "_granted",
        "_held_answer_bytes",
        "_held_by",
        "_max_request_bytes",
        "_muted",
        "_muted_until",
        "_on_lost",
        "_own",
        "_reading",
        "_resume_scheduled",
        "_since_turn",
        "_slots",
        "_transport",
        "_write_paused",
        "client",
        "dispatcher",
        "known_grants",
        "last_active",
        "measures",
        "monotonic",
        "on_disconnect",
        "repeated_commit",
        "repeated_produce",
        "requests_until_learning",
        "software",
        "waits_for_turn",
    )

    def __init__(
        self,
        dispatcher: FrameHandler,
        buffers: ReceiveBuffers,
        clock: Clock,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        max_request_bytes: int,
        client: ClientInfo,
        on_lost: Callable[[Connection], None],
        busy_poll: BusyPoller | None = None,
        failed_logins: FailedLogins | None = None,
        counters: ListenerCounters | None = None,
    ) -> None:
        """`failed_logins` bounds how often the log names one address."""
        self.dispatcher: FrameHandler = dispatcher
        self._buffers = buffers
        self._clock = clock
        self.monotonic = clock.monotonic
        self._counters = counters or ListenerCounters()
        self._call_soon = call_soon
        self._max_request_bytes = max_request_bytes
        self.client = client
        self.known_grants: Grants | None = None
        """What `grants` returns once it was asked for."""
        self.measures: ClientMeasures = UNMEASURED
        """Those of the last request while there are quotas."""
        self.repeated_produce: RepeatedProduce | None = None
        """What the client's last Produce requests had in common."""
        self.repeated_commit: RepeatedOffsetCommit | None = None
        """The same of its commits."""
        self.requests_until_learning = _LEARN_FROM
        self.waits_for_turn = False
        """A request, answered at the end of the turn, took no slot."""
        self._on_lost = on_lost
        self._busy_poller = busy_poll
        self._failed_logins = failed_logins
        self._transport: asyncio.Transport | None = None
        self._own: bytearray | None = None
        self._end = 0
        self._granted = True
        self._slots: deque[Request] = deque()
        self._held_answer_bytes = 0
        self._reading = True
        self._since_turn = 0
        self._write_paused = False
        self._finishing = False
        self._held_by: Gate | None = None
        """The gate that the next request waits for."""
        self._muted_until = 0.0
        self._muted: Timer | None = None
        """Runs while a quota keeps the connection's next requests waiting."""
        self._resume_scheduled = False
        self.last_active = clock.monotonic()
        self.software = ("unknown", "unknown")
        """Name and version of the client's library."""
        self.on_disconnect: dict[Hashable, Callable[[], None]] = {}
        """Callbacks of state that lives as long as the connection."""

    def limit_requests(self, max_request_bytes: int) -> None:
        """Change the largest size of a request: before authentication it is smaller."""
        self._max_request_bytes = max_request_bytes

    def authenticated(self, principal: str, *, by_token: bool = False) -> None:
        """From the next request on the client speaks for this principal."""
        self.client = msgspec.structs.replace(self.client, principal=principal, token_authenticated=by_token)
        self.known_grants = None
        self.measures = UNMEASURED

    def identify(self, name: str, version: str) -> None:
        """The client has said which library it uses."""
        self._counters.count_software(self.software, -1)
        self.software = name, version
        self._counters.count_software(self.software, 1)

    def certified(self, node_ids: frozenset[int]) -> None:
        """The client has shown a certificate that names these nodes."""
        self.client = msgspec.structs.replace(self.client, node_ids=node_ids)

    @property
    def grants(self) -> Grants:
        """What the client may do, as far as that has been decided before."""
        grants = self.known_grants
        if grants is None:
            grants = self.known_grants = Grants(self.client.principal, self.client.client_host)
        return grants

    def may_write(self, topic: str | bytes, generation: int) -> bool:
        """Whether the ACLs of this generation are known to let the client write to a topic, by its name or id.

        False while the audit log gets every decision.
        """
        grants = self.known_grants
        return (
            grants is not None
            and grants.generation == generation
            and bool(grants.topics.get(topic, 0) & _WRITE)
            and not audit_log.isEnabledFor(logging.DEBUG)
        )

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=MAX_WRITE_BUFFER_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:
        own = self._own
        # All connections share the scratch buffer, which is filled and emptied within one turn of the loop.
        return self._buffers.scratch if own is None else memoryview(own)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        now = self.monotonic()
        self._counters.bytes_in += nbytes
        own = self._own
        if own is None:
            self.last_active = now
            self._take_frames(self._buffers.scratch[:nbytes], now)
            if nbytes < _SMALL_READ_BYTES and self._busy_poller is not None:
                self._busy_poller.asked(self, now)
        else:
            if nbytes >= _PROGRESS_BYTES:
                self.last_active = now
            self._end += nbytes
            self._take_frames(memoryview(own)[: self._end], now)
        self._since_turn += nbytes
        if self._since_turn >= _BYTES_PER_TURN:
            self._let_others()

    def eof_received(self) -> bool:
        # A client that closed its side does not read the responses to its parked requests any more.
        return False

    def pause_writing(self) -> None:
        self._write_paused = True
        self._stop_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self.last_active = self._clock.monotonic()
        self._schedule_resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._release_own()
        if self._held_by is not None:
            self._held_by.forget(self._let_through)
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        slots, self._slots = self._slots, deque()
        self._held_answer_bytes = 0
        self._on_lost(self)
        for request in slots:
            for callback in request.client_gone():
                callback()
        for callback in self.on_disconnect.values():
            callback()

    # -- called by requests, the reaper and the listener

    @property
    def pending(self) -> int:
        """Requests taken and not answered yet."""
        return len(self._slots) + self.waits_for_turn

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn of the event loop."""
        self._call_soon(callback)

    @property
    def write_paused(self) -> bool:
        return self._write_paused

    @property
    def closing(self) -> bool:
        """It is closed as soon as everything that was written has been sent."""
        return self._closing

    def add(self, request: Request) -> None:
        """Take the next slot in the queue of responses."""
        self._slots.append(request)

    def hold(self, gate: Gate) -> None:
        """Leave the current request in the buffer, and take no request until the gate opens."""
        self._held_by = gate
        gate.wait(self._let_through)

    def _let_through(self) -> None:
        self._held_by = None
        self.last_active = self._clock.monotonic()
        self._schedule_resume()

    @property
    def muted(self) -> bool:
        """No request is taken because of a quota: the connection is not idle."""
        return self._muted is not None

    def mute(self, seconds: float) -> None:
        """Take no request for this long: the client is above a quota. Of two times the longer one counts."""
        until = self._clock.monotonic() + seconds
        if self._muted is not None:
            if until <= self._muted_until:
                return
            self._muted.cancel()
        self._muted_until = until
        self._muted = self._clock.call_later(seconds, self._unmute)
        self._stop_reading()

    def _unmute(self) -> None:
        self._muted = None
        self.last_active = self._clock.monotonic()
        self._schedule_resume()

    def answered(self, request: Request) -> None:
        """A request has its response: write all responses that are next in order."""
        slots = self._slots
        if slots and slots[0] is not request:
            self._held_answer_bytes += request.size
            return
        now = self.last_active = self.monotonic()
        transport = None if self._closing else self._transport
        counters = self._counters
        while slots and (buffers := slots[0].buffers) is not None:
            head = slots.popleft()
            if head is not request:
                self._held_answer_bytes -= head.size
            if transport is not None and buffers:
                _write(transport, buffers, head.size)
                counters.responses += 1
                counters.bytes_out += head.size
            counted = head.counters
            counted.versions[head.version] += 1
            counted.total.add(now - head.received_at)
            if head.began:
                head.note_parts(now, self.monotonic())
        if self._finishing:
            if not slots:
                self.close()
        elif not self._reading:
            self._schedule_resume()

    def answered_at_once(
        self, response: bytes, version: int, received_at: float, counted: RequestCounters
    ) -> None:
        """Write the response to a request that took no slot; there are no other requests before it."""
        now = self.last_active = self.monotonic()
        transport = self._transport
        if transport is not None:
            transport.write(response)
            counters = self._counters
            counters.responses += 1
            counters.bytes_out += len(response)
        counted.taken += 1
        counted.versions[version] += 1
        counted.total.add(now - received_at)
        if self._finishing and not self._slots:
            self.close()

    def finish(self) -> None:
        """Take no more requests, and close once those that were taken are answered."""
        self._finishing = True
        if self.pending:
            self._stop_reading()
        else:
            self.close()

    def close(self) -> None:
        """Close after what is already written has been sent. Parked requests are dropped."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # -- taking requests

    @property
    def _blocked(self) -> bool:
        if self._write_paused or self._finishing or self._held_by is not None or self._muted is not None:
            return True
        # In most cases every request was answered at once, and there is nothing to count.
        slots = self._slots
        return bool(slots) and (
            len(slots) >= MAX_PIPELINED_REQUESTS or self._held_answer_bytes > MAX_WRITE_BUFFER_BYTES
        )

    def _take_frames(self, view: memoryview, now: float) -> bool:
        """Hand every whole frame to the dispatcher, as far as the bounds allow, and keep the rest.

        Returns True if that took so long that the rest has to wait for another turn.
        """
        position, end = 0, len(view)
        missing = 0
        late = False
        until = now + _SECONDS_PER_TURN
        dispatch = self.dispatcher.dispatch
        while end - position >= 4 and not self._blocked:
            size: int = _SIZE.unpack_from(view, position)[0]
            if size < 0 or size > self._max_request_bytes:
                self._refuse_size(size)
                self._release_own()
                return False
            start = position + 4
            if end - start < size:
                missing = size - (end - start)
                break
            dispatch(self, view[start : start + size], now)
            if self._held_by is not None:
                break
            position = start + size
            if self._closing:
                self._release_own()
                return False
            if self.monotonic() >= until:
                late = True
                break
        if position:
            self.last_active = now
        if position < end or self._own is not None or self._blocked:
            self._keep(view, position, missing)
        if late:
            self._let_others()
        return late

    def _let_others(self) -> None:
        """Go on in another turn of the event loop."""
        self._since_turn = 0
        self._stop_reading()
        if self._granted:
            self._schedule_resume()

    def _keep(self, view: memoryview, position: int, missing: int) -> None:
        """Keep what was not taken, with room for the missing bytes of its first frame."""
        rest = len(view) - position
        old = self._own
        if rest == 0:
            self._release_own()
        elif old is None and self._buffers.exhausted:
            # Not counted by the pool: else the connections that wait for memory would be the ones that hold it.
            self._own, self._granted = bytearray(view[position:]), False
        else:
            if old is None or (rest == len(old) and self._held_by is None):
                whole = rest + max(missing, 1)
                # The announced length is not trusted: memory grows with the bytes that have arrived.
                least = min(whole, rest * GROWTH)
                self._own = own = self._buffers.take(min(whole, max(least, FIRST_GROWTH_BYTES)), least)
                own[:rest] = view[position:]
                if old is not None and self._granted:
                    self._buffers.give_back(old)
                self._granted = True
            elif position:
                memoryview(old)[:rest] = view[position:]
        self._end = rest
        if self._blocked:
            self._stop_reading()
        elif not self._granted:
            self._stop_reading()
            self._buffers.wait(self._schedule_resume)

    def _refuse_size(self, size: int) -> None:
        protocol = _other_protocol(size)
        why = f"it announced a request of {size} bytes, more than socket.request.max.bytes ({self._max_request_bytes})"
        if protocol is not None:
            why = f"it speaks {protocol}, and listener {self.client.listener_name} does not"
        left_out = 0
        if self._failed_logins is not None:
            found = self._failed_logins.worth_logging(self.client.client_host, self._clock.monotonic())
            if found is None:
                self.close()
                return
            left_out = found
        more = f" (and {left_out} more of this address since its last line)" if left_out else ""
        _logger.warning("Closing %s: %s%s", self.client.connection_id, why, more)
        self.close()

    def _stop_reading(self) -> None:
        if self._reading and self._transport is not None and not self._closing:
            self._reading = False
            self._transport.pause_reading()

    def _schedule_resume(self) -> None:
        # Responses can come from inside other connections' requests: continue in a separate turn.
        if not self._resume_scheduled and not self._reading and self._transport is not None:
            self._resume_scheduled = True
            self._call_soon(self._resume)

    def _resume(self) -> None:
        self._resume_scheduled = False
        if self._reading or self._closing or self._blocked:
            return
        if self._own is not None:
            if not self._granted and self._buffers.exhausted:
                self._buffers.wait(self._schedule_resume)
                return
            late = self._take_frames(memoryview(self._own)[: self._end], self._clock.monotonic())
            if late or self._closing or self._blocked or not self._granted:
                return
        self._reading = True
        if self._transport is not None:
            self._transport.resume_reading()

    @property
    def _closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _release_own(self) -> None:
        own, self._own, self._end = self._own, None, 0
        if own is not None and self._granted:
            self._buffers.give_back(own)
        self._granted = True


def _other_protocol(size: int) -> str | None:
    """What a client speaks if its first four bytes are no length but the beginning of something else."""
    first = size.to_bytes(4, "big", signed=True)
    if first[:2] == b"\x16\x03":
        return "TLS"
    return "HTTP" if first in _HTTP else None


def _write(transport: asyncio.Transport, buffers: list[Buffer], size: int) -> None:
    if len(buffers) == 1:
        transport.write(buffers[0])
    elif size < _JOIN_BELOW_BYTES:
        transport.write(b"".join(buffers))
    else:
        transport.writelines(buffers)
