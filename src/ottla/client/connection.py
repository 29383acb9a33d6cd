"""One socket to one broker: requests one at a time, in the newest version that both sides speak.

For administration only, by the client API and by the tools; data has the engine for it. TLS and SASL, PLAIN and
SCRAM, are spoken where the caller's security says so.
"""

from __future__ import annotations

import itertools
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla import __version__
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import API_VERSIONS, ApiKey
from ottla.wire.codec import decode
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import ApiVersionsRequest, response_class

if TYPE_CHECKING:
    import ssl

MAX_RESPONSE_BYTES: Final = 256 << 20
"""More than any answer to a question of administration; a length above it means that the peer is no broker."""

_HELLO_VERSION: Final = 4
_UNSUPPORTED: Final = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
_READ_BYTES: Final = 1 << 20
_STRANGER: Final = "what listens there is not a Kafka broker"


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as the cluster tells of it; the id of a bootstrap address is not known before it is asked."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Security:
    """How to be let in: a TLS context, and a user with a password for SASL."""

    tls: ssl.SSLContext | None = None
    user: str | None = None
    password: str = ""
    mechanism: str = "PLAIN"


SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""What a connection of this module can speak."""


class ConnectionFailed(ApiException):
    """Nobody answers at an address, or not as a broker does."""

    def __init__(self, address: str, reason: OSError | EOFError | ApiException) -> None:
        told = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
        self.address = address
        self.reason = told or "it did not answer in time"
        super().__init__(ErrorCode.NETWORK_EXCEPTION, f"no broker answers at {address} ({self.reason})")


class Connection:
    """One socket to one broker, and the versions that the broker speaks."""

    def __init__(
        self, node: Node, *, client_id: str, timeout_s: float, security: Security | None = None
    ) -> None:
        self.node = node
        self._client_id = client_id
        self._ids = itertools.count(1)
        self._security = security or Security()
        try:
            self._socket = socket.create_connection((node.host, node.port), timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._security.tls is not None:
                self._socket = self._security.tls.wrap_socket(self._socket, server_hostname=node.host)
        except OSError as error:
            raise ConnectionFailed(node.address, error) from None
        try:
            self.features = self._greet()
            self.versions = {
                one.api_key: (one.min_version, one.max_version) for one in self.features.api_keys
            }
            if self._security.user is not None:
                self._authenticate(self._security.user, self._security.password)
        except BaseException:
            self.close()
            raise

    def _greet(self) -> Any:
        hello = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        try:
            answer = self._ask(hello, _HELLO_VERSION, or_version=0)
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                known = {api.api_key: api.max_version for api in answer.api_keys}
                answer = self._ask(hello, min(_HELLO_VERSION, known.get(ApiKey.API_VERSIONS, 0)))
        except (OSError, EOFError, ApiException) as error:
            raise ConnectionFailed(self.node.address, error) from None
        if answer.error_code != ErrorCode.NONE:
            raise ApiException(ErrorCode.of(answer.error_code), f"{self.node.address} refuses our greeting")
        return answer

    def _authenticate(self, user: str, password: str) -> None:
        from ottla.wire.messages import SaslHandshakeRequest

        mechanism = self._security.mechanism
        answer = self.ask(SaslHandshakeRequest(mechanism=mechanism))
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)
            raise ApiException(
                ErrorCode.of(answer.error_code),
                f"{self.node.address} does not let anybody in by {mechanism}; set sasl.mechanism to one of {offered}",
            )
        if mechanism == "PLAIN":
            self._say_sasl(f"\0{user}\0{password}".encode())
            return
        from ottla.client.scram import ScramClient, ScramFailed

        exchange = ScramClient(mechanism, user, password)
        try:
            exchange.verify(self._say_sasl(exchange.final(self._say_sasl(exchange.first()))))
        except (ScramFailed, ValueError) as error:
            raise ApiException(
                ErrorCode.SASL_AUTHENTICATION_FAILED, f"{self.node.address}: {error}"
            ) from None

    def _say_sasl(self, words: bytes) -> bytes:
        """The broker's next word in the exchange."""
        from ottla.wire.messages import SaslAuthenticateRequest

        answer = self.ask(SaslAuthenticateRequest(auth_bytes=words))
        if answer.error_code:
            told = (
                answer.error_message or f"{self.node.address} does not let '{self._security.user}' in"
            ).rstrip(".")
            raise ApiException(
                ErrorCode.of(answer.error_code), f"{told}; check the user, the password and sasl.mechanism"
            )
        return bytes(answer.auth_bytes)

    def version_for(self, api_key: int) -> int | None:
        """The newest version that both sides speak, if there is one."""
        ours, theirs = API_VERSIONS[api_key], self.versions.get(api_key)
        if theirs is None:
            return None
        version = min(ours.max_stable_version, theirs[1])
        return version if version >= max(ours.min_version, theirs[0]) else None

    def agreed_version(self, api_key: int, max_version: int | None = None) -> int:
        """That version, or an older one that the caller wants; ApiException where there is none."""
        version = self.version_for(api_key)
        if version is None:
            name = API_VERSIONS[api_key].name
            raise ApiException(
                ErrorCode.UNSUPPORTED_VERSION, f"the broker at {self.node.address} does not support {name}"
            )
        return version if max_version is None else min(version, max_version)

    def ask(self, request: Any, max_version: int | None = None) -> Any:
        """The broker's answer; ApiException where it does not know such a request."""
        version = self.agreed_version(request.API_KEY, max_version)
        try:
            return self._ask(request, version)
        except (OSError, EOFError) as error:
            self.close()
            raise ConnectionFailed(self.node.address, error) from None

    def _ask(self, request: Any, version: int, or_version: int | None = None) -> Any:
        number = next(self._ids)
        self._socket.sendall(b"".join(encode_request(number, self._client_id, request, version)))
        size = struct.unpack(">i", self._read(4))[0]
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise EOFError(_STRANGER)
        frame = self._read(size)
        header, offset = decode_response_header(request.API_KEY, version, frame)
        if header.correlation_id != number:
            raise EOFError(_STRANGER)
        if or_version is not None and frame[offset : offset + 2] == _UNSUPPORTED:
            version = or_version
        return decode(response_class(request.API_KEY), version, frame[offset:])

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._socket.recv(min(size, _READ_BYTES))
            if not part:
                raise EOFError("the connection was closed")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()
