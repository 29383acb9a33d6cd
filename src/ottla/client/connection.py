"""Requests to brokers, one at a time: what the administration needs beyond the engine, with TLS and SASL PLAIN.

Data never goes this way; producers and consumers have the engine for it.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
import time
import uuid
from typing import Any

from ottla import __version__
from ottla.client.errors import (
    KafkaConfigurationError,
    KafkaConnectionError,
    NoBrokersAvailable,
    for_code,
)
from ottla.client.settings import Settings, servers
from ottla.errors import ErrorCode
from ottla.wire.apis import API_VERSIONS, ApiKey
from ottla.wire.codec import decode
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import response_class

_AGAIN_S = 0.05
_NOT_ASKED = -(2**31)
_FIRST_OPERATION = 3
_OPERATIONS = (
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
)


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def to_dict(message: Any, version: int) -> dict[str, Any]:
    """A message as plain data: the fields that its version has, ids as UUIDs."""
    told: dict[str, Any] = {}
    for field in message.SCHEMA.fields:
        if version in field.versions:
            value = _plain(getattr(message, field.name), field.type, version)
            if field.name.endswith("authorized_operations"):
                told["authorized_operations"] = _operations(value)
            else:
                told[field.name] = value
    return told


def _operations(bits: int) -> list[str] | None:
    """The operations that a principal may do, by name; None where the broker was not asked for them."""
    if bits == _NOT_ASKED:
        return None
    return [name for number, name in enumerate(_OPERATIONS, _FIRST_OPERATION) if bits >> number & 1]


def _plain(value: Any, kind: str, version: int) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one, kind, version) for one in value]
    if hasattr(value, "SCHEMA"):
        return to_dict(value, version)
    if kind == "uuid" and isinstance(value, bytes):
        return uuid.UUID(bytes=value)
    return bytes(value) if isinstance(value, memoryview) else value


class Connection:
    """One socket to one broker, and the versions that it speaks."""

    def __init__(self, host: str, port: int, settings: Settings) -> None:
        self.address = f"{host}:{port}"
        self._settings = settings
        self._ids = itertools.count(1)
        self._versions: dict[int, tuple[int, int]] = {}
        timeout_s = settings["request_timeout_ms"] / 1000
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if str(settings["security_protocol"]).upper().endswith("SSL"):
                self._socket = _tls(settings).wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise KafkaConnectionError(f"no connection to {self.address}: {error}") from None
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def _greet(self) -> None:
        from ottla.wire.messages import ApiVersionsRequest

        # Version 0 is understood by every broker, and says all that is needed here.
        hello = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        answer = self._ask(hello, 0)
        if answer.error_code:
            raise for_code(answer.error_code)(self.address)
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        if str(self._settings["security_protocol"]).upper().startswith("SASL"):
            self._authenticate()

    def _authenticate(self) -> None:
        from ottla.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest

        mechanism = self._settings["sasl_mechanism"]
        if mechanism != "PLAIN":
            raise KafkaConfigurationError(f"the admin client authenticates with PLAIN, not with {mechanism}")
        answer, _ = self.ask(SaslHandshakeRequest(mechanism=mechanism))
        if answer.error_code:
            raise for_code(answer.error_code)(f"{self.address} offers {', '.join(answer.mechanisms)}")
        user, password = self._settings["sasl_plain_username"], self._settings["sasl_plain_password"]
        answer, _ = self.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()))
        if answer.error_code:
            raise for_code(answer.error_code)(answer.error_message or self.address)

    def version_for(self, api_key: int) -> int:
        """The newest version that both sides speak."""
        ours, theirs = API_VERSIONS[api_key], self._versions.get(api_key, (0, -1))
        version = min(ours.max_stable_version, theirs[1])
        if version < max(ours.min_version, theirs[0]):
            name = ApiKey(api_key).name
            raise for_code(ErrorCode.UNSUPPORTED_VERSION)(f"{self.address} does not support {name}")
        return version

    def ask(self, request: Any, max_version: int | None = None) -> tuple[Any, int]:
        """The answer, and the version that it is in."""
        version = self.version_for(request.API_KEY)
        if max_version is not None:
            version = min(version, max_version)
        return self._ask(request, version), version

    def _ask(self, request: Any, version: int) -> Any:
        number = next(self._ids)
        frames = encode_request(number, self._settings["client_id"], request, version)
        try:
            self._socket.sendall(b"".join(frames))
            size = struct.unpack(">i", self._read(4))[0]
            if not 4 <= size <= self._settings["receive_message_max_bytes"]:
                raise KafkaConnectionError(f"what listens at {self.address} is not a Kafka broker")
            frame = self._read(size)
        except OSError as error:
            raise KafkaConnectionError(f"the connection to {self.address} broke: {error}") from None
        header, offset = decode_response_header(request.API_KEY, version, frame)
        if header.correlation_id != number:
            raise KafkaConnectionError(f"{self.address} answers what it was not asked")
        return decode(response_class(request.API_KEY), version, frame[offset:])

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(size)
            if not part:
                raise ConnectionResetError("closed by the broker")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()


class Connections:
    """A connection to each broker that is asked, made when it is first asked."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: dict[int, Connection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self.controller_id = -1
        self._any = self._bootstrap()

    def _bootstrap(self) -> Connection:
        timeout_s = self._settings["bootstrap_timeout_ms"] / 1000
        deadline = time.monotonic() + timeout_s
        while True:
            for address in servers(self._settings["bootstrap_servers"]):
                try:
                    return Connection(*split_address(address), self._settings)
                except KafkaConnectionError as error:
                    problem = error
            if time.monotonic() >= deadline:
                raise NoBrokersAvailable(f"{problem.args[0]}; is a broker running there?")
            time.sleep(_AGAIN_S)

    def refresh(self) -> None:
        """Ask for the brokers and the controller."""
        from ottla.wire.messages import MetadataRequest

        answer, _ = self._any.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        self._addresses = {one.node_id: (one.host, one.port) for one in answer.brokers}
        self.controller_id = answer.controller_id

    def broker_ids(self) -> list[int]:
        self.refresh()
        return sorted(self._addresses)

    def ask(
        self, request: Any, node_id: int | None = None, max_version: int | None = None
    ) -> tuple[Any, int]:
        """Ask one broker, or any; a connection that broke meanwhile is made again, once."""
        if node_id is None:
            try:
                return self._any.ask(request, max_version)
            except KafkaConnectionError:
                self._any.close()
                self._any = self._bootstrap()
                return self._any.ask(request, max_version)
        if node_id not in self._addresses:
            self.refresh()
        if node_id not in self._addresses:
            raise KafkaConnectionError(f"the cluster has no broker {node_id}")
        if node_id not in self._open:
            self._open[node_id] = Connection(*self._addresses[node_id], self._settings)
        try:
            return self._open[node_id].ask(request, max_version)
        except KafkaConnectionError:
            self._open.pop(node_id).close()
            self.refresh()
            self._open[node_id] = Connection(*self._addresses[node_id], self._settings)
            return self._open[node_id].ask(request, max_version)

    def close(self) -> None:
        self._any.close()
        for one in self._open.values():
            one.close()
        self._open.clear()


def _tls(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings["ssl_cafile"])
    context.check_hostname = settings["ssl_check_hostname"]
    if settings["ssl_certfile"]:
        context.load_cert_chain(settings["ssl_certfile"], settings["ssl_keyfile"], settings["ssl_password"])
    if settings["ssl_crlfile"]:
        context.load_verify_locations(settings["ssl_crlfile"])
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    if settings["ssl_ciphers"]:
        context.set_ciphers(settings["ssl_ciphers"])
    return context
