"""The cluster client: connections to the brokers of a cluster, and which broker a request must go to.

It knows how to find brokers, leaders, coordinators and the controller, and when to try again. The content of requests
and the meaning of responses belong to the other modules of this package and to their callers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ottla.admin.at_once import AtOnce
from ottla.admin.connection import Connection, ConnectionFailed, Node
from ottla.admin.errors import raise_for
from ottla.admin.retries import Backoff
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.wire.apis import ApiKey
from ottla.wire.enums import CoordinatorType
from ottla.wire.messages import FindCoordinatorRequest, MetadataRequest

if TYPE_CHECKING:
    from ottla.admin.settings import ClusterSettings
    from ottla.wire.classes import WireRequest, WireResponse
    from ottla.wire.messages import MetadataResponse

T = TypeVar("T")
R = TypeVar("R", bound="WireResponse")

_AHEAD: Final = 1
"""Requests that a broker has beside the one whose response is read: more would fill sockets and win nothing."""
_BATCHED_COORDINATORS = 4
"""The first version of FindCoordinator that looks several keys up at once."""


class Cluster:
    """The brokers behind some bootstrap servers. It connects at the first request. Not for several threads at once."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._tls = settings.security.tls_context()
        self._open: dict[tuple[str, int], Connection] = {}
        self._first: Connection | None = None
        self._nodes: dict[int, Node] | None = None
        self._leaders: dict[str, dict[int, int]] = {}
        self._coordinators: dict[tuple[CoordinatorType, str], Node] = {}
        self.controller_id = -1

    # -- connections

    def any(self) -> Connection:
        """A connection to any broker: to the first that answers, of the bootstrap servers and all known brokers."""
        if self._first is None or self._first.closed:
            deadline = time.monotonic() + self.settings.bootstrap_timeout_s
            backoff = self._backoff()
            while True:
                try:
                    self._first = self._bootstrap()
                    break
                except ConnectionFailed:
                    if time.monotonic() >= deadline:
                        raise
                time.sleep(backoff.next_s())
        return self._first

    def _bootstrap(self) -> Connection:
        failures: list[ConnectionFailed] = []
        known = [Node(-1, host, port) for host, port in self.settings.bootstrap]
        for node in [*known, *(self._nodes or {}).values()]:
            try:
                return self.connect_to(node)
            except ConnectionFailed as failure:
                failures.append(failure)
        raise failures[0]

    def connect_to(self, node: Node) -> Connection:
        """The connection to an address; a new one if there is none."""
        known = self._open.get((node.host, node.port))
        if known is None or known.closed:
            known = self._open[node.host, node.port] = self.new_connection(node)
        return known

    def connected(self, node: Node) -> Connection | None:
        """The open connection to an address, if there is one."""
        return self._open.get((node.host, node.port))

    def new_connection(self, node: Node) -> Connection:
        """Open a connection that its caller closes."""
        return Connection(node, self.settings, self._tls)

    def connection(self, node_id: int | None = None) -> Connection:
        """The connection to a broker by its id; to any broker for None.

        The broker's address is looked up again if it is unknown, or if no broker answers at the known one.
        """
        if node_id is None:
            return self.any()
        known = self.nodes().get(node_id)
        failure: ConnectionFailed | None = None
        if known is not None:
            try:
                return self.connect_to(known)
            except ConnectionFailed as error:
                failure = error
        self.refresh()
        node = self.nodes().get(node_id)
        if node is not None and node != known:
            return self.connect_to(node)
        raise failure or ApiException(
            ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker with the id {node_id}"
        )

    def drop(self, connection: Connection) -> None:
        """Close a connection that failed; the next request opens a new one."""
        connection.close()
        key = connection.node.host, connection.node.port
        if self._open.get(key) is connection:
            del self._open[key]
        if self._first is connection:
            self._first = None

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()
        self._first = None

    # -- requests

    def ask(self, request: WireRequest[R], node_id: int | None = None, max_version: int | None = None) -> R:
        """The response of a broker, any broker for None. A broken connection is opened again, once.

        An older `max_version` keeps requests out of versions that need more than the caller knows.
        """
        connection = self.connection(node_id)
        try:
            return self.ask_on(connection, request, max_version)
        except ConnectionFailed as failure:
            if failure.timed_out:
                raise
        return self.ask_on(self.connection(node_id), request, max_version)

    def ask_on(self, connection: Connection, request: WireRequest[R], max_version: int | None = None) -> R:
        """The response on one connection, which is dropped if it fails. The request is not sent again."""
        try:
            return connection.ask(request, max_version)
        except ConnectionFailed:
            self.drop(connection)
            raise

    def ask_each(
        self, requests: Iterable[WireRequest[R]], node_id: int, max_version: int | None = None
    ) -> Iterator[R]:
        """The responses of a broker to several requests, in order.

        The broker has the next request already while a response is read. Nothing is sent again.
        """
        return self.ask_each_on(self.connection(node_id), requests, max_version)

    def ask_each_on(
        self, connection: Connection, requests: Iterable[WireRequest[R]], max_version: int | None = None
    ) -> Iterator[R]:
        """The same on one connection, which is dropped if it fails or if not all responses are taken."""
        in_flight = 0
        try:
            for request in requests:
                connection.send(request, connection.agreed_version(request.API_KEY, max_version))
                in_flight += 1
                if in_flight > _AHEAD:
                    in_flight -= 1
                    yield cast("R", connection.receive())
            while in_flight:
                in_flight -= 1
                yield cast("R", connection.receive())
        except ConnectionFailed:
            self.drop(connection)
            raise
        finally:
            if in_flight:
                self.drop(connection)

    def at_once(self) -> AtOnce:
        """For requests to several brokers that do not wait for each other."""
        return AtOnce(self)

    def reading(self, connection: Connection) -> AbstractContextManager[object]:
        """A block in which responses to requests that only read are waited for on a connection."""
        return nullcontext(connection)

    def version_for(self, api_key: int, node_id: int | None = None) -> int | None:
        """The version that requests of an API go out in, if the broker supports the API."""
        return self.connection(node_id).version_for(api_key)

    def supports(self, api_key: int) -> bool:
        return self.version_for(api_key) is not None

    def retrying(self, call: Callable[[], T], timeout_s: float | None = None) -> T:
        """The result of a call, which is repeated while it fails with an error that is retriable in the settings."""
        limit_s = self.settings.request_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        backoff = self._backoff()
        while True:
            try:
                return call()
            except ApiException as error:
                pause_s = backoff.next_s()
                if error.code not in self.settings.retriable or time.monotonic() + pause_s > deadline:
                    raise
                if error.code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    self.forget_locations()
            time.sleep(pause_s)

    def _backoff(self) -> Backoff:
        return Backoff(self.settings.retry_backoff_s, self.settings.retry_backoff_max_s)

    # -- discovery

    def nodes(self) -> dict[int, Node]:
        """The brokers of the cluster by id."""
        if self._nodes is None:
            self.refresh()
        assert self._nodes is not None
        return self._nodes

    def refresh(self) -> None:
        """Look the brokers and the controller up again."""
        self.metadata(())

    def metadata(
        self, topics: Iterable[str] | None = None, *, create: bool = False, operations: bool = False
    ) -> MetadataResponse:
        """The Metadata response about some topics, or about all topics for None.

        `create` creates missing topics if the cluster allows that; `operations` adds what the user may do with each.
        """
        topic = MetadataRequest.MetadataRequestTopic
        wanted = None if topics is None else [topic(name=TopicName(name)) for name in topics]
        request = MetadataRequest(
            topics=wanted, allow_auto_topic_creation=create, include_topic_authorized_operations=operations
        )
        response = self.ask(request)
        self._nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        self.controller_id = response.controller_id
        return response

    def leaders(self, topic: str, *, create: bool = False) -> dict[int, int]:
        """The leader of each partition of a topic, remembered until an error; ApiException if one has none."""
        known = self._leaders.get(topic)
        if known is not None:
            return known
        found = self.metadata([topic], create=create).topics[0]
        if found.error_code:
            code = ErrorCode.of(found.error_code)
            raise ApiException(code, f"topic {topic}: {code.name}")
        leaders: dict[int, int] = {one.partition_index: one.leader_id for one in found.partitions}
        if min(leaders.values(), default=-1) < 0:
            raise ApiException(
                ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic} has partitions without a leader"
            )
        self._leaders[topic] = leaders
        return leaders

    def leader(self, topic: str, partition: int) -> Connection:
        """The connection to a partition's leader."""
        leaders = self.leaders(topic)
        if partition not in leaders:
            # The topic may have got partitions since.
            del self._leaders[topic]
            leaders = self.leaders(topic)
        if partition not in leaders:
            raise ApiException(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {topic} has no partition {partition}: it has {len(leaders)} (0 to {len(leaders) - 1})",
            )
        return self.connect_to(self.nodes()[leaders[partition]])

    def coordinator_connection(self, key: str, kind: CoordinatorType) -> Connection:
        """The connection to the coordinator of a group or transactional id, remembered until an error."""
        node = self._coordinators.get((kind, key))
        if node is None:
            (node_id,) = self._find_coordinators([key], kind)
            node = self._coordinators[kind, key] = self.nodes()[node_id]
        return self.connect_to(node)

    def forget_locations(self) -> None:
        """Look leaders and coordinators up again at the next request."""
        self._leaders.clear()
        self._coordinators.clear()

    def coordinator(self, key: str, kind: CoordinatorType = CoordinatorType.GROUP) -> int:
        """The id of the broker that coordinates a group or a transactional id."""
        return next(iter(self.coordinators([key], kind)))

    def coordinators(
        self, keys: Collection[str], kind: CoordinatorType = CoordinatorType.GROUP
    ) -> dict[int, list[str]]:
        """Groups or transactional ids by the broker that coordinates them."""
        return self.retrying(lambda: self._find_coordinators(list(keys), kind))

    def _find_coordinators(self, keys: Sequence[str], kind: CoordinatorType) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        if (self.version_for(ApiKey.FIND_COORDINATOR) or 0) >= _BATCHED_COORDINATORS:
            batch = self.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys)))
            for each in batch.coordinators:
                raise_for(each.error_code, each.error_message)
                self._learn(Node(each.node_id, each.host, each.port))
                found.setdefault(each.node_id, []).append(each.key)
            return found
        for key in keys:
            response = self.ask(FindCoordinatorRequest(key=key, key_type=kind))
            raise_for(response.error_code, response.error_message)
            self._learn(Node(response.node_id, response.host, response.port))
            found.setdefault(response.node_id, []).append(key)
        return found

    def _learn(self, node: Node) -> None:
        """Take note of a broker's address. FindCoordinator does not tell its rack."""
        known = self.nodes().get(node.id)
        if known is None or (known.host, known.port) != (node.host, node.port):
            self.nodes()[node.id] = node
