"""Clients that send their own metrics (KIP-714): librdkafka does it by itself once there is a subscription."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration.test_metrics_endpoint import Web, start
from ottla.testing.raw_client import RawClient
from ottla.wire import messages
from ottla.wire.enums import ConfigResourceType
from ottla.wire.uuid import ZERO_UUID

otlp = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2", reason="needs the extra otlp")

WAIT_S = 60


class Collector:
    """An OTLP collector that notes what is posted."""

    def __init__(self) -> None:
        posted: queue.Queue[tuple[str, str, bytes]] = queue.Queue()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                posted.put((self.path, self.headers.get("X-Key", ""), body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self.posted = posted
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def until(self, word: bytes) -> bytes:
        """The next message that contains the word."""
        deadline = time.monotonic() + WAIT_S
        while True:
            path, key, body = self.posted.get(timeout=max(deadline - time.monotonic(), 0.1))
            assert (path, key) == ("/v1/metrics", "opensesame")
            if word in body:
                return body


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Web]:
    settings = {
        "ottla.otlp.endpoint": collector.url,
        "ottla.otlp.headers": "X-Key=opensesame",
        "ottla.otlp.interval.ms": "1000",
        "telemetry.max.bytes": "100000",
    }
    data: Path = tmp_path_factory.mktemp("telemetry") / "data"
    web = start(data, **settings)
    yield web
    assert "opensesame" not in web.broker.log
    web.broker.stop()


def subscribe(client: RawClient, name: str, **configs: str) -> None:
    request = messages.IncrementalAlterConfigsRequest
    resource = request.AlterConfigsResource(
        resource_type=ConfigResourceType.CLIENT_METRICS,
        resource_name=name,
        configs=[
            request.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
            for key, value in configs.items()
        ],
    )
    (answer,) = client.ask(request(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer


def push(
    subscription: messages.GetTelemetrySubscriptionsResponse, **fields: object
) -> messages.PushTelemetryRequest:
    given = {
        "client_instance_id": subscription.client_instance_id,
        "subscription_id": subscription.subscription_id,
        "metrics": b"",
    }
    return messages.PushTelemetryRequest(**{**given, **fields})


def test_without_a_subscription_nothing_is_asked_for(web: Web) -> None:
    with RawClient(web.broker.host, web.broker.port) as client:
        answer = client.ask(messages.GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID), 0)
    assert answer.requested_metrics == []
    assert answer.client_instance_id != ZERO_UUID
    assert answer.telemetry_max_bytes == 100_000
    assert answer.push_interval_ms == 300_000
    assert answer.accepted_compression_types == [4, 3, 1, 2]


def test_pushes_are_checked_before_they_are_read(web: Web) -> None:
    with RawClient(web.broker.host, web.broker.port) as client:
        subscribe(client, "checked", metrics="*", interval_ms="100", match="client_id=nobody")
        answer = client.ask(messages.GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID), 0)
        ask = messages.GetTelemetrySubscriptionsRequest(client_instance_id=answer.client_instance_id)
        assert client.ask(ask, 0).error_code == 89  # too soon
        assert client.ask(push(answer, subscription_id=answer.subscription_id + 1), 0).error_code == 117
        assert client.ask(ask, 0).error_code == 0  # after that error a client may ask at once
        assert client.ask(push(answer, metrics=b"x" * 100_001), 0).error_code == 118
        last = push(answer, metrics=b"\xff\xff nonsense", terminating=True)
        assert client.ask(last, 0).error_code == 87
        assert client.ask(last, 0).error_code == 42  # there is none after the last


def test_librdkafka_sends_its_metrics_and_they_are_shown_and_forwarded(
    web: Web, collector: Collector
) -> None:
    with RawClient(web.broker.host, web.broker.port) as client:
        subscribe(
            client, "all", metrics="org.apache.kafka.producer", interval_ms="200", match="client_id=shop.*"
        )
    producer = Producer({"bootstrap.servers": web.broker.bootstrap, "client.id": "shop-1"})
    deadline = time.monotonic() + WAIT_S
    text = ""
    while "org_apache_kafka_producer" not in text and time.monotonic() < deadline:
        producer.produce("sold", b"x")
        producer.flush(10)
        producer.poll(0.2)
        text = web.get("/metrics/clients")[1].decode()
    line = next(line for line in text.splitlines() if line.startswith("org_apache_kafka_producer"))
    assert 'client_id="shop-1"' in line
    assert 'client_software_name="confluent-kafka-python"' in line
    forwarded = otlp.MetricsData()
    forwarded.ParseFromString(collector.until(b"org.apache.kafka.producer"))
    (resource,) = forwarded.resource_metrics
    attributes = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert attributes["client_id"] == "shop-1"
    producer.flush(10)
    assert web.metrics("topics=none")["ottla_telemetry_pushes_total"] >= 1


def test_the_nodes_own_metrics_go_to_the_collector(web: Web, collector: Collector) -> None:
    sent = otlp.MetricsData()
    sent.ParseFromString(collector.until(b"kafka_server_brokertopicmetrics_bytesin_total"))
    (resource,) = sent.resource_metrics
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert metrics["kafka_server_brokertopicmetrics_bytesin_total"].sum.is_monotonic
    assert metrics["kafka_controller_kafkacontroller_activecontrollercount"].gauge.data_points[0].as_int == 1
    total = metrics["kafka_network_requestmetrics_totaltimems"].histogram.data_points[0]
    assert total.count == sum(total.bucket_counts)
    assert len(total.bucket_counts) == len(total.explicit_bounds) + 1
