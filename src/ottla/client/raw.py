"""Requests to the brokers of a cluster, several at a time on one connection: for those who write batches themselves.

`Brokers` finds leaders and coordinators. What to send, what an answer means and when to try again is the business of
whoever asks.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from ottla.client.admin_connections import security_of
from ottla.client.connection import MAX_RESPONSE_BYTES, Connection, ConnectionFailed, Node
from ottla.client.settings import COMMON, RENAMED, Settings, merge, servers
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.codec import decode
from ottla.wire.headers import decode_response_header, encode_request
from ottla.wire.messages import FindCoordinatorRequest, MetadataRequest, response_class
from ottla.wire.primitives import Buffer

T = TypeVar("T")

GROUP: Final = 0
TRANSACTION: Final = 1

_MOST_BUFFERS: Final = 512
"""Fewer than any system's limit of buffers for one write."""

_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.5

PASSING: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that pass by themselves in a healthy cluster."""


def raw_settings(bootstrap_servers: str, options: Mapping[str, Any] | None = None) -> Settings:
    """The settings of a connection from Kafka's names for them (`security.protocol`), with or without Spark's
    `kafka.` in front."""
    ours = {theirs: name for name, theirs in RENAMED.items()}
    given: Settings = {"bootstrap_servers": bootstrap_servers}
    for key, value in (options or {}).items():
        word = key.removeprefix("kafka.")
        given[ours.get(word, word.replace(".", "_"))] = value
    return merge(COMMON, given, "the connection")


def raise_for(code: int, what: str) -> None:
    """Raise a ApiException for any code but NONE."""
    if code != ErrorCode.NONE:
        error = ErrorCode.of(code)
        raise ApiException(error, f"{what}: {error.name}")


class PipelinedConnection(Connection):
    """A connection that takes more requests before the earlier ones are answered."""

    def __init__(self, node: Node, **how: Any) -> None:
        self._waiting: deque[tuple[int, int, int]] = deque()
        super().__init__(node, **how)

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def send(self, request: Any, version: int) -> None:
        """Write a request; its answer comes with the `receive` that is its turn."""
        number = next(self._ids)
        buffers = encode_request(number, self._client_id, request, version)
        try:
            self._write(buffers)
        except OSError as error:
            self.close()
            raise ConnectionFailed(self.node.address, error) from None
        self._waiting.append((number, request.API_KEY, version))

    def _write(self, buffers: list[Buffer]) -> None:
        if self._security.tls is not None:
            self._socket.sendall(b"".join(buffers))
            return
        views = deque(memoryview(one).cast("B") for one in buffers if len(one))
        while views:
            sent = self._socket.sendmsg([views[at] for at in range(min(len(views), _MOST_BUFFERS))])
            while sent:
                if sent < len(views[0]):
                    views[0] = views[0][sent:]
                    break
                sent -= len(views.popleft())

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet."""
        number, api_key, version = self._waiting.popleft()
        try:
            size = struct.unpack(">i", self._read(4))[0]
            if not 4 <= size <= MAX_RESPONSE_BYTES:
                raise EOFError("what listens there is not a Kafka broker")
            frame = self._read(size)
            header, offset = decode_response_header(api_key, version, frame)
            if header.correlation_id != number:
                raise EOFError("it answers what it was not asked")
        except (OSError, EOFError) as error:
            self.close()
            raise ConnectionFailed(self.node.address, error) from None
        return decode(response_class(api_key), version, frame[offset:])


class Brokers:
    """Connections to the brokers of a cluster, and where its leaders and coordinators are."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._security = security_of(settings)
        self._open: dict[tuple[str, int], PipelinedConnection] = {}
        self._nodes: dict[int, Node] = {}
        self._leaders: dict[str, dict[int, int]] = {}
        self._coordinators: dict[tuple[int, str], Node] = {}

    def connection(self, node: Node) -> PipelinedConnection:
        place = (node.host, node.port)
        if place not in self._open:
            self._open[place] = PipelinedConnection(
                node,
                client_id=self.settings["client_id"],
                timeout_s=self.settings["request_timeout_ms"] / 1000,
                security=self._security,
            )
        return self._open[place]

    def any(self) -> PipelinedConnection:
        """A connection to some broker."""
        for one in self._open.values():
            return one
        failure: ConnectionFailed | None = None
        for address in servers(self.settings["bootstrap_servers"]):
            host, _, port = address.rpartition(":")
            try:
                return self.connection(Node(-1, host.strip("[]"), int(port)))
            except ConnectionFailed as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def drop(self, connection: Connection) -> None:
        """Forget a connection that broke."""
        connection.close()
        self._open.pop((connection.node.host, connection.node.port), None)

    def forget_places(self) -> None:
        """Look up leaders and coordinators again at the next question."""
        self._leaders.clear()
        self._coordinators.clear()

    def ask(self, connection: PipelinedConnection, request: Any, max_version: int | None = None) -> Any:
        """One answer; a connection that breaks is forgotten."""
        try:
            return connection.ask(request, max_version)
        except ConnectionFailed:
            self.drop(connection)
            raise

    def leaders(self, topic: str, *, create: bool = False) -> dict[int, int]:
        """The leader of each partition of a topic; UNKNOWN_TOPIC_OR_PARTITION where there is none."""
        known = self._leaders.get(topic)
        if known is not None:
            return known
        asked = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create
        )
        answer = self.ask(self.any(), asked)
        for one in answer.brokers:
            self._nodes[one.node_id] = Node(one.node_id, one.host, one.port)
        found = answer.topics[0]
        raise_for(found.error_code, f"topic {topic}")
        leaders = {one.partition_index: one.leader_id for one in found.partitions}
        if min(leaders.values(), default=-1) < 0:
            raise ApiException(
                ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic} has partitions without a leader"
            )
        self._leaders[topic] = leaders
        return leaders

    def leader(self, topic: str, partition: int) -> PipelinedConnection:
        leaders = self.leaders(topic)
        if partition not in leaders:
            raise ApiException(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic} has no partition {partition}: it has {len(leaders)} (0 to {len(leaders) - 1})",
            )
        return self.connection(self._nodes[leaders[partition]])

    def coordinator(self, kind: int, key: str) -> PipelinedConnection:
        """The broker that coordinates a group or a transactional id."""
        node = self._coordinators.get((kind, key))
        if node is None:
            connection = self.any()
            if (connection.version_for(ApiKey.FIND_COORDINATOR) or 0) >= 4:
                asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
                answer = self.ask(connection, asked).coordinators[0]
            else:
                answer = self.ask(connection, FindCoordinatorRequest(key=key, key_type=kind))
            raise_for(answer.error_code, f"the coordinator of {key}")
            node = Node(answer.node_id, answer.host, answer.port)
            self._coordinators[kind, key] = node
        return self.connection(node)

    def retrying(self, call: Callable[[], T], timeout_s: float, passing: Iterable[ErrorCode] = PASSING) -> T:
        """What the call gives; it is made again while it fails with an error that passes by itself."""
        deadline = time.monotonic() + timeout_s
        pause_s = _PAUSE_S
        while True:
            try:
                return call()
            except ApiException as error:
                if error.code not in passing or time.monotonic() + pause_s > deadline:
                    raise
                if error.code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    self.forget_places()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def close(self) -> None:
        for one in self._open.values():
            one.close()
        self._open.clear()
