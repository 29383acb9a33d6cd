"""Listening sockets: bound early, opened late, with an accept loop that can delay new connections.

Accepted sockets become connections; `ottla.net.admission` decides which sockets are accepted.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ottla.clock import Clock, Timer
from ottla.counters import ListenerCounters
from ottla.limits import MAX_HELD_SOCKETS
from ottla.net.admission import Admission, Verdict
from ottla.net.buffers import ReceiveBuffers
from ottla.net.busy_poll import BusyPoller
from ottla.net.connection import ClientInfo, Connection
from ottla.net.dispatch import Dispatcher

if TYPE_CHECKING:
    from ottla.net.connection_security import ConnectionSecurity
    from ottla.net.failed_logins import FailedLogins
    from ottla.security.quotas.ips import IpQuotas

_logger = logging.getLogger(__name__)

_ACCEPTS_PER_TURN = 64
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_RETRY_ACCEPT_S = 1.0
_WARN_FULL_EACH_S = 60.0


class ListenerSettings(msgspec.Struct, frozen=True):
    """The configuration of one listener."""

    name: str
    host: str
    """Empty for every address of the machine."""
    port: int
    on_controller_listener: bool
    max_request_bytes: int
    backlog: int
    send_buffer_bytes: int
    """-1 for the default of the operating system."""
    receive_buffer_bytes: int


class BindError(OSError):
    """A listener cannot use its address; the message says which address and why."""


def bind(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """Bind, without listening, every address of the host; all get the same port.

    Several processes of one user may bind a shared port: the system hands each connection to one of them.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host):
            bound_port = sockets[0].getsockname()[1] if sockets else port
            sock = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "" else 1)
            try:
                sock.bind((address, bound_port))
            except OSError as error:
                # A name can resolve to an address that this machine does not have (::1 without IPv6).
                if error.errno != errno.EADDRNOTAVAIL or len(sockets) == 1:
                    raise
                sockets.pop().close()
    except OSError as error:
        for sock in sockets:
            sock.close()
        where = f"{host or '*'}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise BindError(
                error.errno,
                f"cannot listen on {where}: another process uses the port; stop it, or change `listeners`",
            ) from error
        raise BindError(error.errno or 0, f"cannot listen on {where}: {error.strerror or error}") from error
    return sockets


def _addresses(host: str) -> list[tuple[int, str]]:
    if host == "":
        return [(socket.AF_INET6, "::")] if socket.has_dualstack_ipv6() else [(socket.AF_INET, "0.0.0.0")]
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    unique = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found)
    return sorted(unique, key=lambda entry: entry[0] != socket.AF_INET)


class Listener:
    """One configured listener. `sockets` come from `bind`."""

    def __init__(
        self,
        settings: ListenerSettings,
        sockets: list[socket.socket],
        dispatcher: Dispatcher,
        buffers: ReceiveBuffers,
        admission: Admission,
        clock: Clock,
        busy_poll: BusyPoller | None = None,
        security: ConnectionSecurity | None = None,
        ip_quotas: IpQuotas | None = None,
        failed_logins: FailedLogins | None = None,
        counters: ListenerCounters | None = None,
    ) -> None:
        """`security` is None for a PLAINTEXT listener."""
        self._counters = counters or ListenerCounters()
        self.settings = settings
        self._security = security
        self._failed_logins = failed_logins
        self.connections: set[Connection] = set()
        self._sockets = sockets
        self._dispatcher = dispatcher
        self._buffers = buffers
        self._admission = admission
        self._clock = clock
        self._busy_poller = busy_poll
        self._ip_quotas = ip_quotas
        self._held: dict[socket.socket, Timer] = {}
        """Connections of addresses above their rate, until they are closed."""
        self._accepting = False
        self._stopped = False
        self._held_back: Timer | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._count = 0
        self._warn_full_again_at = 0.0
        self._all_closed: asyncio.Event | None = None
        self.on_room: Callable[[], None] = self.resume_accepting
        """Called when a connection has closed: listeners at their limit may accept again."""

    @property
    def address(self) -> tuple[str, int]:
        """Host (as configured, or the address bound to) and the real port."""
        bound = self._sockets[0].getsockname()
        return self.settings.host or str(bound[0]), int(bound[1])

    def open(self) -> None:
        """Listen and accept."""
        for sock in self._sockets:
            if self.settings.receive_buffer_bytes >= 0:
                # Accepted sockets inherit it; if set later, it would not widen the TCP window.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.settings.receive_buffer_bytes)
            sock.listen(self.settings.backlog)
        self.resume_accepting()

    def resume_accepting(self) -> None:
        if self._stopped or self._accepting or self._held_back is not None:
            return
        if self._is_full():
            return
        self._accepting = True
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            loop.add_reader(sock.fileno(), self._accept, sock)

    async def stop(self, grace_s: float) -> None:
        """Stop accepting, let running requests finish within the grace time, then close every connection."""
        self._stopped = True
        self._pause_accepting()
        if self._held_back is not None:
            self._held_back.cancel()
        for sock in self._sockets:
            sock.close()
        for held, timer in self._held.items():
            timer.cancel()
            held.close()
        self._held.clear()
        if self._opening:
            await asyncio.wait(self._opening)
        if not self.connections:
            return
        self._all_closed = all_closed = asyncio.Event()
        for connection in self.connections.copy():
            connection.finish()
        abort = self._clock.call_later(grace_s, self._abort_all)
        await all_closed.wait()
        abort.cancel()

    def _abort_all(self) -> None:
        for connection in self.connections.copy():
            connection.abort()

    # -- accepting

    def _pause_accepting(self) -> None:
        if self._accepting:
            self._accepting = False
            loop = asyncio.get_running_loop()
            for sock in self._sockets:
                loop.remove_reader(sock.fileno())

    def _hold_back(self, delay_s: float) -> None:
        self._pause_accepting()
        self._held_back = self._clock.call_later(delay_s, self._end_hold)

    def _end_hold(self) -> None:
        self._held_back = None
        self.resume_accepting()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if self._is_full():
                self._warn_full()
                self._pause_accepting()
                return
            delay_s = self._admission.delay(self.settings.name, self._clock.monotonic())
            if delay_s > 0:
                self._hold_back(delay_s)
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                _logger.error(
                    "Cannot accept connections: %s. Trying again in %.0f s", error.strerror, _RETRY_ACCEPT_S
                )
                self._hold_back(_RETRY_ACCEPT_S)
                return
            self._admit(accepted, _plain(str(address[0])), int(address[1]))

    def _is_full(self) -> bool:
        return self._admission.full(self.settings.name) or (
            self._security is not None and self._security.full
        )

    def _warn_full(self) -> None:
        now = self._clock.monotonic()
        if now >= self._warn_full_again_at:
            self._warn_full_again_at = now + _WARN_FULL_EACH_S
            limit = "max.connections connections"
            if not self._admission.full(self.settings.name):
                limit = "ottla.max.unauthenticated.connections connections that are not authenticated"
            _logger.warning("Listener %s has %s: new ones wait", self.settings.name, limit)

    def _hold(self, accepted: socket.socket, seconds: float) -> None:
        """Leave a connection unread for a time, then close it: its client must not try again at once."""
        if len(self._held) >= MAX_HELD_SOCKETS:
            accepted.close()
        else:
            self._held[accepted] = self._clock.call_later(seconds, self._close_held, accepted)

    def _close_held(self, held: socket.socket) -> None:
        del self._held[held]
        held.close()

    def _admit(self, accepted: socket.socket, ip: str, port: int) -> None:
        quotas = self._ip_quotas
        if quotas is not None and quotas.enabled:
            throttle_ms = quotas.throttle_ms(ip, int(self._clock.monotonic() * 1000))
            if throttle_ms > 0:
                _logger.debug("Holding a connection from %s for %d ms: it is above its rate", ip, throttle_ms)
                self._hold(accepted, throttle_ms / 1000)
                return
        if self._admission.admit(self.settings.name, ip) is Verdict.REFUSE:
            _logger.info(
                "Refusing a connection from %s: it has max.connections.per.ip connections already", ip
            )
            accepted.close()
            return
        connection = Connection(
            self._dispatcher,
            self._buffers,
            self._clock,
            call_soon=asyncio.get_running_loop().call_soon,
            max_request_bytes=self.settings.max_request_bytes,
            client=self._client(accepted, ip, port),
            on_lost=self._lost,
            busy_poll=self._busy_poller,
            failed_logins=self._failed_logins,
            counters=self._counters,
        )
        self._counters.created += 1
        self._counters.count_software(connection.software, 1)
        self.connections.add(connection)
        if self._security is not None:
            self._security.begin(connection)
        task = asyncio.get_running_loop().create_task(self._start(accepted, connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _start(self, accepted: socket.socket, connection: Connection) -> None:
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.settings.send_buffer_bytes >= 0:
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.settings.send_buffer_bytes)
            loop = asyncio.get_running_loop()
            protocol: asyncio.BaseProtocol = connection
            if self._security is not None:
                protocol = self._security.secure(connection, loop.call_soon)
            await loop.connect_accepted_socket(lambda: protocol, accepted)
        except OSError as error:
            _logger.info(
                "Connection %s was lost while it was opened: %s", connection.client.connection_id, error
            )
            accepted.close()
            self._lost(connection)

    def _client(self, accepted: socket.socket, ip: str, port: int) -> ClientInfo:
        local = accepted.getsockname()
        local_host, local_port = _plain(str(local[0])), int(local[1])
        self._count += 1
        return ClientInfo(
            connection_id=f"{local_host}:{local_port}-{ip}:{port}-{self._count}",
            client_host=ip,
            local_host=local_host,
            # Not the port that several processes share: clients must come back to this one.
            local_port=self.address[1],
            listener_name=self.settings.name,
            on_controller_listener=self.settings.on_controller_listener,
        )

    def _lost(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self._counters.closed += 1
            self._counters.count_software(connection.software, -1)
            self._admission.release(self.settings.name, connection.client.client_host)
            if self._security is not None:
                self._security.gone(connection)
            self.on_room()
        if self._all_closed is not None and not self.connections:
            self._all_closed.set()


def _plain(address: str) -> str:
    """An IPv4 address in its usual form, also if it was accepted by a dual-stack socket."""
    return address.removeprefix("::ffff:") if "." in address else address
