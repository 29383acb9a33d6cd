"""The orders of Kafka's hash maps; the expected ones were printed by `TimelineHashMap` of Kafka 4.3.1."""

from __future__ import annotations

import pytest

from ottla.java_order import timeline_order, updated_timeline_order

_NUMBERS = [0, 919, 838, 757, 676, 595, 514]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (timeline_order, [0]),
        (timeline_order, [919, 0]),
        (timeline_order, [919, 676, 0, 757, 838]),
        (timeline_order, [595, 919, 0, 676, 757, 838]),
        (updated_timeline_order, [919, 0, 676, 757, 838]),
        (updated_timeline_order, [595, 919, 514, 0, 676, 757, 838]),
    ],
)
def test_names_have_the_order_of_a_timeline_hash_map(order, expected):
    names = [f"member-{number}" for number in _NUMBERS[: len(expected)]]
    assert order(names) == [f"member-{number}" for number in expected]
