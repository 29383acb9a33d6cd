"""An application with a broker: topics in, topics out, state that survives a restart, and clear errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.streams import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsError,
    tumbling,
)
from ottla.streams.reset import reset
from ottla.streams.runner import StreamsApp
from ottla.streams.settings import StreamsSettings
from ottla.streams.status import read_status, request_stop


def word_count(source: str, target: str) -> StreamsBuilder:
    b = StreamsBuilder()
    words = b.stream(source).flat_map_values(lambda line: line.lower().split())
    words.group_by(lambda _, word: word).count(store="counts").to_stream().to(target)
    return b


def last_counts(kafka: Any, topic: str) -> dict[bytes, int]:
    return {one.key(): int.from_bytes(one.value(), "big") for one in kafka.read(topic)}


def send(kafka: Any, topic: str, lines: list[str]) -> None:
    kafka.fill(topic, [(b"k%d" % (number % 3), line.encode()) for number, line in enumerate(lines)])


@pytest.mark.timeout(600)
def test_counts_go_on_where_they_stopped(spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path) -> None:
    source, target = ottla_kafka.make(name("lines"), 3), ottla_kafka.make(name("counts"), 2)
    settings = StreamsSettings(ottla_kafka.bootstrap, state_dir=tmp_path)
    app = name("app")

    send(ottla_kafka, source, ["hello kafka", "hello spark", "hello hello"])
    first = StreamsApp(word_count(source, target), app, settings).start(available_now=True)
    assert first.wait(timeout_s=300)
    assert last_counts(ottla_kafka, target) == {b"hello": 4, b"kafka": 1, b"spark": 1}
    assert read_status(tmp_path / app)["batch"] is not None
    assert first.store("counts").get("hello") == 4
    assert first.store("counts").get("nobody") is None
    assert list(first.store("counts").range("i", "t")) == [("kafka", 1), ("spark", 1)]
    with pytest.raises(StreamsError, match="no state store words; there are counts"):
        first.store("words")

    send(ottla_kafka, source, ["Spark again"])
    again = StreamsApp(word_count(source, target), app, settings).start(available_now=True)
    assert again.wait(timeout_s=300)
    assert last_counts(ottla_kafka, target) == {b"hello": 4, b"kafka": 1, b"spark": 2, b"again": 1}

    changed = StreamsBuilder()
    changed.stream(source).group_by_key().windowed_by(tumbling(10)).count(store="counts").to_stream().to(
        target
    )
    with pytest.raises(StreamsError, match="counts was a plain count store and is a window store now"):
        StreamsApp(changed, app, settings).start()

    done = reset(app, settings)
    assert len(done) == 2
    assert not (tmp_path / app).exists()


def test_a_topic_that_is_not_there_is_named(ottla_kafka: Any, tmp_path: Path) -> None:
    settings = StreamsSettings(ottla_kafka.bootstrap, state_dir=tmp_path)
    with pytest.raises(StreamsError, match="there is no topic nowhere"):
        StreamsApp(word_count("nowhere", "out"), "lost", settings).start()


def test_a_function_that_cannot_travel_is_named(tmp_path: Path) -> None:
    import threading

    lock = threading.Lock()
    b = StreamsBuilder()
    b.stream("a").map_values(lambda value: (lock, value)).to("b")
    with pytest.raises(StreamsError, match="KSTREAM-MAPVALUES-0000000001 cannot be sent"):
        StreamsApp(b, "locked", StreamsSettings("127.0.0.1:1", state_dir=tmp_path)).start()


def test_joined_topics_need_as_many_partitions(ottla_kafka: Any, name: Any, tmp_path: Path) -> None:
    one, two = ottla_kafka.make(name("one"), 2), ottla_kafka.make(name("two"), 3)
    b = StreamsBuilder()
    b.stream(one).join(b.table(two), lambda x, y: x + y).to(one + "-out")
    ottla_kafka.make(one + "-out", 1)
    with pytest.raises(StreamsError, match="the same number of partitions"):
        StreamsApp(b, "uneven", StreamsSettings(ottla_kafka.bootstrap, state_dir=tmp_path)).start()


@pytest.mark.timeout(600)
def test_a_function_that_fails_stops_the_application_with_its_reason(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    source, target = ottla_kafka.make(name("in"), 1), ottla_kafka.make(name("out"), 1)
    send(ottla_kafka, source, ["1", "two"])
    b = StreamsBuilder()
    b.stream(source).map_values(lambda text: int(text)).to(target)
    app = StreamsApp(b, name("app"), StreamsSettings(ottla_kafka.bootstrap, state_dir=tmp_path)).start(
        available_now=True
    )
    with pytest.raises(StreamsError, match=r"at offset 1 failed: ValueError: invalid literal"):
        app.wait(timeout_s=300)
    assert ottla_kafka.read(target) == []


class Ticker(Processor):
    """Counts records in a store, and forwards the count by the clock."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store = context.store("seen")
        context.schedule(200, PunctuationType.WALL_CLOCK_TIME, self.emit)

    def process(self, record: Record) -> None:
        self.store.put("seen", (self.store.get("seen") or 0) + 1)

    def emit(self, now: int) -> None:
        self.context.forward(Record("seen", self.store.get("seen") or 0, now))


@pytest.mark.timeout(600)
def test_a_processor_is_called_by_the_clock_and_stops_when_asked(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    from pyspark.cloudpickle import register_pickle_by_value

    register_pickle_by_value(sys.modules[__name__])
    source, target = ottla_kafka.make(name("in"), 1), ottla_kafka.make(name("out"), 1)
    send(ottla_kafka, source, ["a", "b", "c"])
    b = StreamsBuilder().add_state_store("seen")
    b.stream(source).process(Ticker, stores=["seen"]).to(target, key_serde=str, value_serde=int)
    app_id = name("app")
    app = StreamsApp(
        b, app_id, StreamsSettings(ottla_kafka.bootstrap, state_dir=tmp_path, trigger_ms=200)
    ).start()
    output: list[int] = []
    while not output:
        assert not app.wait(timeout_s=0.2)
        output = [int.from_bytes(one.value(), "big") for one in ottla_kafka.read(target)]
    assert output[-1] == 3
    request_stop(tmp_path / app_id)
    assert app.wait(timeout_s=120)
    assert read_status(tmp_path / app_id)["running"] is False


@pytest.mark.timeout(600)
def test_headers_and_times_come_through_a_join(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    stream, rows, target = (ottla_kafka.make(name(what), 2) for what in ("stream", "table", "out"))
    producer = Producer({"bootstrap.servers": ottla_kafka.bootstrap, "partitioner": "murmur2_random"})
    for number in range(20):
        key = f"k{number}"
        producer.produce(rows, key=key, value=f"row {number}", timestamp=1_000)
        headers = [("trace", b"%d" % number), ("empty", None)] if number % 2 else None
        producer.produce(stream, key=key, value="event", timestamp=2_000 + number, headers=headers)
    assert producer.flush(60) == 0
    b = StreamsBuilder()
    b.stream(stream).join(b.table(rows), lambda event, row: f"{event} of {row}").to(target)
    app = StreamsApp(b, name("app"), StreamsSettings(ottla_kafka.bootstrap, state_dir=tmp_path)).start(
        available_now=True
    )
    assert app.wait(timeout_s=300)
    found = {one.key(): one for one in ottla_kafka.read(target)}
    assert len(found) == 20
    for number in range(20):
        record = found[b"k%d" % number]
        assert record.value() == b"event of row %d" % number
        assert record.timestamp()[1] == 2_000 + number
        assert record.headers() == ([("trace", b"%d" % number), ("empty", None)] if number % 2 else None)
