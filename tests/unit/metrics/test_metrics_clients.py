"""What clients send of themselves: sums are kept, hostile names stay text, and memory has a bound."""

import pytest

from ottla.broker.client_telemetry import Client
from ottla.metrics import client_metrics
from ottla.metrics.client_metrics import ClientMetrics
from ottla.testing.virtual_clock import VirtualClock

otlp = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2", reason="needs the extra otlp")


def client(number=1, client_id="shop"):
    return Client(bytes([number]) * 16, client_id, "lib", "1", "10.0.0.1", "1000", "User:a")


def push(name, value, *, delta=None, **attributes):
    data = otlp.MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = name
    if delta is None:
        point = metric.gauge.data_points.add()
    else:
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = 1 if delta else 2
        point = metric.sum.data_points.add()
    point.as_double = value
    for key, text in attributes.items():
        added = point.attributes.add()
        added.key, added.value.string_value = key, text
    return data.SerializeToString()


def samples(store):
    return [line for line in store.text().decode().splitlines() if line and not line.startswith("#")]


def test_increases_are_added_up_and_gauges_replaced():
    store = ClientMetrics(VirtualClock())
    for value in (1, 2):
        store.receive(client(), push("org.apache.kafka.sent", value, delta=True))
        store.receive(client(), push("org.apache.kafka.queue", value))
        store.receive(client(), push("org.apache.kafka.all", value, delta=False))
    values = {line.partition("{")[0]: line.rpartition(" ")[2] for line in samples(store)}
    assert values == {
        "org_apache_kafka_sent_total": "3.0",
        "org_apache_kafka_queue": "2.0",
        "org_apache_kafka_all_total": "2.0",
    }


def test_hostile_names_stay_text():
    store = ClientMetrics(VirtualClock())
    store.receive(
        client(client_id='x"} 9\n'), push('9"a{b}\n', 1, **{'k"=': 'v"\n', "group": "g", "client_id": "y"})
    )
    (line,) = samples(store)
    assert line.startswith('_9_a_b__{client_id="x\\"} 9\\n",')
    assert 'k__="v\\"\\n"' in line and "group=" not in line and '"y"' not in line


def test_what_is_no_otlp_is_refused():
    with pytest.raises(ValueError, match="no OTLP"):
        ClientMetrics(VirtualClock()).receive(client(), b"\xff\xff nonsense")


def test_clients_and_series_are_bounded_and_silent_clients_leave(monkeypatch):
    monkeypatch.setattr(client_metrics, "MAX_CLIENTS", 2)
    monkeypatch.setattr(client_metrics, "MAX_SERIES", 3)
    clock = VirtualClock()
    store = ClientMetrics(clock)
    for number in range(5):
        for series in range(5):
            store.receive(client(number), push(f"m{series}", 1))
    assert len(samples(store)) == 2 * 3
    clock.advance(client_metrics.SILENT_S + 1)
    assert samples(store) == []
