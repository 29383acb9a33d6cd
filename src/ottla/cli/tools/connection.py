"""A client for administration: blocking, one request at a time, in the newest version that both sides speak.

`Connection` is one socket to one broker; `Cluster` knows the brokers behind the bootstrap addresses and finds
the one that a request must go to. What an answer means is the business of whoever asked.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ottla import __version__
from ottla.cli.tools.failures import NoBroker, raise_for
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.apis import API_VERSIONS, ApiKey
from ottla.wire.codec import decode
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest, response_class

T = TypeVar("T")

MAX_RESPONSE_BYTES: Final = 256 << 20
"""More than any answer to a tool; a length above it means that the peer is no Kafka broker."""

_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_HELLO_VERSION: Final = 4
_UNSUPPORTED: Final = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)

_PASSING: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Errors that pass by themselves in a healthy cluster."""


class Coordinator:
    """What a coordinator is looked up for: the key types of FindCoordinator."""

    GROUP: Final = 0
    TRANSACTION: Final = 1


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


class Connection:
    """One socket to one broker, and the versions that the broker speaks."""

    def __init__(self, node: Node, *, client_id: str, timeout_s: float) -> None:
        self.node = node
        self._client_id = client_id
        self._ids = itertools.count(1)
        try:
            self._socket = socket.create_connection((node.host, node.port), timeout_s)
        except OSError as error:
            raise NoBroker(node.address, error) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.versions, self.features = self._greet()

    def _greet(self) -> tuple[dict[int, tuple[int, int]], Any]:
        hello = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        try:
            answer = self._ask(hello, _HELLO_VERSION, or_version=0)
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                known = {api.api_key: api.max_version for api in answer.api_keys}
                answer = self._ask(hello, min(_HELLO_VERSION, known.get(ApiKey.API_VERSIONS, 0)))
        except (OSError, EOFError, KafkaError) as error:
            self.close()
            raise NoBroker(self.node.address, error) from None
        raise_for(answer.error_code)
        return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}, answer

    def version_for(self, api_key: int) -> int | None:
        """The newest version that both sides speak, if there is one."""
        ours, theirs = API_VERSIONS[api_key], self.versions.get(api_key)
        if theirs is None:
            return None
        version = min(ours.max_stable_version, theirs[1])
        return version if version >= max(ours.min_version, theirs[0]) else None

    def ask(self, request: Any, max_version: int | None = None) -> Any:
        """The broker's answer; KafkaError where it does not know such a request."""
        version = self.version_for(request.API_KEY)
        if version is not None and max_version is not None:
            version = min(version, max_version)
        if version is None:
            name = API_VERSIONS[request.API_KEY].name
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"the broker at {self.node.address} does not support {name}"
            )
        try:
            return self._ask(request, version)
        except (OSError, EOFError) as error:
            self.close()
            raise NoBroker(self.node.address, error) from None

    def _ask(self, request: Any, version: int, or_version: int | None = None) -> Any:
        correlation_id = next(self._ids)
        self._socket.sendall(b"".join(encode_request(correlation_id, self._client_id, request, version)))
        size = struct.unpack(">i", self._read(4))[0]
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise EOFError("what listens there is not a Kafka broker")
        frame = self._read(size)
        header, offset = decode_response_header(request.API_KEY, version, frame)
        if header.correlation_id != correlation_id:
            raise EOFError("what listens there is not a Kafka broker")
        if or_version is not None and frame[offset : offset + 2] == _UNSUPPORTED:
            version = or_version
        return decode(response_class(request.API_KEY), version, frame[offset:])

    def _read(self, size: int) -> bytes:
        chunks: list[bytes] = []
        while size:
            chunk = self._socket.recv(min(size, 1 << 20))
            if not chunk:
                raise EOFError("the connection was closed")
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    def close(self) -> None:
        self._socket.close()


class Cluster:
    """The brokers behind some bootstrap addresses."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]], *, client_id: str, timeout_s: float) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._open: dict[int, Connection] = {}
        self._nodes: dict[int, Node] | None = None
        self._first: Connection | None = None

    def first(self) -> Connection:
        """A connection to the first bootstrap address that answers."""
        if self._first is None:
            failures: list[NoBroker] = []
            for host, port in self._bootstrap:
                try:
                    self._first = self._connect(Node(-1, host, port))
                    return self._first
                except NoBroker as failure:
                    failures.append(failure)
            raise failures[0]
        return self._first

    def _connect(self, node: Node) -> Connection:
        return Connection(node, client_id=self._client_id, timeout_s=self.timeout_s)

    def connection(self, node_id: int | None = None) -> Connection:
        """The connection to a broker by its id; to any one for None."""
        if node_id is None:
            return self.first()
        if node_id not in self._open:
            node = self.nodes().get(node_id)
            if node is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker with the id {node_id}")
            self._open[node_id] = self._connect(node)
        return self._open[node_id]

    def ask(self, request: Any, node_id: int | None = None, max_version: int | None = None) -> Any:
        """The answer of a broker, any one for None; an older version where a newer one asks for more."""
        return self.connection(node_id).ask(request, max_version)

    def supports(self, api_key: int) -> bool:
        return self.first().version_for(api_key) is not None

    def nodes(self) -> dict[int, Node]:
        """The brokers of the cluster by id."""
        if self._nodes is None:
            self.metadata(())
        assert self._nodes is not None
        return self._nodes

    def metadata(self, topics: Iterable[str] | None = None) -> Any:
        """The Metadata answer about some topics, or about all of them for None; topics are not created by it."""
        topic = MetadataRequest.MetadataRequestTopic
        wanted = None if topics is None else [topic(name=name) for name in topics]
        answer = self.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        self._nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in answer.brokers
        }
        return answer

    def coordinator(self, key: str, kind: int = Coordinator.GROUP) -> int:
        """The id of the broker that coordinates a group or a transactional id."""
        return next(iter(self.coordinators([key], kind)))

    def coordinators(self, keys: Sequence[str], kind: int = Coordinator.GROUP) -> dict[int, list[str]]:
        """Groups or transactional ids by the broker that coordinates them."""
        return self.retrying(lambda: self._find_coordinators(keys, kind))

    def _find_coordinators(self, keys: Sequence[str], kind: int) -> dict[int, list[str]]:
        version = self.first().version_for(ApiKey.FIND_COORDINATOR) or 0
        if version >= 4:
            answers = self.ask(
                FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
            ).coordinators
        else:
            answers = [self.ask(FindCoordinatorRequest(key=key, key_type=kind)) for key in keys]
        found: dict[int, list[str]] = {}
        for key, answer in zip((a.key for a in answers) if version >= 4 else keys, answers, strict=True):
            raise_for(answer.error_code, answer.error_message)
            known = self.nodes()
            known.setdefault(answer.node_id, Node(answer.node_id, answer.host, answer.port))
            found.setdefault(int(answer.node_id), []).append(key)
        return found

    def retrying(self, call: Callable[[], T], timeout_s: float | None = None) -> T:
        """What the call gives; it is made again while it fails with an error that passes by itself."""
        deadline = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        pause_s = _PAUSE_S
        while True:
            try:
                return call()
            except KafkaError as error:
                if error.code not in _PASSING or time.monotonic() + pause_s > deadline:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        if self._first is not None:
            self._first.close()
