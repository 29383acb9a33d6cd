"""What the status says about each source topic."""

from __future__ import annotations

import json

from ottla.streams import StreamsBuilder
from ottla.streams.graph.draw import picture
from ottla.streams.status import _topics


def test_records_and_lag_of_each_topic() -> None:
    start = {"orders": {"0": 10, "1": 20}}
    end, latest = {"orders": {"0": 15, "1": 20}}, {"orders": {"0": 18, "1": 20}, "new": {"0": 5}}
    source = {"startOffset": json.dumps(start), "endOffset": end, "latestOffset": latest}
    assert _topics({"sources": [source]}) == {"orders": {"rows": 5, "lag": 3}}
    assert _topics({"sources": [{"startOffset": None, "endOffset": end}]}) == {
        "orders": {"rows": 0, "lag": 0}
    }


def test_a_topology_as_boxes_and_arrows() -> None:
    builder = StreamsBuilder()
    builder.stream("orders").to("copy")
    found = picture(builder.build())
    kinds = {box["label"]: box["kind"] for box in found["boxes"]}  # type: ignore[index]
    assert kinds["orders"] == kinds["copy"] == "topic"
    assert ["topic orders", "KSTREAM-SOURCE-0000000000"] in found["arrows"]
