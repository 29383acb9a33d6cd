"""Requests to several brokers at the same time: all of them work, and responses are taken as they come.

What a request asks, and what its response means, is the caller's. A broker that fails costs only its own responses.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ottla.admin.connection import Connection, ConnectionFailed, answered
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.wire.classes import WireRequest, WireResponse

R = TypeVar("R", bound="WireResponse")

_IN_FLIGHT: Final = 2
"""Requests that a broker has: one that it works on, and the next one. More would fill sockets and win nothing."""


@dataclass(slots=True)
class _Question:
    request: WireRequest[WireResponse]
    take: Callable[[WireResponse], None]
    max_version: int | None
    anywhere: bool
    refused: set[int] = field(default_factory=set)
    """Brokers that cannot answer it."""


@dataclass(slots=True)
class _Broker:
    waiting: deque[_Question] = field(default_factory=deque)
    in_flight: deque[_Question] = field(default_factory=deque)
    connection: Connection | None = None
    again: bool = False
    """The connection was opened again already."""
    heard_s: float = 0.0


class AtOnce:
    """Add requests, then `run`. What takes a response may add more."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._brokers: dict[int, _Broker] = {}
        self._reading: ExitStack | None = None
        self.failures: dict[int, ApiException] = {}
        """Why brokers did not answer all of their requests."""

    def add(
        self,
        request: WireRequest[R],
        take: Callable[[R], None],
        node_id: int | None = None,
        max_version: int | None = None,
    ) -> None:
        """Ask a broker; for None the one that has the least to do. `take` gets the response.

        A broker that has failed is not asked. ApiException if no broker is left that could be.
        """
        question = _Question(
            cast("WireRequest[WireResponse]", request),
            cast("Callable[[WireResponse], None]", take),
            max_version,
            node_id is None,
        )
        self._add(question, self._least_busy(question.refused) if node_id is None else node_id)

    def _add(self, question: _Question, node_id: int) -> None:
        if node_id in self.failures:
            return
        broker = self._brokers.setdefault(node_id, _Broker())
        broker.waiting.append(question)
        if self._reading is not None:
            self._send(node_id, broker)

    def _least_busy(self, refused: Collection[int]) -> int:
        left = [each for each in self._cluster.nodes() if each not in self.failures and each not in refused]
        if not left:
            raise next(reversed(self.failures.values()))
        return min(left, key=self._load)

    def _load(self, node_id: int) -> int:
        broker = self._brokers.get(node_id)
        return len(broker.waiting) + len(broker.in_flight) if broker is not None else 0

    def run(self) -> dict[int, ApiException]:
        """Send everything and take all responses. Which brokers failed, and why."""
        with ExitStack() as reading:
            self._reading = reading
            try:
                for node_id, broker in list(self._brokers.items()):
                    self._send(node_id, broker)
                while asked := {each: one for each, one in self._brokers.items() if one.in_flight}:
                    self._receive(asked)
            finally:
                self._reading = None
                for broker in self._brokers.values():
                    if broker.in_flight and broker.connection is not None:
                        self._cluster.drop(broker.connection)
                self._brokers.clear()
        return self.failures

    def _send(self, node_id: int, broker: _Broker) -> None:
        while broker.waiting and len(broker.in_flight) < _IN_FLIGHT:
            question = broker.waiting[0]
            try:
                connection = broker.connection or self._connect(node_id, broker)
                version = connection.agreed_version(question.request.API_KEY, question.max_version)
                connection.send(question.request, version)
            except ConnectionFailed as error:
                self._failed(node_id, broker, error)
                return
            except ApiException as error:
                if not question.anywhere:
                    self._failed(node_id, broker, error)
                    return
                # The broker is older than others: they may know the request.
                question.refused.add(node_id)
                broker.waiting.popleft()
                if len(question.refused) == len(self._cluster.nodes()):
                    raise
                self._add(question, self._least_busy(question.refused))
                continue
            if not broker.in_flight:
                broker.heard_s = time.monotonic()
            broker.in_flight.append(broker.waiting.popleft())

    def _connect(self, node_id: int, broker: _Broker) -> Connection:
        broker.connection = self._cluster.connection(node_id)
        assert self._reading is not None
        self._reading.enter_context(self._cluster.reading(broker.connection))
        return broker.connection

    def _receive(self, asked: dict[int, _Broker]) -> None:
        """Take a response of each broker that has answered; wait until one has."""
        overdue_s = min(each.heard_s for each in asked.values()) + self._cluster.settings.request_timeout_s
        connections = [each.connection for each in asked.values() if each.connection is not None]
        ready = set(answered(connections, max(overdue_s - time.monotonic(), 0)))
        now_s = time.monotonic()
        for node_id, broker in asked.items():
            connection = broker.connection
            if connection is None or not broker.in_flight:
                continue
            if connection in ready:
                self._take(node_id, broker, connection)
            elif not ready and now_s >= broker.heard_s + self._cluster.settings.request_timeout_s:
                self._failed(node_id, broker, ConnectionFailed(connection.node.address, TimeoutError()))

    def _take(self, node_id: int, broker: _Broker, connection: Connection) -> None:
        try:
            response = connection.receive()
        except ConnectionFailed as error:
            self._failed(node_id, broker, error)
            return
        question = broker.in_flight.popleft()
        broker.heard_s = time.monotonic()
        self._send(node_id, broker)
        question.take(response)

    def _failed(self, node_id: int, broker: _Broker, error: ApiException) -> None:
        """Ask again on a new connection, once: the broker may have been restarted. Else others may know."""
        if broker.connection is not None:
            self._cluster.drop(broker.connection)
            broker.connection = None
        pending = [*broker.in_flight, *broker.waiting]
        broker.in_flight.clear()
        broker.waiting.clear()
        if isinstance(error, ConnectionFailed) and not error.timed_out and not broker.again:
            broker.again = True
            broker.waiting.extend(pending)
            self._send(node_id, broker)
            return
        self.failures[node_id] = error
        self._brokers.pop(node_id, None)
        for question in pending:
            if question.anywhere:
                self._add(question, self._least_busy(question.refused))
