"""Requests, connections and the event loop of a node."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.counters import Histogram, ListenerCounters, RequestCounters
from ottla.errors import ErrorCode
from ottla.metrics import names
from ottla.metrics.families import Spelling
from ottla.metrics.rates import RecentCounts
from ottla.metrics.sinks import Labels, Sink
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from ottla.broker.services import Broker, Node
    from ottla.metrics.rates import Rates

_PARTS: Final = (
    (names.TOTAL_TIME, "total"),
    (names.QUEUE_TIME, "queue"),
    (names.LOCAL_TIME, "local"),
    (names.REMOTE_TIME, "remote"),
    (names.RESPONSE_QUEUE_TIME, "response_queue"),
    (names.SEND_TIME, "send"),
)
_ONE_LOOP: Final = ("networkProcessor", "0")
_NANOS: Final = 1_000_000_000
_MAX_QUOTA_ROWS: Final = 10_000
_MAX_SOFTWARE_ROWS: Final = 1_000
_SOFTWARE_LABELS: Final = {
    Spelling.KAFKA: ("clientSoftwareName", "clientSoftwareVersion"),
    Spelling.REPORTER: ("clientSoftwareName", "clientSoftwareVersion"),
    Spelling.CONFLUENT: ("client_software_name", "client_software_version"),
}


def api_name(key: int) -> str:
    """An API as Kafka's metrics name it: `FindCoordinator`."""
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))


class RequestMetrics:
    """Reads what listeners and dispatchers count."""

    def __init__(self, node: Node, rates: Rates) -> None:
        self._node = node
        self._rates = rates
        self._recent: dict[tuple[str, str], RecentCounts] = {}
        self._thread_time = time.thread_time
        self._loop_cpu_began = time.thread_time()
        self._began = node.clock.monotonic()

    def read(self, sink: Sink, broker: Broker | None) -> Iterator[None]:
        """All families, in slices. Call it on the event loop's thread: its CPU time is read here."""
        kinds = list(_kinds(self._node.counters.requests))
        sink.all(
            names.REQUESTS,
            [
                (Labels(("request", name), ("version", str(version))), count)
                for name, counters in kinds
                # Fetch counts beside its two kinds, as in Kafka.
                for version, count in enumerate(
                    map(sum, zip(*(one.versions for one in counters), strict=True))
                )
                if count
            ],
        )
        sink.all(names.ERRORS, _errors(kinds))
        yield
        for family, part in _PARTS:
            sink.times(family, self._times(kinds, part))
            yield
        self._idle(sink)
        self._connections(sink)
        self._waiting(sink, broker)
        self._quotas(sink)
        yield

    def _times(
        self, kinds: list[tuple[str, list[RequestCounters]]], part: str
    ) -> Iterator[tuple[Labels, list[int], list[int], float]]:
        now = self._node.clock.monotonic()
        for name, counters in kinds:
            histograms: list[Histogram] = [getattr(each, part) for each in counters]
            counts = [sum(steps) for steps in zip(*(each.counts for each in histograms), strict=True)]
            recent = self._recent.setdefault((name, part), RecentCounts(self._began)).of(counts, now)
            yield Labels(("request", name)), counts, recent, sum(each.sum_s for each in histograms)

    def _idle(self, sink: Sink) -> None:
        now = self._node.clock.monotonic()
        busy = self._rates.per_s("loop CPU", self._thread_time() - self._loop_cpu_began, now)
        idle = round(min(max(1.0 - busy, 0.0), 1.0), 4)
        sink.one(
            names.NETWORK_IDLE, idle, Labels(_ONE_LOOP) if sink.spelling is Spelling.CONFLUENT else Labels()
        )
        if sink.spelling is Spelling.REPORTER:
            idle_s = max(now - self._began - (self._thread_time() - self._loop_cpu_began), 0.0)
            sink.one(names.HANDLER_IDLE, int(idle_s * _NANOS))
        else:
            sink.one(names.HANDLER_IDLE, idle)
        sink.one(names.LOOP_BUSY, round(1 - idle, 4))

    def _connections(self, sink: Sink) -> None:
        now = self._node.clock.monotonic()
        listeners = [
            (Labels(("listener", name), _ONE_LOOP), each)
            for name, each in sorted(self._node.counters.listeners.items())
        ]
        sink.all(names.CONNECTIONS, [(labels, each.created - each.closed) for labels, each in listeners])
        sink.all(names.CONNECTIONS_CREATED, [(labels, each.created) for labels, each in listeners])
        sink.all(names.CONNECTIONS_CLOSED, [(labels, each.closed) for labels, each in listeners])
        rate = self._rates.per_s
        sink.all(
            names.CREATION_RATE,
            [
                (labels, round(rate(("created", labels.text), each.created, now), 4))
                for labels, each in listeners
            ],
        )
        sink.all(
            names.CLOSE_RATE,
            [
                (labels, round(rate(("closed", labels.text), each.closed, now), 4))
                for labels, each in listeners
            ],
        )
        sink.all(names.INCOMING_BYTES, [(labels, each.bytes_in) for labels, each in listeners])
        sink.all(names.OUTGOING_BYTES, [(labels, each.bytes_out) for labels, each in listeners])
        sink.all(names.RESPONSES, [(labels, each.responses) for labels, each in listeners])
        sink.all(names.CLIENT_SOFTWARE, _software(sink.spelling, self._node.counters.listeners))
        sink.all(
            names.ACCEPTOR_BLOCKED,
            [(Labels(("listener", name)), 0.0) for name in sorted(self._node.counters.listeners)],
        )

    def _quotas(self, sink: Sink) -> None:
        """What clients with a quota use, and how long they have to wait."""
        rates = list(self._node.quotas.rates(int(self._node.clock.monotonic() * 1000)))
        for quota, family in names.QUOTAS.items():
            rows = [
                (Labels(("user", user), ("client-id", client_id)), round(rate, 4), round(wait_ms, 3))
                for key, (user, client_id), rate, wait_ms in rates[:_MAX_QUOTA_ROWS]
                if key == quota
            ]
            if rows:
                sink.all(family, [(labels, rate) for labels, rate, _ in rows])
                sink.all(names.THROTTLE_TIMES[quota], [(labels, wait_ms) for labels, _, wait_ms in rows])

    def _waiting(self, sink: Sink, broker: Broker | None) -> None:
        gate = self._node.gate
        sink.one(names.REQUEST_QUEUE, gate.waiting)
        parked: dict[str, int] = {}
        for name, counters in _kinds(self._node.counters.requests):
            if len(counters) == 1:
                parked[name] = sum(each.taken - each.dropped - sum(each.versions) for each in counters)
        sink.one(names.RESPONSE_QUEUE, sum(parked.values()))
        sink.all(names.PARKED, [(Labels(("request", name)), count) for name, count in parked.items()])
        if broker is not None:
            waiting = broker.replicas.delayed_requests.count
            produce = min(parked.get("Produce", 0), waiting)
            rows = [
                (Labels(("delayedOperation", "Produce")), produce),
                (Labels(("delayedOperation", "Fetch")), waiting - produce),
            ]
            sink.all(names.DELAYED_OPERATIONS, rows)
            sink.all(names.PURGATORY_SIZE, rows)
        sink.one(names.GATE_WAITS, gate.waits)
        sink.one(names.GATE_SECONDS, round(gate.waited_s, 6))


def _software(spelling: Spelling, listeners: Mapping[str, ListenerCounters]) -> list[tuple[Labels, float]]:
    """Open connections by library. Clients choose these words, so that their number needs a limit."""
    of_name, of_version = _SOFTWARE_LABELS[spelling]
    return [
        (Labels((of_name, software), (of_version, version), ("listener", listener), _ONE_LOOP), count)
        for listener, counters in sorted(listeners.items())
        for (software, version), count in sorted(counters.software.items())[:_MAX_SOFTWARE_ROWS]
    ]


def _kinds(requests: Iterable[RequestCounters]) -> Iterator[tuple[str, list[RequestCounters]]]:
    """Each kind of request with its counters. As in Kafka, Fetch is shown by its kinds and as a whole."""
    for counters in requests:
        name = api_name(counters.key)
        if counters.follower is None:
            yield name, [counters]
        else:
            yield f"{name}Consumer", [counters]
            yield f"{name}Follower", [counters.follower]
            yield name, [counters, counters.follower]


def _errors(kinds: list[tuple[str, list[RequestCounters]]]) -> list[tuple[Labels, float]]:
    rows: list[tuple[Labels, float]] = []
    for name, counters in kinds:
        if len(counters) > 1:
            continue
        errors = counters[0].errors
        answered = sum(counters[0].versions)
        rows.append((Labels(("request", name), ("error", "NONE")), max(answered - sum(errors.values()), 0)))
        rows += [
            (Labels(("request", name), ("error", ErrorCode.of(code).name)), count)
            for code, count in sorted(errors.items())
        ]
    return rows
