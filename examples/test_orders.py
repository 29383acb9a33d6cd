"""A test with a broker of its own: `pytest examples/test_orders.py`. The fixtures come with the package."""

from __future__ import annotations

import json

from ottla import KafkaConsumer, KafkaProducer
from ottla.testing import BrokerProcess


def place_order(bootstrap: str, item: str) -> None:
    """The code under test."""
    with KafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        producer.send("orders", json.dumps({"item": item}).encode())


def orders(bootstrap: str, count: int) -> list[str]:
    with KafkaConsumer(
        "orders", bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    ) as consumer:
        return [json.loads(next(consumer).value)["item"] for _ in range(count)]


def test_an_order_is_stored(ottla_broker: BrokerProcess) -> None:
    place_order(ottla_broker.bootstrap, "coffee")
    assert orders(ottla_broker.bootstrap, 1) == ["coffee"]


def test_orders_survive_a_crash(ottla_broker: BrokerProcess) -> None:
    place_order(ottla_broker.bootstrap, "coffee")
    ottla_broker.kill()
    ottla_broker.start()
    place_order(ottla_broker.bootstrap, "cake")
    assert orders(ottla_broker.bootstrap, 2) == ["coffee", "cake"]
