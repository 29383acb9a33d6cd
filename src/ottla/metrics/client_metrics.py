"""The metrics that clients send of themselves (KIP-714): kept for `/metrics/clients`, and forwarded as OTLP.

Counters arrive as what was added since the last push; the sums are kept here. Reading a push is work for a thread,
so that the store has a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.metrics.sinks import Labels
from ottla.wire.uuid import uuid_to_str

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    from ottla.broker.client_telemetry import Client
    from ottla.clock import Clock

MAX_CLIENTS: Final = 10_000
MAX_SERIES: Final = 1_000
"""Of one client; more are left out."""
MAX_ALL_SERIES: Final = 200_000
SILENT_S: Final = 900.0
"""A client that has sent nothing for this long is not shown any more."""
_MAX_LABEL: Final = 200
_DELTA: Final = 1
_GROUP_ATTRIBUTES: Final = ("group_id", "consumer_group", "group.id")


@dataclass(slots=True)
class _Series:
    labels: Labels
    kind: str
    value: float


@dataclass(slots=True)
class _Sender:
    at: float
    series: dict[tuple[str, str], _Series] = field(default_factory=dict)
    """By name and the text of the labels."""


class ClientMetrics:
    """What each client instance sent last."""

    def __init__(self, clock: Clock, forward: Callable[[bytes], None] | None = None) -> None:
        """`forward` takes a push with the client's attributes in it, as OTLP."""
        self._clock = clock
        self._forward = forward
        self._lock = threading.Lock()
        self._senders: dict[bytes, _Sender] = {}
        self._count = 0

    def receive(self, client: Client, data: bytes) -> None:
        """Read a push. Raises ValueError if it is no OTLP. Called in a thread."""
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

        pushed = MetricsData()
        try:
            pushed.ParseFromString(data)
        except DecodeError as error:
            raise ValueError(f"a client's metrics are no OTLP: {error}") from None
        self._keep(client, pushed)
        if self._forward is not None:
            for resource in pushed.resource_metrics:
                _add_attributes(resource.resource, client)
            self._forward(pushed.SerializeToString())

    def _keep(self, client: Client, pushed: MetricsData) -> None:
        own = (
            ("client_id", client.client_id[:_MAX_LABEL]),
            ("client_instance_id", uuid_to_str(client.instance_id)),
            ("client_software_name", client.software_name),
            ("client_software_version", client.software_version),
        )
        with self._lock:
            sender = self._senders.pop(client.instance_id, None) or _Sender(0.0)
            sender.at = self._clock.monotonic()
            self._senders[client.instance_id] = sender
            before = len(sender.series)
            for name, kind, delta, labels, value in _points(pushed, own):
                self._add(sender, name, kind, labels, value, delta=delta)
            self._count += len(sender.series) - before
            while len(self._senders) > MAX_CLIENTS or (
                self._count > MAX_ALL_SERIES and len(self._senders) > 1
            ):
                self._drop(next(iter(self._senders)))

    def _add(
        self, sender: _Sender, name: str, kind: str, labels: Labels, value: float, *, delta: bool
    ) -> None:
        key = (name, labels.text)
        series = sender.series.get(key)
        if series is None:
            if len(sender.series) < MAX_SERIES:
                sender.series[key] = _Series(labels, kind, value)
        elif delta:
            series.value += value
        else:
            series.value = value

    def _drop(self, instance_id: bytes) -> None:
        self._count -= len(self._senders.pop(instance_id).series)

    def text(self) -> bytes:
        """All of them in Prometheus' format. Called in a thread."""
        families: dict[str, tuple[str, list[str]]] = {}
        with self._lock:
            oldest = self._clock.monotonic() - SILENT_S
            for instance_id in [key for key, sender in self._senders.items() if sender.at < oldest]:
                self._drop(instance_id)
            for sender in self._senders.values():
                for (name, _), series in sender.series.items():
                    lines = families.setdefault(name, (series.kind, []))[1]
                    lines.append(f"{name}{series.labels.text} {series.value}")
        parts: list[str] = []
        for name, (kind, lines) in sorted(families.items()):
            parts += [f"# HELP {name} Sent by clients.", f"# TYPE {name} {kind}", *lines]
        return "\n".join([*parts, ""]).encode()


def _points(
    pushed: MetricsData, own: tuple[tuple[str, str], ...]
) -> Iterator[tuple[str, str, bool, Labels, float]]:
    """Name, type, whether it is an increase, labels and value of each number in a push."""
    for resource in pushed.resource_metrics:
        group = _group(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                if kind == "sum":
                    name = _name(metric.name, counter=metric.sum.is_monotonic)
                    shown = "counter" if metric.sum.is_monotonic else "gauge"
                    delta = metric.sum.aggregation_temporality == _DELTA
                    points = metric.sum.data_points
                elif kind == "gauge":
                    name, shown, delta, points = _name(metric.name), "gauge", False, metric.gauge.data_points
                else:
                    continue
                for point in points:
                    value = point.as_double if point.WhichOneof("value") == "as_double" else point.as_int
                    yield name, shown, delta, Labels(*own, *group, *_labels(point.attributes)), value


def _name(name: str, *, counter: bool = False) -> str:
    safe = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name[:_MAX_LABEL])
    if not safe or safe[0].isdigit():
        safe = f"_{safe}"
    return f"{safe}_total" if counter and not safe.endswith("_total") else safe


def _labels(attributes: Iterable[KeyValue]) -> list[tuple[str, str]]:
    found = {_name(each.key): _value(each.value) for each in attributes}
    return sorted(
        (name, value) for name, value in found.items() if name != "group" and not name.startswith("client_")
    )


def _group(attributes: Iterable[KeyValue]) -> tuple[tuple[str, str], ...]:
    for each in attributes:
        if each.key in _GROUP_ATTRIBUTES:
            return (("group", _value(each.value)),)
    return ()


def _value(value: AnyValue) -> str:
    kind = value.WhichOneof("value")
    return "" if kind is None else str(getattr(value, kind))[:_MAX_LABEL]


def _add_attributes(resource: Resource, client: Client) -> None:
    """Name the client in a push that is forwarded: its own data does not."""
    known = {each.key for each in resource.attributes}
    for key, value in client.attributes().items():
        if key not in known:
            added = resource.attributes.add()
            added.key = key
            added.value.string_value = value
