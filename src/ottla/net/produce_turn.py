"""Produce requests that arrive in one turn of the event loop, appended together: one write for each partition.

A write to a file costs as much for ten batches as for one. Responses are written after the records. Only requests that
`ottla.api.data.produce_repeated` recognises wait here, one of each connection, and no longer than the turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.replica.group_append import append_together

if TYPE_CHECKING:
    from ottla.api.data.produce_repeated import RepeatedProduce
    from ottla.broker.services import Broker
    from ottla.counters import RequestCounters
    from ottla.net.connection import Connection
    from ottla.replica.partition import Partition

_CLOSE_S: Final = 0.0002
"""Requests of different clients this close to each other probably arrive in one turn."""
_MAX_REQUESTS: Final = 256
_MAX_BYTES: Final = 512 << 10
_SKIP: Final = 64
"""Requests that are answered one by one after turns had too few to gain anything."""

_Waiting = tuple["Connection", "RepeatedProduce", bytes, float, "RequestCounters"]
_Dispatch = Callable[["Connection", memoryview, float], None]


class ProduceTurn:
    """The requests of the current turn. `dispatch` takes those that turn out to need the whole way."""

    __slots__ = ("_broker", "_bytes", "_dispatch", "_last", "_last_at", "_skip", "_waiting")

    def __init__(self, broker: Broker, dispatch: _Dispatch) -> None:
        self._broker = broker
        self._dispatch = dispatch
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        self._last: Connection | None = None
        self._last_at = 0.0
        self._skip = 0

    def takes(
        self,
        connection: Connection,
        repeated: RepeatedProduce,
        frame: memoryview,
        now: float,
        counters: RequestCounters,
    ) -> bool:
        """Let a request wait for the end of the turn, if others probably do. False: answer it now."""
        together = connection is not self._last and now - self._last_at < _CLOSE_S
        self._last = connection
        self._last_at = now
        if self._skip:
            self._skip -= 1
            return False
        if not together:
            return False
        waiting = self._waiting
        if not waiting:
            connection.call_soon(self.append_all)
        connection.waits_for_turn = True
        waiting.append((connection, repeated, bytes(frame), now, counters))
        self._bytes += len(frame)
        if len(waiting) >= _MAX_REQUESTS or self._bytes >= _MAX_BYTES:
            self.append_all()
        return True

    def append_all(self) -> None:
        """Append the records of all requests that wait, and answer them."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        self._bytes = 0
        broker = self._broker
        by_partition: dict[Partition, list[tuple[_Waiting, memoryview, int]]] = {}
        whole: list[_Waiting] = []
        for each in waiting:
            connection, repeated, frame, _, _ = each
            connection.waits_for_turn = False
            found = repeated.read(broker, memoryview(frame))
            if found is None:
                whole.append(each)
                continue
            partition, records, correlation_id = found
            entry = each, records, correlation_id
            if partition in by_partition:
                by_partition[partition].append(entry)
            else:
                by_partition[partition] = [entry]
        if len(waiting) < 2 * len(by_partition):
            self._skip = _SKIP
        now_ms = broker.clock.now_ms()
        for partition, entries in by_partition.items():
            requests = [(records, each[1].acks, each[1].version) for each, records, _ in entries]
            results = append_together(partition, requests, now_ms)
            for (each, _, correlation_id), result in zip(entries, results, strict=True):
                if result is None:
                    whole.append(each)
                    continue
                connection, repeated, _, received_at, counters = each
                response = repeated.response(partition, correlation_id, result)
                connection.answered_at_once(response, repeated.version, received_at, counters)
        for connection, _, frame, received_at, _ in whole:
            if not connection.closing:
                self._dispatch(connection, memoryview(frame), received_at)
