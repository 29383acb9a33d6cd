"""The dispatcher of a connection on a SASL listener, until its client has authenticated.

Only ApiVersions, SaslHandshake and SaslAuthenticate are decoded here; anything else closes the connection unread.
After success the listener's dispatcher takes over. A session that has an end stays here, so that a later
SaslHandshake can renew it (KIP-368) and a request after its end closes the connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode
from ottla.limits import DECODE_AMPLIFICATION, UNAUTHENTICATED_DECODE_BYTES
from ottla.net.request import Request
from ottla.security.grants import printable
from ottla.security.principal import Principal
from ottla.security.sasl.exchange import IllegalState, SaslExchange, State, UnsupportedMechanism
from ottla.security.sasl.mechanism import SaslFailed
from ottla.wire.apis import API_VERSIONS, ApiKey
from ottla.wire.classes import WireResponse
from ottla.wire.codec import decode_prefix
from ottla.wire.errors import DecodeError
from ottla.wire.headers import read_request_start
from ottla.wire.messages import (
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from ottla.clock import Clock, Timer
    from ottla.net.connection import Connection
    from ottla.net.dispatch import Dispatcher

_logger = logging.getLogger(__name__)

AUTHENTICATION_TIMEOUT_S: Final = 30.0
"""From the connection to the last SASL token, whatever comes in between."""


class _InThread:
    """The gate of a connection whose next frame waits for a thread."""

    __slots__ = ("_resume",)

    def __init__(self) -> None:
        self._resume: Callable[[], None] | None = None

    def wait(self, resume: Callable[[], None]) -> None:
        self._resume = resume

    def forget(self, resume: Callable[[], None]) -> None:
        self._resume = None

    def open(self, done: asyncio.Future[None]) -> None:
        """Let the frame in again: now the work is done."""
        if not done.cancelled() and (error := done.exception()) is not None:
            _logger.error("Preparing an authentication failed", exc_info=error)
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()


class Authenticating:
    """One connection's. `ready` is called at each success, with the principal."""

    __slots__ = ("_clock", "_deadline", "_dispatcher", "_exchange", "_failed", "_ready", "forward")

    def __init__(
        self,
        exchange: SaslExchange,
        dispatcher: Dispatcher,
        clock: Clock,
        failed: Callable[[Connection, str], float],
        ready: Callable[[Connection, Principal], None],
    ) -> None:
        self._exchange = exchange
        self._dispatcher = dispatcher
        self._clock = clock
        self._failed = failed
        """Counts and reports a failure; returns the seconds to wait before it is answered."""
        self._ready = ready
        self._deadline: Timer | None = None
        self.forward = dispatcher.forward
        """What a request calls that the active controller has to answer."""

    def start(self, connection: Connection) -> None:
        """Give the client its time to authenticate."""
        self._deadline = self._clock.call_later(AUTHENTICATION_TIMEOUT_S, self._timed_out, connection)

    def dispatch(self, connection: Connection, frame: memoryview, now: float) -> None:
        """Take one frame of a connection that is not, or not for ever, authenticated."""
        exchange = self._exchange
        try:
            if exchange.state is State.READY:
                self._serve(connection, frame, now)
            elif exchange.state is State.TOKENS and exchange.bare_tokens:
                self._bare_token(connection, bytes(frame), now)
            else:
                self._authenticate(connection, frame, now)
        except DecodeError as error:
            self._close(connection, error.message)
        except IllegalState as error:
            self._close(connection, str(error))

    def _serve(self, connection: Connection, frame: memoryview, now: float) -> None:
        """A request of an authenticated client."""
        exchange = self._exchange
        if exchange.expires_at is not None:
            key, _, _, _, _ = read_request_start(frame)
            if key == ApiKey.SASL_HANDSHAKE and exchange.may_reauthenticate(now):
                self._authenticate(connection, frame, now)
                return
            if exchange.expired(now):
                self._close(connection, "its session has expired")
                return
        self._dispatcher.dispatch(connection, frame, now)

    def _authenticate(self, connection: Connection, frame: memoryview, now: float) -> None:
        key, version, correlation_id, client_id, offset = read_request_start(frame)
        answer = _OUT_OF_TURN.get(key) if self._exchange.state is State.TOKENS else None
        if answer is not None:
            api, counters = self._dispatcher.api(key), self._dispatcher.counters(key)
            version = version if version <= API_VERSIONS[key].max_stable_version else 0
            request = Request(connection, api, version, correlation_id, client_id, now, counters)
            connection.add(request)
            response = answer(error_code=ErrorCode.ILLEGAL_SASL_STATE)
            self._refuse(connection, request, response, f"API key {key} came where a SASL token belongs")
            return
        if key == ApiKey.API_VERSIONS:
            if version <= API_VERSIONS[key].max_stable_version:
                self._exchange.versions_answered()
            self._dispatcher.dispatch(connection, frame, now)
            return
        request_class = _REQUESTS.get(key)
        if request_class is None:
            raise IllegalState(f"a request with API key {key} came before the client had authenticated")
        versions = API_VERSIONS[key]
        if not versions.min_version <= version <= versions.max_stable_version:
            raise IllegalState(f"version {version} of {request_class.NAME} is not supported")
        budget = max(UNAUTHENTICATED_DECODE_BYTES, DECODE_AMPLIFICATION * len(frame))
        message, _ = decode_prefix(request_class, version, frame, offset, budget)
        if isinstance(message, SaslAuthenticateRequest) and self._prepare(connection, message.auth_bytes):
            return
        api, counters = self._dispatcher.api(key), self._dispatcher.counters(key)
        request = Request(connection, api, version, correlation_id, client_id, now, counters)
        connection.add(request)
        if isinstance(message, SaslHandshakeRequest):
            self._handshake(connection, request, message)
        else:
            self._token(connection, request, message.auth_bytes, now)

    def _prepare(self, connection: Connection, token: bytes) -> bool:
        """Begin the work that the token needs in a thread, if any. Its frame waits unread until that is done."""
        work = self._exchange.preparation(token)
        if work is None:
            return False
        gate = _InThread()
        connection.hold(gate)
        asyncio.get_running_loop().run_in_executor(None, work).add_done_callback(gate.open)
        return True

    def _handshake(self, connection: Connection, request: Request, message: SaslHandshakeRequest) -> None:
        exchange = self._exchange
        response = SaslHandshakeResponse(mechanisms=exchange.mechanisms)
        try:
            exchange.handshake(message.mechanism, request.version)
        except UnsupportedMechanism:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self._refuse(connection, request, response, f"no mechanism {printable(message.mechanism)} here")
            return
        request.respond(response)

    def _token(self, connection: Connection, request: Request, token: bytes, now: float) -> None:
        exchange = self._exchange
        try:
            answer, lifetime_ms = exchange.token(token, now, self._clock.now_ms())
        except SaslFailed as failed:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=failed.message
            )
            self._refuse(connection, request, response, str(failed))
            return
        self._look_whether_ready(connection)
        request.respond(SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms))

    def _bare_token(self, connection: Connection, token: bytes, now: float) -> None:
        """After SaslHandshake version 0: size and token, no header, and no answer to a failure but the end."""
        if self._prepare(connection, token):
            return
        key = ApiKey.SASL_AUTHENTICATE
        api, counters = self._dispatcher.api(key), self._dispatcher.counters(key)
        request = Request(connection, api, 0, 0, None, now, counters)
        connection.add(request)
        try:
            answer, _ = self._exchange.token(token, now, self._clock.now_ms())
        except SaslFailed as failed:
            self._refuse(connection, request, None, str(failed))
            return
        self._look_whether_ready(connection)
        request.complete([len(answer).to_bytes(4, "big") + answer], len(answer) + 4)

    def _look_whether_ready(self, connection: Connection) -> None:
        exchange = self._exchange
        if exchange.state is not State.READY or exchange.principal is None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if exchange.expires_at is None:
            connection.dispatcher = self._dispatcher
        self._ready(connection, exchange.principal)

    def _refuse(
        self, connection: Connection, request: Request, response: WireResponse | None, why: str
    ) -> None:
        """Answer after the delay of a failed authentication (KIP-306), then close."""
        delay_s = self._failed(connection, why)
        connection.finish()
        if delay_s > 0:
            self._clock.call_later(delay_s, self._end, request, response)
        else:
            self._end(request, response)

    def _end(self, request: Request, response: WireResponse | None) -> None:
        if response is None:
            request.complete([], 0)
        else:
            request.respond(response)

    def _timed_out(self, connection: Connection) -> None:
        self._deadline = None
        if not connection.closing:
            self._failed(connection, f"it did not authenticate within {AUTHENTICATION_TIMEOUT_S:g} s")
            connection.abort()

    def _close(self, connection: Connection, why: str) -> None:
        _logger.info("Closing %s: %s", connection.client.connection_id, why)
        connection.close()


_REQUESTS: dict[int, type[SaslHandshakeRequest] | type[SaslAuthenticateRequest]] = {
    ApiKey.SASL_HANDSHAKE: SaslHandshakeRequest,
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateRequest,
}

_OUT_OF_TURN: dict[int, type[ApiVersionsResponse] | type[SaslHandshakeResponse]] = {
    ApiKey.API_VERSIONS: ApiVersionsResponse,
    ApiKey.SASL_HANDSHAKE: SaslHandshakeResponse,
}
"""Requests that are answered with ILLEGAL_SASL_STATE while a token is due. Any other closes the connection unread."""
