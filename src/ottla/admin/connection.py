"""One socket to one broker: requests in the newest version that both sides support, one at a time or pipelined.

The only place where clients of this code base open a socket; TLS and SASL come from `ClusterSettings.security`. Data
of producers and consumers goes through librdkafka instead, except for the Spark sink's batches.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ottla import __version__
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import API_VERSIONS, ApiKey
from ottla.wire.codec import decode_response
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import ApiVersionsRequest, response_class

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from ottla.admin.settings import ClusterSettings
    from ottla.wire.classes import WireRequest, WireResponse
    from ottla.wire.messages import ApiVersionsResponse
    from ottla.wire.primitives import Buffer

R = TypeVar("R", bound="WireResponse")

MAX_RESPONSE_BYTES: Final = 256 << 20
"""More than any response to an administrative request; a greater length means that the peer is not a broker."""

_GREETING_VERSION: Final = 4
_UNSUPPORTED: Final = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
_READ_BYTES: Final = 1 << 20
_MAX_BUFFERS: Final = 512
"""Fewer than any system's limit of buffers for one write."""
_NOT_A_BROKER: Final = "the process that listens there is not a Kafka broker"


@dataclass(frozen=True, slots=True)
class Node:
    """A broker's id and address. A bootstrap address has the id -1 until its broker has answered."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ConnectionFailed(ApiException):
    """No process answers at an address, or not as a broker does."""

    def __init__(self, address: str, reason: OSError | EOFError | ApiException) -> None:
        text = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
        self.address = address
        self.reason = text or "it did not answer in time"
        self.timed_out = isinstance(reason, TimeoutError)
        super().__init__(ErrorCode.NETWORK_EXCEPTION, f"no broker answers at {address} ({self.reason})")


def answered(connections: Iterable[Connection], timeout_s: float) -> list[Connection]:
    """The open connections on which a response has arrived or begun to; waits until there is one, or for the time."""
    ahead = [one for one in connections if one.has_read_ahead]
    by_descriptor = {one.fileno(): one for one in connections}
    poller = select.poll()
    for descriptor in by_descriptor:
        poller.register(descriptor, select.POLLIN)
    ready = [by_descriptor[found] for found, _ in poller.poll(0 if ahead else timeout_s * 1000)]
    return ahead + [one for one in ready if one not in ahead]


class Connection:
    """One socket to one broker, and the versions that the broker supports."""

    def __init__(self, node: Node, settings: ClusterSettings, tls: ssl.SSLContext | None = None) -> None:
        self.node = node
        self.closed = False
        self._client_id = settings.client_id
        self._security = settings.security
        self._ids = itertools.count(1)
        self._tls = tls is not None
        self._unanswered: deque[tuple[int, int, int]] = deque()
        self._unclaimed: deque[WireResponse] = deque()
        try:
            opening_s = settings.connect_timeout_s or settings.request_timeout_s
            self._socket = socket.create_connection((node.host, node.port), opening_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=node.host)
        except OSError as error:
            raise ConnectionFailed(node.address, error) from None
        try:
            self.features = self._greet()
            self.versions = {
                one.api_key: (one.min_version, one.max_version) for one in self.features.api_keys
            }
            if self._security.uses_sasl:
                self._authenticate()
            self._socket.settimeout(settings.request_timeout_s)
        except BaseException:
            self.close()
            raise

    # -- versions

    def version_for(self, api_key: int) -> int | None:
        """The newest version that both sides support, if there is one."""
        ours, theirs = API_VERSIONS[api_key], self.versions.get(api_key)
        if theirs is None:
            return None
        version = min(ours.max_stable_version, theirs[1])
        return version if version >= max(ours.min_version, theirs[0]) else None

    def agreed_version(self, api_key: int, max_version: int | None = None) -> int:
        """The newest common version up to `max_version`; ApiException if the broker does not support the API."""
        version = self.version_for(api_key)
        if version is None:
            name = API_VERSIONS[api_key].name
            raise ApiException(
                ErrorCode.UNSUPPORTED_VERSION, f"the broker at {self.node.address} does not support {name}"
            )
        return version if max_version is None else min(version, max_version)

    # -- requests

    @property
    def in_flight(self) -> int:
        """Requests whose responses have not been received by `receive` yet."""
        return len(self._unanswered) + len(self._unclaimed)

    @property
    def has_read_ahead(self) -> bool:
        """Whether something of a response has been read from the socket already, so that the socket may be silent."""
        # With TLS the socket is an SSLSocket, which decrypts more than was asked for.
        return bool(self._unclaimed) or (self._tls and cast("ssl.SSLSocket", self._socket).pending() > 0)

    def fileno(self) -> int:
        """The socket's descriptor; -1 after `close`."""
        return self._socket.fileno()

    def ask(self, request: WireRequest[R], max_version: int | None = None) -> R:
        """Send a request and wait for its response. Responses to earlier requests stay for `receive`."""
        self.send(request, self.agreed_version(request.API_KEY, max_version))
        while len(self._unanswered) > 1:
            self._unclaimed.append(self._receive())
        return cast("R", self._receive())

    def send(self, request: WireRequest[R], version: int) -> None:
        """Write a request. `receive` returns its response after those of all earlier requests."""
        number = next(self._ids)
        buffers = encode_request(number, self._client_id, request, version)
        try:
            self._write(buffers)
        except OSError as error:
            self.close()
            raise ConnectionFailed(self.node.address, error) from None
        self._unanswered.append((number, request.API_KEY, version))

    def receive(self) -> WireResponse:
        """The response to the oldest request that is still in flight."""
        return self._unclaimed.popleft() if self._unclaimed else self._receive()

    def _write(self, buffers: list[Buffer]) -> None:
        if self._tls:
            self._socket.sendall(b"".join(buffers))
            return
        views = deque(memoryview(one).cast("B") for one in buffers if len(one))
        while views:
            sent = self._socket.sendmsg([views[at] for at in range(min(len(views), _MAX_BUFFERS))])
            while sent:
                if sent < len(views[0]):
                    views[0] = views[0][sent:]
                    break
                sent -= len(views.popleft())

    def _receive(self, unsupported_version: int | None = None) -> WireResponse:
        """The next response. An UNSUPPORTED_VERSION error comes in the version that is given for it."""
        number, api_key, version = self._unanswered.popleft()
        try:
            size = struct.unpack(">i", self._read(4))[0]
            if not 4 <= size <= MAX_RESPONSE_BYTES:
                raise EOFError(_NOT_A_BROKER)
            frame = self._read(size)
            header, offset = decode_response_header(api_key, version, frame)
            if header.correlation_id != number:
                raise EOFError(_NOT_A_BROKER)
        except (OSError, EOFError) as error:
            self.close()
            raise ConnectionFailed(self.node.address, error) from None
        if unsupported_version is not None and frame[offset : offset + 2] == _UNSUPPORTED:
            version = unsupported_version
        return decode_response(response_class(api_key), version, frame, offset)

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._socket.recv(min(size, _READ_BYTES))
            if not part:
                raise EOFError("the connection was closed")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def shut(self) -> None:
        """End what another thread waits for on this connection: it gets ConnectionFailed."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    # -- the start of a connection

    def _greet(self) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        try:
            response = self._api_versions(request, _GREETING_VERSION)
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
                known = {api.api_key: api.max_version for api in response.api_keys}
                version = min(_GREETING_VERSION, known.get(ApiKey.API_VERSIONS, 0))
                response = self._api_versions(request, version)
        except ConnectionFailed:
            raise
        except ApiException as error:
            raise ConnectionFailed(self.node.address, error) from None
        if response.error_code != ErrorCode.NONE:
            raise ApiException(
                ErrorCode.of(response.error_code), f"{self.node.address} refuses our ApiVersions request"
            )
        return response

    def _api_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        self.send(request, version)
        return cast("ApiVersionsResponse", self._receive(unsupported_version=0))

    def _authenticate(self) -> None:
        from ottla.wire.messages import SaslHandshakeRequest

        mechanism = self._security.mechanism
        response = self.ask(SaslHandshakeRequest(mechanism=mechanism))
        if response.error_code:
            offered = ", ".join(response.mechanisms)
            raise ApiException(
                ErrorCode.of(response.error_code),
                f"{self.node.address} does not support the SASL mechanism {mechanism}; set sasl.mechanism to one of"
                f" {offered}",
            )
        from ottla.credentials.sasl_client import LoginFailed

        login = self._security.login()
        try:
            exchange = login.begin(self.node.host)
            message: bytes | None = exchange.first()
            while message is not None:
                message = exchange.next(self._sasl_step(message))
        except (LoginFailed, ValueError) as error:
            raise ApiException(
                ErrorCode.SASL_AUTHENTICATION_FAILED, f"{self.node.address}: {error}"
            ) from None

    @property
    def _checked_for_login(self) -> str:
        checked = {"OAUTHBEARER": "the token", "GSSAPI": "the Kerberos principal, sasl.kerberos.service.name"}
        return checked.get(self._security.mechanism, "the user, the password")

    def _sasl_step(self, message: bytes) -> bytes:
        """Send a message of the SASL exchange; the broker's next message."""
        from ottla.wire.messages import SaslAuthenticateRequest

        response = self.ask(SaslAuthenticateRequest(auth_bytes=message))
        if response.error_code:
            default = f"{self.node.address} refuses the user '{self._security.user}'"
            text = (response.error_message or default).rstrip(".")
            raise ApiException(
                ErrorCode.of(response.error_code),
                f"{text}; check {self._checked_for_login} and sasl.mechanism",
            )
        return bytes(response.auth_bytes)
