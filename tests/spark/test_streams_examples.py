"""The applications of `examples/` on Spark, as `ottla streams run` loads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.streams import StreamsApp, StreamsSettings
from ottla.streams.loading import load_topology

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).parents[2] / "examples"

Run = Callable[[str, str], StreamsApp]


@pytest.fixture
def run(spark: Any, ottla_kafka: Any, tmp_path: Path) -> Run:
    """Runs an example under an application id until it has read all records."""

    def to_its_end(file: str, application_id: str) -> StreamsApp:
        settings = StreamsSettings(ottla_kafka.bootstrap, state_dir=tmp_path)
        app = StreamsApp(load_topology(EXAMPLES / file), application_id, settings)
        assert app.start(available_now=True).wait(timeout_s=400)
        return app

    return to_its_end


def as_json(records: list[dict[str, Any]], key: str | None = None) -> list[tuple[Any, bytes]]:
    return [(key, json.dumps(record).encode()) for record in records]


def output(kafka: Any, topic: str) -> dict[str, Any]:
    """The last value of each key."""
    return {one.key().decode(): one.value() for one in kafka.read(topic)}


def test_sensor_alerts(run: Run, ottla_kafka: Any) -> None:
    """A stream is joined with a table whose rows are objects of the example's own class."""
    for topic in ("limits", "readings", "alerts"):
        ottla_kafka.make(topic, 2)
    ottla_kafka.fill("limits", as_json([{"celsius": 30.0, "room": "attic"}], "s1"))
    ottla_kafka.fill("limits", as_json([{"celsius": 90.0, "room": "sauna"}], "s2"))
    app = run("sensor_alerts.py", "sensor-alerts")
    assert app.store("limits").get("s1").room == "attic"
    # The second run finds the limits in the state of the first.
    ottla_kafka.fill("readings", as_json([{"celsius": 29.0}, {"celsius": 31.5}], "s1"))
    ottla_kafka.fill("readings", as_json([{"celsius": 89.0}], "s2"))
    run("sensor_alerts.py", "sensor-alerts")
    found = [(one.key(), json.loads(one.value())) for one in ottla_kafka.read("alerts")]
    assert found == [(b"s1", {"room": "attic", "over": 1.5})]


def test_clickstream(run: Run, ottla_kafka: Any) -> None:
    from confluent_kafka import Producer

    for topic in ("clicks", "clicks-per-page"):
        ottla_kafka.make(topic, 2)
    producer = Producer({"bootstrap.servers": ottla_kafka.bootstrap})
    for time, page in ((1_000, "/"), (2_000, "/"), (9_999, "/about"), (10_000, "/"), (4_000, "/")):
        producer.produce("clicks", json.dumps({"page": page}), partition=0, timestamp=time)
    assert producer.flush(60) == 0
    app = run("clickstream.py", "clickstream")
    found = {
        key: json.loads(value)["clicks"] for key, value in output(ottla_kafka, "clicks-per-page").items()
    }
    assert found == {"/@0": 3, "/about@0": 1, "/@10000": 1}
    windows = app.store("clicks-per-page").get("/")
    assert {window.start: count for window, count in windows.items()} == {0: 3, 10_000: 1}


def test_a_kappa_replay(run: Run, ottla_kafka: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2 reads the log from its beginning while version 1 runs, and takes over without a lag."""
    for topic in ("orders", "revenue-v1", "revenue-v2"):
        ottla_kafka.make(topic, 2)

    def revenue(version: int) -> dict[str, int]:
        monkeypatch.setenv("VERSION", str(version))
        run("kappa_replay.py", f"revenue-v{version}")
        topic = f"revenue-v{version}"
        return {key: int.from_bytes(value, "big") for key, value in output(ottla_kafka, topic).items()}

    orders = [("cz", 100, False), ("at", 50, True), ("cz", 30, True), ("at", 7, False)]
    rows = [{"country": country, "cents": cents, "returned": returned} for country, cents, returned in orders]
    ottla_kafka.fill("orders", as_json(rows[:3]))
    assert revenue(1) == {"cz": 130, "at": 50}
    ottla_kafka.fill("orders", as_json(rows[3:]))
    assert revenue(2) == {"cz": 100, "at": 7}
    assert ottla_kafka.committed("revenue-v2", "orders") == ottla_kafka.ends("orders")
    assert ottla_kafka.committed("revenue-v1", "orders") != ottla_kafka.ends("orders")
