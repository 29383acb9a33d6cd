"""Dead letters of the frameworks that people use."""

from __future__ import annotations

import struct

import pytest

from ottla.console.reader.letters import MARK, NAMES, as_it_was, letter

SPRING = [
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", struct.pack(">i", 2)),
    ("kafka_dlt-original-offset", struct.pack(">q", 77)),
    ("kafka_dlt-exception-fqcn", b"org.example.BadOrder"),
    ("kafka_dlt-exception-message", b"total 17 is below 0"),
]
STREAMS = [
    ("__streams.errors.topic", b"orders"),
    ("__streams.errors.partition", b"2"),
    ("__streams.errors.offset", b"77"),
    ("__streams.errors.exception", b"org.example.BadOrder"),
    ("__streams.errors.message", b"total 18 is below 0"),
]


@pytest.mark.parametrize("headers", [SPRING, STREAMS], ids=["Spring", "Streams"])
def test_where_it_came_from_and_why(headers):
    found = letter([("trace", b"1"), *headers])
    assert (found.topic, found.partition, found.offset) == ("orders", 2, 77)
    assert found.cause == "BadOrder: total # is below #"
    assert as_it_was([("trace", b"1"), *headers, (MARK, b"old")]) == [("trace", b"1")]


def test_damaged_headers_name_nothing():
    found = letter([("kafka_dlt-original-partition", b"xyz"), ("kafka_dlt-original-offset", None)])
    assert (found.topic, found.partition, found.offset) == ("", None, None)
    assert letter([("trace", b"1")]) is None


@pytest.mark.parametrize("name", ["orders-dlq", "orders.DLT", "dead-letters", "x_quarantine", "app.errors"])
def test_names_of_dead_letter_topics(name):
    assert NAMES.search(name)


@pytest.mark.parametrize("name", ["orders", "terrors", "dlqueue"])
def test_other_names(name):
    assert not NAMES.search(name)
