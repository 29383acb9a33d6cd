"""TLS between a socket and a protocol: OpenSSL in memory, no sockets of its own.

To the event loop `TlsLayer` is the protocol, to the protocol behind it the transport. Cipher text is read into a
scratch buffer that all connections of a loop share, and decrypted straight into the protocol's own buffer. Answers
are encrypted in pieces as the socket drains, so that a large one neither holds the loop nor exists twice.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.clock import Clock, Timer
from ottla.wire.primitives import Buffer

if TYPE_CHECKING:
    from ottla.net.handshake_turns import HandshakeTurns

_logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S: Final = 10.0
SCRATCH_BYTES: Final = 256 << 10
_RECORD_BYTES: Final = 16 << 10
"""Pieces smaller than this are joined, so that they fill one TLS record."""
_PIECE_BYTES: Final = 256 << 10
_TRANSPORT_BYTES: Final = 512 << 10
"""No more is encrypted while the transport holds this much cipher text."""
_TURN_BYTES: Final = 1 << 20
"""After this much, other connections get their turn."""

_WANT: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
_NOT_TLS: Final = frozenset(
    {"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG"}
)

Ready = Callable[[ssl.SSLObject], object]
"""Called once after the handshake. An exception of it fails the handshake."""
Failed = Callable[[str], float | None]
"""Called with the reason of a handshake that failed. Returns the seconds to wait before the connection is closed."""
Offload = Callable[
    [Callable[[], ssl.SSLError | None], Callable[["Future[ssl.SSLError | None]"], object]], object
]
"""Runs a step of a handshake in a thread, then calls back in that thread."""


class HandshakeRefused(Exception):
    """The handshake succeeded, but the other side is not to be let in; the text is for the log."""


class TlsLayer(asyncio.BufferedProtocol):
    """One connection. `protocol` is connected at once, and gets bytes after the handshake."""

    __slots__ = (
        "_call_soon",
        "_call_threadsafe",
        "_clock",
        "_closing",
        "_failed",
        "_handshaking",
        "_high",
        "_incoming",
        "_offload",
        "_outgoing",
        "_protocol",
        "_protocol_paused",
        "_pump_scheduled",
        "_queue",
        "_queued_bytes",
        "_reading",
        "_ready",
        "_scratch",
        "_stepping",
        "_timer",
        "_tls",
        "_transport",
        "_transport_full",
        "_turns",
    )

    def __init__(
        self,
        protocol: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        scratch: memoryview,
        clock: Clock,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        call_soon: Callable[[Callable[[], None]], object],
        ready: Ready,
        failed: Failed,
        turns: HandshakeTurns | None = None,
        offload: Offload | None = None,
        call_threadsafe: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`turns` bounds the steps of a turn; with `offload` they are made in threads, which `call_threadsafe`."""
        self._protocol = protocol
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._scratch = scratch
        self._clock = clock
        self._call_soon = call_soon
        self._ready = ready
        self._failed = failed
        self._turns = turns
        self._offload = offload
        self._call_threadsafe = call_threadsafe
        self._stepping = False
        """A step of the handshake waits for its turn, or runs in a thread."""
        self._transport: asyncio.Transport | None = None
        self._handshaking = True
        self._timer: Timer | None = None
        self._reading = True
        self._closing = False
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._high = 64 << 10
        self._protocol_paused = False
        self._transport_full = False
        self._pump_scheduled = False

    # -- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_TRANSPORT_BYTES)
        self._timer = self._clock.call_later(HANDSHAKE_TIMEOUT_S, self._handshake_timed_out)
        self._protocol.connection_made(cast(asyncio.BaseTransport, self))
        self._receive()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._incoming.write(self._scratch[:nbytes])
        self._receive()

    def eof_received(self) -> bool:
        # Frames have lengths: an end without close_notify cuts nothing off that would be taken for whole.
        return bool(self._protocol.eof_received())

    def pause_writing(self) -> None:
        self._transport_full = True

    def resume_writing(self) -> None:
        self._transport_full = False
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        self._transport = None
        self._queue.clear()
        self._queued_bytes = 0
        self._protocol.connection_lost(exc)

    # -- what the protocol calls, as on a transport

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """How much plain text may wait before the protocol is paused."""
        if high is not None:
            self._high = high

    def get_write_buffer_size(self) -> int:
        return self._queued_bytes + (
            0 if self._transport is None else self._transport.get_write_buffer_size()
        )

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    def write(self, data: Buffer) -> None:
        if self._closing or not data:
            return
        view = memoryview(data)
        self._queue.append(view)
        self._queued_bytes += len(view)
        self._send()

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        if self._closing:
            return
        for data in buffers:
            if data:
                view = memoryview(data)
                self._queue.append(view)
                self._queued_bytes += len(view)
        self._send()

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            if self._transport is not None:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._reading:
            return
        self._reading = True
        if self._transport is not None and not self._closing:
            # What was decrypted in part, or not yet, comes first.
            self._receive()
            if not self._stepping and self._reading:
                self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._closing or self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        """Send what waits and close_notify, then close without waiting for the other side's."""
        if not self._closing:
            self._closing = True
            self._send()

    def abort(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # -- handshake

    def _shake_hands(self) -> bool:
        """Go on with the handshake; True when it is done."""
        if self._stepping or not self._incoming.pending:
            return not self._stepping and self._server_waits()
        if self._turns is not None and not self._turns.may_go_on(self._continue):
            self._wait_for_step()
            return False
        if self._offload is not None:
            self._wait_for_step()
            self._offload(self._step, self._stepped)
            return False
        return self._after_step(self._step())

    def _server_waits(self) -> bool:
        """Nothing has come: a client begins, a server waits."""
        return not self._tls.server_side and self._after_step(self._step())

    def _step(self) -> ssl.SSLError | None:
        try:
            self._tls.do_handshake()
        except ssl.SSLError as error:
            return error
        return None

    def _wait_for_step(self) -> None:
        """Read nothing more until the step is made: what the other side sends meanwhile stays with the socket."""
        self._stepping = True
        if self._transport is not None and self._reading:
            self._transport.pause_reading()

    def _continue(self) -> None:
        """The turn for a step has come."""
        self._stepping = False
        if self._transport is None or self._closing:
            return
        self._receive()
        self._read_again()

    def _stepped(self, done: Future[ssl.SSLError | None]) -> None:
        """In a thread: a step is made."""
        assert self._call_threadsafe is not None
        self._call_threadsafe(partial(self._take_step, done))

    def _take_step(self, done: Future[ssl.SSLError | None]) -> None:
        self._stepping = False
        if self._transport is None or self._closing:
            return
        if self._after_step(done.result()):
            self._receive()
        self._read_again()

    def _read_again(self) -> None:
        if not self._stepping and self._reading and self._transport is not None and not self._closing:
            self._transport.resume_reading()

    def _after_step(self, error: ssl.SSLError | None) -> bool:
        """True when the handshake is done."""
        if isinstance(error, _WANT):
            self._flush()
            return False
        if error is not None:
            self._give_up(_reason(error))
            return False
        self._handshaking = False
        self._cancel_timer()
        try:
            self._ready(self._tls)
        except HandshakeRefused as refused:
            self._give_up(str(refused))
            return False
        self._flush()
        self._send()
        return not self._closing

    def _handshake_timed_out(self) -> None:
        self._timer = None
        self._failed(f"no handshake within {HANDSHAKE_TIMEOUT_S:g} s")
        self.abort()

    def _give_up(self, why: str) -> None:
        self._closing = True
        self._cancel_timer()
        delay_s = self._failed(why)
        if self._transport is None:
            return
        # The alert, or the end of the handshake, that OpenSSL has for the other side.
        self._flush()
        if delay_s:
            self._transport.pause_reading()
            self._timer = self._clock.call_later(delay_s, self._close_transport)
        else:
            self._transport.close()

    def _close_transport(self) -> None:
        self._timer = None
        if self._transport is not None:
            self._transport.close()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- bytes in

    def _receive(self) -> None:
        if self._closing or (self._handshaking and not self._shake_hands()):
            return
        protocol = self._protocol
        read = cast(Callable[[int, memoryview], int], self._tls.read)
        while self._reading and not self._closing:
            buffer = cast(memoryview, protocol.get_buffer(-1))
            size, filled = len(buffer), 0
            ended = False
            try:
                while filled < size and not ended:
                    count = read(size - filled, buffer[filled:])
                    filled += count
                    # Nothing is what OpenSSL reads after close_notify.
                    ended = not count
            except _WANT:
                pass
            except ssl.SSLError as error:
                _logger.info("TLS connection is broken: %s", _reason(error))
                self.abort()
                return
            if filled:
                protocol.buffer_updated(filled)
            if ended:
                self._ended()
                return
            if filled < size:
                break
        if self._outgoing.pending:
            self._flush()

    def _ended(self) -> None:
        """The other side has sent close_notify."""
        if not self._protocol.eof_received():
            self.close()

    # -- bytes out

    def _send(self) -> None:
        """Encrypt what the transport can take, at most a turn's share, and close when all is sent."""
        transport = self._transport
        if transport is None or self._handshaking or self._pump_scheduled:
            if self._closing and self._handshaking and transport is not None:
                transport.close()
            return
        sent = 0
        while self._queue and not self._transport_full:
            piece = self._next_piece()
            self._tls.write(piece)
            self._queued_bytes -= len(piece)
            sent += len(piece)
            transport.write(self._outgoing.read())
            if sent >= _TURN_BYTES and self._queue:
                self._pump_scheduled = True
                self._call_soon(self._next_turn)
                break
        self._tell_protocol()
        if self._closing and not self._queue and not transport.is_closing():
            self._notify_close()
            transport.close()

    def _next_turn(self) -> None:
        self._pump_scheduled = False
        self._send()

    def _next_piece(self) -> Buffer:
        """The next bytes to encrypt: a piece of a large buffer, or several small ones joined."""
        queue = self._queue
        head = queue[0]
        if len(head) > _PIECE_BYTES:
            queue[0] = head[_PIECE_BYTES:]
            return head[:_PIECE_BYTES]
        queue.popleft()
        if len(head) >= _RECORD_BYTES or not queue:
            return head
        joined = bytearray(head)
        while queue and len(joined) + len(queue[0]) <= _RECORD_BYTES:
            joined += queue.popleft()
        return joined

    def _tell_protocol(self) -> None:
        """Pause the protocol while too much plain text waits."""
        if self._queued_bytes > self._high:
            if not self._protocol_paused:
                self._protocol_paused = True
                self._protocol.pause_writing()
        elif self._protocol_paused and self._queued_bytes <= self._high // 4:
            self._protocol_paused = False
            self._protocol.resume_writing()

    def _notify_close(self) -> None:
        # OpenSSL asks for the other side's close_notify, which is not waited for.
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.write(self._outgoing.read())


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's reason in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate was not accepted: {error.verify_message}"
    reason = error.reason or str(error)
    if reason in _NOT_TLS:
        return "the client does not speak TLS"
    return reason.lower().replace("_", " ")
