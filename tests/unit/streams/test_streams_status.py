"""What the status says about each source topic."""

from __future__ import annotations

import json

from ottla.streams import StreamsBuilder
from ottla.streams.graph.draw import picture
from ottla.streams.status import _read, _topics


def test_records_and_lag_of_each_topic() -> None:
    start = {"orders": {"0": 10, "1": 20}}
    end, latest = {"orders": {"0": 15, "1": 20}}, {"orders": {"0": 18, "1": 20}, "new": {"0": 5}}
    source = {"startOffset": json.dumps(start), "endOffset": end, "latestOffset": latest}
    assert _topics({"sources": [source]}) == {"orders": {"rows": 5, "lag": 3}}
    assert _topics({"sources": [{"startOffset": None, "endOffset": end}]}) == {
        "orders": {"rows": 0, "lag": 0}
    }


def test_records_are_counted_by_offsets_where_the_source_runs_the_first_stage() -> None:
    source = {"startOffset": {"orders": {"0": 10}}, "endOffset": {"orders": {"0": 510}}}
    spark = {"numInputRows": 3, "processedRowsPerSecond": 6.0}
    assert _read({**spark, "durationMs": {"triggerExecution": 250}, "sources": [source]}) == (500, 2000.0)
    first = {"startOffset": None, "endOffset": {"orders": {"0": 510}}}
    assert _read({**spark, "durationMs": {"triggerExecution": 250}, "sources": [first]}) == (3, 6.0)


def test_a_topology_as_boxes_and_arrows() -> None:
    builder = StreamsBuilder()
    builder.stream("orders").to("copy")
    found = picture(builder.build())
    kinds = {box["label"]: box["kind"] for box in found["boxes"]}  # type: ignore[index]
    assert kinds["orders"] == kinds["copy"] == "topic"
    assert ["topic orders", "KSTREAM-SOURCE-0000000000"] in found["arrows"]
