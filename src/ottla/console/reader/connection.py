"""One connection to one broker on the event loop, for Fetch with long polls. Cancelling a request closes it."""

from __future__ import annotations

import asyncio
import itertools
import struct
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ottla import __version__
from ottla.admin.connection import ConnectionFailed, Node
from ottla.credentials.sasl_client import LoginFailed
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import API_VERSIONS
from ottla.wire.codec import decode_response
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    response_class,
)

if TYPE_CHECKING:
    import ssl

    from ottla.admin.settings import ClusterSettings
    from ottla.wire.classes import WireRequest, WireResponse

R = TypeVar("R", bound="WireResponse")

MAX_RESPONSE_BYTES: Final = 64 << 20
DOES_NOT_ANSWER: Final = "it accepts connections and does not answer"
"""Why a broker that hangs is not asked."""
_GREETING_VERSION: Final = 3
_BUFFER_BYTES: Final = 1 << 20
"""So much is read ahead of what is asked for: the answers are large."""
_POOL_FROM_BYTES: Final = 256 << 10
"""Longer answers are decoded in a thread."""


class ClosedBefore(ConnectionFailed):
    """The connection was closed while a request waited for its turn: the broker has not seen it."""


class AsyncConnection:
    """A connection that `open` made. One request at a time."""

    def __init__(self, node: Node, settings: ClusterSettings) -> None:
        self.node = node
        self.closed = False
        self._settings = settings
        self._ids = itertools.count(1)
        self._versions: dict[int, tuple[int, int]] = {}
        self._lock = asyncio.Lock()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @classmethod
    async def open(cls, node: Node, settings: ClusterSettings, tls: ssl.SSLContext | None) -> AsyncConnection:
        """Connect, agree on versions, and log in."""
        self = cls(node, settings)
        try:
            async with asyncio.timeout(settings.connect_timeout_s or settings.request_timeout_s):
                self._reader, self._writer = await asyncio.open_connection(
                    node.host,
                    node.port,
                    ssl=tls,
                    server_hostname=node.host if tls else None,
                    limit=_BUFFER_BYTES,
                )
                await self._greet()
                if settings.security.uses_sasl:
                    await self._log_in()
        except (OSError, EOFError) as error:
            self.close()
            raise ConnectionFailed(node.address, error) from None
        except BaseException:
            self.close()
            raise
        return self

    async def _greet(self) -> None:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        answer = await self._ask(request, _GREETING_VERSION)
        if answer.error_code:
            raise ApiException(ErrorCode.of(answer.error_code), f"{self.node.address} refuses ApiVersions")
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

    async def _log_in(self) -> None:
        security = self._settings.security
        hello = await self.ask(SaslHandshakeRequest(mechanism=security.mechanism))
        if hello.error_code:
            raise ApiException(
                ErrorCode.of(hello.error_code),
                f"{self.node.address} does not support the SASL mechanism {security.mechanism}",
            )
        try:
            exchange = security.login().begin(self.node.host)
            # In a thread: a proof of SCRAM takes milliseconds, and a ticket of Kerberos has to be fetched.
            message: bytes | None = await asyncio.to_thread(exchange.first)
            while message is not None:
                answer = await self.ask(SaslAuthenticateRequest(auth_bytes=message))
                if answer.error_code:
                    text = answer.error_message or f"{self.node.address} refuses the user"
                    raise ApiException(ErrorCode.of(answer.error_code), text)
                message = await asyncio.to_thread(exchange.next, bytes(answer.auth_bytes))
        except (LoginFailed, ValueError) as error:
            raise ApiException(
                ErrorCode.SASL_AUTHENTICATION_FAILED, f"{self.node.address}: {error}"
            ) from None

    def version_for(self, api_key: int, max_version: int | None = None) -> int:
        ours, theirs = API_VERSIONS[api_key], self._versions.get(api_key)
        version = -1 if theirs is None else min(ours.max_stable_version, theirs[1])
        if max_version is not None:
            version = min(version, max_version)
        if theirs is None or version < max(ours.min_version, theirs[0]):
            raise ApiException(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.node.address} does not support {ours.name} as the console needs it",
            )
        return version

    async def ask(self, request: WireRequest[R], max_version: int | None = None, wait_s: float = 0.0) -> R:
        """The response to a request, which the broker may hold back for `wait_s`."""
        version = self.version_for(request.API_KEY, max_version)
        try:
            async with self._lock, asyncio.timeout(self._settings.request_timeout_s + wait_s):
                if self.closed:
                    raise ClosedBefore(
                        self.node.address, EOFError("another request has closed the connection")
                    )
                return await self._ask(request, version)
        except (OSError, EOFError) as error:
            self.close()
            raise ConnectionFailed(self.node.address, error) from None
        except asyncio.CancelledError:
            # Its answer would be taken for that of the next request.
            self.close()
            raise

    async def _ask(self, request: WireRequest[R], version: int) -> R:
        reader, writer = self._reader, self._writer
        assert reader is not None
        assert writer is not None
        number = next(self._ids)
        writer.writelines(encode_request(number, self._settings.client_id, request, version))
        await writer.drain()
        size = struct.unpack(">i", await reader.readexactly(4))[0]
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise EOFError(f"an answer of {size} bytes is not a broker's, or larger than the console reads")
        frame = await reader.readexactly(size)
        header, offset = decode_response_header(request.API_KEY, version, frame)
        if header.correlation_id != number:
            raise EOFError("the process that listens there is not a Kafka broker")
        cls = response_class(request.API_KEY)
        if size > _POOL_FROM_BYTES:
            return cast("R", await asyncio.to_thread(decode_response, cls, version, frame, offset))
        return cast("R", decode_response(cls, version, frame, offset))

    def close(self) -> None:
        self.closed = True
        if self._writer is not None:
            # At once, also where a request waits to be written: nobody waits for its answer any more.
            self._writer.transport.abort()
