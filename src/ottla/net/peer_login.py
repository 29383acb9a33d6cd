"""TLS handshake and SASL login of connections that this node opens to listeners of other nodes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from ottla.credentials.sasl_client import Login, LoginFailed
from ottla.errors import ErrorCode
from ottla.net.connecting import ConnectFailed
from ottla.net.tls import SCRATCH_BYTES, TlsLayer
from ottla.peers import PeerFailure, Resp
from ottla.wire.classes import WireRequest
from ottla.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.security.listener_security import ClientSecurity

_HANDSHAKE_VERSION = 1
_AUTHENTICATE_VERSION = 2

_scratch = memoryview(bytearray(SCRATCH_BYTES))
"""For the cipher text of all connections: filled and emptied within one turn of the loop."""


class AuthenticationFailed(ConnectFailed):
    """The other node does not let this one in, or is not the one that it pretends to be."""

    def __init__(self, why: str) -> None:
        super().__init__(PeerFailure.UNAUTHENTICATED, why)


class Ask(Protocol):
    """Sends a request in this version on a connection that is being opened, and gives its response."""

    def __call__(self, request: WireRequest[Resp], version: int) -> Awaitable[Resp]: ...


class TlsClient:
    """The TLS layer of one connection that is being opened, and the wait for its handshake."""

    def __init__(
        self, protocol: asyncio.BufferedProtocol, security: ClientSecurity, clock: Clock, host: str
    ) -> None:
        loop = asyncio.get_running_loop()
        self._shaken: asyncio.Future[None] = loop.create_future()
        assert security.tls is not None
        self.layer = TlsLayer(
            protocol,
            security.tls.context,
            _scratch,
            clock,
            server_side=False,
            server_hostname=host,
            call_soon=loop.call_soon,
            ready=self._ready,
            failed=self._failed,
        )

    async def handshake(self) -> None:
        """Wait for the handshake. Raises AuthenticationFailed."""
        await self._shaken

    def _ready(self, tls: ssl.SSLObject) -> None:
        if not self._shaken.done():
            self._shaken.set_result(None)

    def _failed(self, why: str) -> None:
        if not self._shaken.done():
            self._shaken.set_exception(AuthenticationFailed(f"the TLS handshake failed: {why}"))


async def log_in(ask: Ask, login: Login, host: str, in_thread: Callable[..., Awaitable[bytes | None]]) -> int:
    """Authenticate by SASL; gives the lifetime of the session in ms, 0 for no end. Raises AuthenticationFailed."""
    handshake = await ask(SaslHandshakeRequest(mechanism=login.mechanism), _HANDSHAKE_VERSION)
    if handshake.error_code:
        enabled = ", ".join(handshake.mechanisms)
        raise AuthenticationFailed(f"it does not take the SASL mechanism {login.mechanism}, only {enabled}")
    lifetime_ms = 0
    try:
        client = login.begin(host)
        # A token of OAUTHBEARER or a ticket of Kerberos may have to be fetched.
        token = await in_thread(client.first)
    except LoginFailed as error:
        raise AuthenticationFailed(str(error)) from None
    while token is not None:
        answer = await ask(SaslAuthenticateRequest(auth_bytes=token), _AUTHENTICATE_VERSION)
        if answer.error_code:
            name = ErrorCode.of(answer.error_code).name
            raise AuthenticationFailed(f"{name}: {answer.error_message or 'no reason given'}")
        lifetime_ms = answer.session_lifetime_ms
        try:
            # A SCRAM proof takes milliseconds of hashing.
            token = await in_thread(client.next, answer.auth_bytes)
        except LoginFailed as error:
            raise AuthenticationFailed(str(error)) from None
    return lifetime_ms
