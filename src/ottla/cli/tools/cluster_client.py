"""A tool's view of a cluster: the brokers behind the bootstrap addresses, and which of them a question must go to.

What an answer means is the business of whoever asked; one connection is `ottla.client.connection`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from ottla.cli.tools.failures import NoBroker, raise_for
from ottla.client.connection import Connection, ConnectionFailed, Node, Security
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.messages import FindCoordinatorRequest, MetadataRequest

T = TypeVar("T")

_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0

PASSING: Final = frozenset(
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


class Cluster:
    """The brokers behind some bootstrap addresses."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        *,
        client_id: str,
        timeout_s: float,
        security: Security | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._security = security
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
                    self._first = self.reach(Node(-1, host, port))
                    return self._first
                except NoBroker as failure:
                    failures.append(failure)
            raise failures[0]
        return self._first

    def reach(self, node: Node) -> Connection:
        """A new connection to an address."""
        try:
            return Connection(
                node, client_id=self._client_id, timeout_s=self.timeout_s, security=self._security
            )
        except ConnectionFailed as failure:
            raise NoBroker(failure) from None

    def connection(self, node_id: int | None = None) -> Connection:
        """The connection to a broker by its id; to any one for None."""
        if node_id is None:
            return self.first()
        if node_id not in self._open:
            node = self.nodes().get(node_id)
            if node is None:
                raise ApiException(
                    ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker with the id {node_id}"
                )
            self._open[node_id] = self.reach(node)
        return self._open[node_id]

    def ask(self, request: Any, node_id: int | None = None, max_version: int | None = None) -> Any:
        """The answer of a broker, any one for None; an older version where a newer one asks for more."""
        try:
            return self.connection(node_id).ask(request, max_version)
        except ConnectionFailed as failure:
            raise NoBroker(failure) from None

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
            except ApiException as error:
                if error.code not in PASSING or time.monotonic() + pause_s > deadline:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        if self._first is not None:
            self._first.close()
