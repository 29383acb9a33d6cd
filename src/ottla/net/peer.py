"""A connection to another node: made when needed, with requests in order and exactly one outcome for each.

It finds out once per connection which versions the other node serves. `ottla.net.connecting` opens connections,
`ottla.net.response_protocol` receives responses; the senders know what their requests mean.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.errors import ErrorCode
from ottla.limits import MAX_PEER_IN_FLIGHT, MAX_PEER_QUEUE
from ottla.net.connecting import ConnectFailed
from ottla.net.response_protocol import ResponseProtocol
from ottla.peers import Endpoint, PeerFailure, Resp
from ottla.wire.apis import API_VERSIONS, ApiKey
from ottla.wire.classes import WireRequest, WireResponse
from ottla.wire.codec import decode_prefix
from ottla.wire.errors import DecodeError, EncodeError
from ottla.wire.headers import encode_request, response_header_version
from ottla.wire.messages import ApiVersionsRequest, ApiVersionsResponse, response_class

if TYPE_CHECKING:
    from ottla.clock import Timer
    from ottla.net.socket_peers import SocketPeers
    from ottla.security.listener_security import ClientSecurity

_logger = logging.getLogger(__name__)

T = TypeVar("T")
Failed = Callable[[PeerFailure], object]

_SOFTWARE: Final = "ottla-node", "1"
_NEVER: Final = float("inf")
_CORRELATION_AND_ERROR = Struct(">ih")
_ID = Struct(">i")
_SIZE_BYTES: Final = 4


class _Sent:
    """A request that waits for its response."""

    __slots__ = ("correlation_id", "deadline", "done", "failed", "max_version", "request", "version")

    def __init__(
        self,
        request: WireRequest[Resp],
        done: Callable[[Resp], object],
        failed: Failed,
        deadline: float,
        max_version: int | None,
    ) -> None:
        self.request: WireRequest[WireResponse] = request
        # The response of this request is of the type that `done` takes.
        self.done: Callable[[WireResponse], object] = done  # type: ignore[assignment]
        self.failed = failed
        self.deadline = deadline
        self.max_version = max_version
        self.version = -1
        self.correlation_id = -1


class SocketPeer:
    """One connection to one node. Implements `ottla.peers.Peer`.

    (nothing) ─send─▶ connecting ─connected─▶ (authenticating) ─▶ asking for versions ─answered─▶ ready
        ▲                 │ failed: what waits fails, pause grows        │ lost: what waits fails
        └─────────────────┴──────────────────────────────────────────────┘
    """

    def __init__(
        self, peers: SocketPeers, endpoint: Endpoint, purpose: str, security: ClientSecurity | None = None
    ) -> None:
        self._peers = peers
        self._security = security
        self._renewal: Timer | None = None
        """Renews the session before it ends."""
        self._endpoint = endpoint
        self._counters = peers.counters.peer(purpose)
        self._client_id = f"node-{peers.node_id}-{purpose}"
        self._queue: deque[_Sent] = deque()
        self._in_flight: deque[_Sent] = deque()
        self._protocol: ResponseProtocol | None = None
        self._ready = False
        self._versions: dict[int, tuple[int, int]] = {}
        self._next_id = 0
        self._on_disconnect: Failed | None = None
        self._connecting: asyncio.Task[None] | Timer | None = None
        self._setup_timer: Timer | None = None
        self._attempts = 0
        """Failed attempts since the last success."""
        self._not_before = 0.0
        self._alarm: Timer | None = None
        self._alarm_at = 0.0
        self._closed = False

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    @property
    def connected(self) -> bool:
        """Requests go out at once."""
        return self._ready

    def on_disconnect(self, callback: Failed | None) -> None:
        self._on_disconnect = callback

    def send(
        self,
        request: WireRequest[Resp],
        done: Callable[[Resp], object],
        failed: Failed,
        *,
        timeout_s: float,
        max_version: int | None = None,
    ) -> None:
        if self._closed or len(self._queue) >= MAX_PEER_QUEUE:
            why = PeerFailure.CLOSED if self._closed else PeerFailure.OVERLOADED
            self._peers.loop.call_soon(failed, why)
            return
        deadline = self._peers.clock.monotonic() + timeout_s
        sent = _Sent(request, done, failed, deadline, max_version)
        if self._alarm is None or deadline < self._alarm_at:
            self._set_alarm(deadline, timeout_s)
        if self._ready and not self._queue and len(self._in_flight) < MAX_PEER_IN_FLIGHT:
            self._write(sent, later=True)
        else:
            self._queue.append(sent)
            if self._protocol is None and self._connecting is None:
                self._connect_when_due()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._peers.forget(self)
        self._on_disconnect = None
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._drop_connection()
        for sent in self._take_all():
            self._peers.loop.call_soon(sent.failed, PeerFailure.CLOSED)

    # -- connecting

    def _connect_when_due(self) -> None:
        pause_s = self._not_before - self._peers.clock.monotonic()
        if pause_s > 0:
            self._connecting = self._peers.clock.call_later(pause_s, self._begin_connecting)
        else:
            self._begin_connecting()

    def _begin_connecting(self) -> None:
        self._connecting = self._peers.spawn(self._connect())

    async def _connect(self) -> None:
        settings, (_, host, port) = self._peers.settings, self._endpoint
        protocol = ResponseProtocol(
            self._peers.scratch, settings.max_answer_bytes, self._answered, self._connection_lost
        )
        try:
            await self._open(protocol, host, port)
        except ConnectFailed as error:
            self._connecting = None
            protocol.close()
            self._attempt_failed(error.failure, str(error))
            return
        self._connecting = None
        if self._closed:
            protocol.close()
            return
        if protocol.transport is None:
            # Lost while the transport was made, and reported. Requests sent since then still wait for a connection.
            if self._queue:
                self._connect_when_due()
            return
        self._protocol = protocol
        self._setup_timer = self._peers.clock.call_later(settings.setup_timeout_s, self._setup_timed_out)
        if await self._authenticate():
            self._ask_for_versions(4)

    async def _open(self, protocol: ResponseProtocol, host: str, port: int) -> None:
        """Connect, and shake hands where the listener speaks TLS."""
        timeout_s = self._peers.settings.setup_timeout_s
        security = self._security
        if security is None or security.tls is None:
            await self._peers.connect(lambda: protocol, host, port, timeout_s)
            return
        from ottla.net.peer_login import TlsClient

        tls = TlsClient(protocol, security, self._peers.clock, host)
        await self._peers.connect(lambda: tls.layer, host, port, timeout_s)
        await tls.handshake()

    # -- authentication

    async def _authenticate(self) -> bool:
        """Log in where the listener asks for it; False if the connection is lost or was refused."""
        if self._security is None or self._security.login is None:
            return True
        from ottla.net.peer_login import AuthenticationFailed, log_in

        try:
            lifetime_ms = await log_in(
                self._ask, self._security.login, self._endpoint.host, asyncio.to_thread
            )
        except AuthenticationFailed as error:
            self._drop_connection()
            self._attempt_failed(error.failure, str(error))
            return False
        except ConnectFailed:
            # The connection was lost meanwhile, and that has been reported.
            return False
        if self._protocol is None:
            return False
        if lifetime_ms > 0:
            # Some time before the end, and not all connections at the same moment.
            share = 0.85 + 0.1 * self._peers.clock.random.random()
            self._renewal = self._peers.clock.call_later(lifetime_ms / 1000 * share, self._begin_renewal)
        return True

    def _ask(self, request: WireRequest[Resp], version: int) -> asyncio.Future[Resp]:
        """Send before the connection is ready."""
        answered: asyncio.Future[Resp] = self._peers.loop.create_future()

        def done(response: Resp) -> None:
            if not answered.done():
                answered.set_result(response)

        def failed(failure: PeerFailure) -> None:
            if not answered.done():
                answered.set_exception(ConnectFailed(failure, failure.value))

        if self._protocol is None:
            failed(PeerFailure.DISCONNECTED)
        else:
            self._put(_Sent(request, done, failed, _NEVER, None), version)
        return answered

    def _begin_renewal(self) -> None:
        """Authenticate again. Requests wait meanwhile: none may come between the tokens."""
        self._renewal = None
        if self._ready:
            self._ready = False
            self._peers.spawn(self._renew())

    async def _renew(self) -> None:
        if await self._authenticate():
            self._ready = True
            self._drain()

    def _ask_for_versions(self, version: int) -> None:
        software, version_of_it = _SOFTWARE
        request = ApiVersionsRequest(client_software_name=software, client_software_version=version_of_it)
        asked = _Sent(request, self._learned_versions, _ignore, _NEVER, None)
        self._put(asked, version)

    def _learned_versions(self, response: ApiVersionsResponse) -> None:
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            self._ask_for_versions(0)
            return
        if response.error_code != ErrorCode.NONE:
            self._connection_lost(f"it answered {response.error_code} to ApiVersions")
            return
        self._cancel_setup_timer()
        self._versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        self._attempts, self._not_before = 0, 0.0
        self._peers.answered(self._endpoint)
        self._ready = True
        self._drain()

    def _setup_timed_out(self) -> None:
        self._setup_timer = None
        self._drop_connection()
        self._attempt_failed(
            PeerFailure.TIMED_OUT, f"it did not answer within {self._peers.settings.setup_timeout_s:g} s"
        )

    def _attempt_failed(self, failure: PeerFailure, why: str) -> None:
        self._attempts += 1
        if failure is PeerFailure.REFUSED:
            self._peers.refused(self._endpoint)
        settings, clock = self._peers.settings, self._peers.clock
        if self._attempts > 1:
            pause_s = min(settings.first_pause_s * 2 ** min(self._attempts - 2, 20), settings.longest_pause_s)
            # Jitter, so that not all nodes reconnect at the same moment.
            self._not_before = clock.monotonic() + pause_s * (0.8 + 0.4 * clock.random.random())
        level = logging.WARNING if failure is PeerFailure.UNAUTHENTICATED else logging.DEBUG
        _logger.log(level, "%s cannot reach %s: %s", self._client_id, self._endpoint, why)
        self._fail_all(failure)

    # -- requests and answers

    def _drain(self) -> None:
        while self._queue and self._ready and len(self._in_flight) < MAX_PEER_IN_FLIGHT:
            self._write(self._queue.popleft(), later=False)

    def _write(self, sent: _Sent, *, later: bool) -> None:
        """Send in the newest common version. A failure is reported at once, or in the next turn (`later`)."""
        version = self._version(sent.request.API_KEY, sent.max_version)
        if version is not None:
            try:
                self._put(sent, version)
            except EncodeError as error:
                _logger.debug(
                    "%s cannot encode this request for %s: %s", self._client_id, self._endpoint, error
                )
            else:
                return
        if later:
            self._peers.loop.call_soon(sent.failed, PeerFailure.UNSUPPORTED_VERSION)
        else:
            _run_callback(sent.failed, PeerFailure.UNSUPPORTED_VERSION)

    def _put(self, sent: _Sent, version: int) -> None:
        self._next_id = correlation_id = (self._next_id + 1) & 0x7FFFFFFF
        buffers = encode_request(correlation_id, self._client_id, sent.request, version)
        sent.version, sent.correlation_id = version, correlation_id
        self._in_flight.append(sent)
        self._counters.requests += 1
        self._counters.bytes_out += sum(map(len, buffers))
        protocol = self._protocol
        assert protocol is not None
        # Without a transport, `connection_lost` is about to come and to fail what is in flight.
        if protocol.transport is not None:
            if len(buffers) == 1:
                protocol.transport.write(buffers[0])
            else:
                protocol.transport.writelines(buffers)

    def _version(self, api_key: int, max_version: int | None) -> int | None:
        theirs = self._versions.get(api_key)
        if theirs is None:
            return None
        ours = API_VERSIONS[api_key]
        version = min(ours.max_stable_version, theirs[1])
        if max_version is not None and max_version < version:
            version = max_version
        return version if version >= max(ours.min_version, theirs[0]) else None

    def _answered(self, frame: memoryview) -> None:
        if not self._in_flight:
            self._connection_lost("it sent a response to no request")
            return
        self._counters.responses += 1
        self._counters.bytes_in += len(frame) + _SIZE_BYTES
        sent = self._in_flight.popleft()
        api_key, version = sent.request.API_KEY, sent.version
        try:
            correlation_id = _ID.unpack_from(frame, 0)[0]
            if correlation_id != sent.correlation_id:
                raise DecodeError(f"the response to {correlation_id} came in place of {sent.correlation_id}")
            response = self._decode(api_key, version, frame)
        except DecodeError as error:
            self._in_flight.appendleft(sent)
            self._connection_lost(error.message)
            return
        if self._queue:
            self._drain()
        _run_callback(sent.done, response)

    def _decode(self, api_key: int, version: int, frame: memoryview) -> WireResponse:
        if api_key == ApiKey.API_VERSIONS:
            if len(frame) < _CORRELATION_AND_ERROR.size:
                raise DecodeError("the ApiVersions response is too short")
            if _CORRELATION_AND_ERROR.unpack_from(frame)[1] == ErrorCode.UNSUPPORTED_VERSION:
                return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        offset = 4
        if response_header_version(api_key, version):
            # No tagged field of the header is defined so far.
            if len(frame) < 5 or frame[4]:
                raise DecodeError("the header of the response has tagged fields")
            offset = 5
        return decode_prefix(response_class(api_key), version, frame, offset)[0]

    # -- the end of a connection or of a request's time

    def _connection_lost(self, why: str | None) -> None:
        """The connection was lost, or the other node violated the protocol."""
        failure = PeerFailure.DISCONNECTED
        if why is not None:
            _logger.warning("Closing the connection of %s to %s: %s", self._client_id, self._endpoint, why)
            failure = PeerFailure.BAD_ANSWER
        established = self._ready
        self._drop_connection()
        if not established:
            self._attempt_failed(failure, why or "it closed the connection at once")
        else:
            if why is None:
                self._peers.look_after(self._endpoint)
            self._fail_all(failure)
            if self._on_disconnect is not None:
                _run_callback(self._on_disconnect, failure)

    def _drop_connection(self) -> None:
        self._cancel_setup_timer()
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        self._ready = False
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.close()

    def _fail_all(self, failure: PeerFailure) -> None:
        for sent in self._take_all():
            _run_callback(sent.failed, failure)

    def _take_all(self) -> list[_Sent]:
        waiting = [*self._in_flight, *self._queue]
        self._in_flight.clear()
        self._queue.clear()
        return waiting

    def _set_alarm(self, deadline: float, delay_s: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = deadline
        self._alarm = self._peers.clock.call_later(delay_s, self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        """One timer for all requests: most are answered long before it fires."""
        self._alarm = None
        now = self._peers.clock.monotonic()
        late_in_flight = any(sent.deadline <= now for sent in self._in_flight)
        late = [sent for sent in (*self._in_flight, *self._queue) if sent.deadline <= now]
        if late_in_flight:
            # Responses come in order: no later one can arrive on this connection before the late one.
            others = [sent for sent in self._in_flight if sent.deadline > now]
            self._in_flight.clear()
            established = self._ready
            self._drop_connection()
        self._queue = deque(sent for sent in self._queue if sent.deadline > now)
        left = min((sent.deadline for sent in (*self._in_flight, *self._queue)), default=_NEVER)
        if left < _NEVER:
            self._set_alarm(left, left - now)
        if late_in_flight and self._queue:
            self._connect_when_due()
        for sent in late:
            _run_callback(sent.failed, PeerFailure.TIMED_OUT)
        if late_in_flight:
            for sent in others:
                _run_callback(sent.failed, PeerFailure.DISCONNECTED)
            if established and self._on_disconnect is not None:
                _run_callback(self._on_disconnect, PeerFailure.TIMED_OUT)

    def _cancel_setup_timer(self) -> None:
        if self._setup_timer is not None:
            self._setup_timer.cancel()
            self._setup_timer = None


def _ignore(failure: PeerFailure) -> None:
    """The ApiVersions request fails with its connection, which fails the requests that wait behind it."""


def _run_callback(callback: Callable[[T], object], outcome: T) -> None:
    try:
        callback(outcome)
    except Exception:
        # An error in one sender's callback must not cost the others their connection.
        _logger.exception("Unexpected error while %s was handled", type(outcome).__name__)
