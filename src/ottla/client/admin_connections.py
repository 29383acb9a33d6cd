"""The administration client's connections: one to each broker that is asked, with its settings and exceptions."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ottla.client.connection import SASL_MECHANISMS, Connection, ConnectionFailed, Node, Security
from ottla.client.errors import (
    KafkaConfigurationError,
    KafkaConnectionError,
    NoBrokersAvailable,
    for_code,
)
from ottla.client.settings import Settings, servers
from ottla.errors import ApiException

if TYPE_CHECKING:
    import ssl

_AGAIN_S = 0.05
_ONE_KEY_VERSION = 3
"""The last version of FindCoordinator that asks for one name."""
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


class Connections:
    """A connection to each broker that is asked, made when it is first asked."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._security = security_of(settings)
        self._open: dict[int, Connection] = {}
        self._nodes: dict[int, Node] = {}
        self.controller_id = -1
        self._any = self._bootstrap()

    def _connect(self, node: Node) -> Connection:
        return Connection(
            node,
            client_id=self._settings["client_id"],
            timeout_s=self._settings["request_timeout_ms"] / 1000,
            security=self._security,
        )

    def _bootstrap(self) -> Connection:
        timeout_s = self._settings["bootstrap_timeout_ms"] / 1000
        deadline = time.monotonic() + timeout_s
        while True:
            for address in servers(self._settings["bootstrap_servers"]):
                try:
                    with _in_our_words():
                        return self._connect(_node_at(address))
                except KafkaConnectionError as error:
                    problem = error
            if time.monotonic() >= deadline:
                raise NoBrokersAvailable(f"{problem.args[0]}; is a broker running there?")
            time.sleep(_AGAIN_S)

    def refresh(self) -> None:
        """Ask for the brokers and the controller."""
        from ottla.wire.messages import MetadataRequest

        answer, _ = self.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        self._nodes = {one.node_id: Node(one.node_id, one.host, one.port) for one in answer.brokers}
        self.controller_id = answer.controller_id

    def versions(self, node_id: int | None) -> dict[int, tuple[int, int]]:
        """The versions of each API that a broker speaks, or that any one does."""
        with _in_our_words():
            return dict(self._connection(node_id).versions)

    def coordinator(self, name: str, kind: int) -> int:
        """The broker that coordinates a group, or a transactional id, of this name."""
        from ottla.wire.messages import FindCoordinatorRequest

        answer, _ = self.ask(FindCoordinatorRequest(key=name, key_type=kind), None, _ONE_KEY_VERSION)
        if answer.error_code:
            raise for_code(answer.error_code)(answer.error_message or name)
        node_id: int = answer.node_id
        return node_id

    def broker_ids(self) -> list[int]:
        self.refresh()
        return sorted(self._nodes)

    def ask(
        self, request: Any, node_id: int | None = None, max_version: int | None = None
    ) -> tuple[Any, int]:
        """Ask one broker, or any; a connection that broke meanwhile is made again, once."""
        with _in_our_words():
            try:
                return _answer(self._connection(node_id), request, max_version)
            except ConnectionFailed:
                self._drop(node_id)
            return _answer(self._connection(node_id), request, max_version)

    def _connection(self, node_id: int | None) -> Connection:
        if node_id is None:
            return self._any
        if node_id not in self._nodes:
            self.refresh()
        if node_id not in self._nodes:
            raise KafkaConnectionError(f"the cluster has no broker {node_id}")
        if node_id not in self._open:
            self._open[node_id] = self._connect(self._nodes[node_id])
        return self._open[node_id]

    def _drop(self, node_id: int | None) -> None:
        """Forget a connection that broke, and where the broker was."""
        if node_id is None:
            self._any.close()
            self._any = self._bootstrap()
            return
        if node_id in self._open:
            self._open.pop(node_id).close()
        self.refresh()

    def close(self) -> None:
        self._any.close()
        for one in self._open.values():
            one.close()
        self._open.clear()


def _answer(connection: Connection, request: Any, max_version: int | None) -> tuple[Any, int]:
    """The answer, and the version that it is in."""
    version = connection.agreed_version(request.API_KEY, max_version)
    return connection.ask(request, version), version


@contextlib.contextmanager
def _in_our_words() -> Iterator[None]:
    """Turns what the connection raises into the exceptions of the client API."""
    try:
        yield
    except ConnectionFailed as error:
        raise KafkaConnectionError(error.message) from None
    except ApiException as error:
        raise for_code(error.code)(error.message) from None


def _node_at(address: str) -> Node:
    host, _, port = address.rpartition(":")
    return Node(-1, host.strip("[]"), int(port))


def security_of(settings: Settings) -> Security:
    """How a client with these settings is let in."""
    protocol = str(settings["security_protocol"]).upper()
    tls = _tls(settings) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL"):
        return Security(tls)
    mechanism = settings["sasl_mechanism"]
    if mechanism not in SASL_MECHANISMS:
        known = ", ".join(SASL_MECHANISMS)
        raise KafkaConfigurationError(f"the admin client authenticates with {known}, not with {mechanism}")
    user, password = settings["sasl_plain_username"] or "", settings["sasl_plain_password"] or ""
    return Security(tls, user, password, mechanism)


def _tls(settings: Settings) -> ssl.SSLContext:
    import ssl

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
