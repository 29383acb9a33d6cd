"""Small applications with the test driver: records in, results out."""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.streams import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    TopologyError,
    TopologyTestDriver,
    Window,
    Windowed,
    col,
    lit,
    session,
    struct,
    tumbling,
)
from ottla.streams.errors import ProcessingError, StreamsError

EXAMPLES = Path(__file__).parents[3] / "examples"


def example(name: str) -> StreamsBuilder:
    builder: StreamsBuilder = runpy.run_path(str(EXAMPLES / name))["b"]
    return builder


def pairs(driver: TopologyTestDriver, topic: str) -> list[tuple[object, object]]:
    return [(record.key, record.value) for record in driver.read_all(topic)]


def test_the_word_count_of_the_front_page() -> None:
    b = StreamsBuilder()
    (b.stream("lines").flat_map_values(lambda line: line.lower().split())
      .group_by(lambda _, word: word).count().to_stream().to("word-counts"))  # fmt: skip
    with TopologyTestDriver(b) as driver:
        driver.pipe_input("lines", "Hello Kafka")
        driver.pipe_input("lines", "hello again")
        assert pairs(driver, "word-counts") == [("hello", 1), ("kafka", 1), ("hello", 2), ("again", 1)]


def test_counts_are_written_as_kafkas_longs() -> None:
    with TopologyTestDriver(example("word_count.py")) as driver:
        driver.pipe_input("lines", "one")
        record = driver.read_output("word-counts", value_serde=bytes)
        assert record is not None
        assert record.value == (1).to_bytes(8, "big")


def test_clicks_are_counted_in_windows() -> None:
    with TopologyTestDriver(example("clickstream.py")) as driver:
        for time, page in ((1_000, "/"), (2_000, "/"), (9_999, "/about"), (10_000, "/"), (4_000, "/")):
            driver.pipe_input("clicks", {"page": page}, timestamp=time)
        assert pairs(driver, "clicks-per-page") == [
            ("/@0", {"clicks": 1}),
            ("/@0", {"clicks": 2}),
            ("/about@0", {"clicks": 1}),
            ("/@10000", {"clicks": 1}),
            ("/@0", {"clicks": 3}),
        ]
        driver.pipe_input("clicks", {"page": "/"}, timestamp=16_000)
        driver.pipe_input("clicks", {"page": "/"}, timestamp=4_000)
        assert pairs(driver, "clicks-per-page") == [("/@10000", {"clicks": 2})]
        window = driver.store("clicks-per-page").fetch("/", 10_000)
        assert window.value == 2


def test_a_reading_above_its_limit_is_an_alert() -> None:
    with TopologyTestDriver(example("sensor_alerts.py")) as driver:
        driver.pipe_input("readings", {"celsius": 99.0}, "s1")
        driver.pipe_input("limits", {"celsius": 30.0, "room": "attic"}, "s1")
        driver.pipe_input("readings", {"celsius": 29.0}, "s1")
        driver.pipe_input("readings", {"celsius": 31.5}, "s1")
        assert pairs(driver, "alerts") == [("s1", {"room": "attic", "over": 1.5})]


def test_a_second_version_reads_the_log_anew_and_takes_over() -> None:
    revenue = runpy.run_path(str(EXAMPLES / "kappa_replay.py"))["revenue"]
    log = [("cz", 100, False), ("at", 50, True), ("cz", 30, True), ("at", 7, False)]
    results = {}
    for version in (1, 2):
        with TopologyTestDriver(revenue(version)) as driver:
            for country, cents, returned in log:
                driver.pipe_input("orders", {"country": country, "cents": cents, "returned": returned})
            results[version] = dict(pairs(driver, f"revenue-v{version}"))
    assert results == {1: {"cz": 130, "at": 57}, 2: {"cz": 100, "at": 7}}


def test_expressions_stand_where_lambdas_stand() -> None:
    b = StreamsBuilder()
    (
        b.stream("orders", value_serde="json")
        .filter((col("value.amount") > 10) & col("value.country").isin("cz", "at"))
        .select_key(col("value.country").upper())
        .map_values(struct(total=col("value.amount") * 2, country=col("key"), kind=lit("order")))
        .to("large", value_serde="json")
    )
    with TopologyTestDriver(b) as driver:
        for amount, country in ((5, "cz"), (20, "cz"), (30, "de"), (40, "at"), (None, "cz")):
            driver.pipe_input("orders", {"amount": amount, "country": country})
        assert pairs(driver, "large") == [
            ("CZ", {"total": 40, "country": "CZ", "kind": "order"}),
            ("AT", {"total": 80, "country": "AT", "kind": "order"}),
        ]


def test_an_expression_refuses_to_be_a_condition() -> None:
    with pytest.raises(TopologyError, match="combine with &"):
        _ = col("value") == 1 and col("key") == 2


def test_dataclasses_are_read_and_written() -> None:
    @dataclass
    class Order:
        amount: int
        note: str = ""

    b = StreamsBuilder()
    b.stream("in", value_serde=Order).map_values(lambda order: Order(order.amount + 1, "more")).to(
        "out", value_serde=Order
    )
    with TopologyTestDriver(b) as driver:
        driver.pipe_input("in", b'{"amount": 4}')
        record = driver.read_output("out")
        assert record is not None
        assert record.value == Order(5, "more")
        with pytest.raises(StreamsError, match="cannot read"):
            driver.pipe_input("in", b'{"amount": "four"}')


def test_a_record_that_fails_stops_the_application_with_a_sentence() -> None:
    b = StreamsBuilder()
    b.stream("in").map_values(lambda text: int(text)).to("out")
    with (
        TopologyTestDriver(b) as driver,
        pytest.raises(ProcessingError, match="in-0 at offset 0 failed: ValueError"),
    ):
        driver.pipe_input("in", "no number")


def test_a_record_that_fails_is_skipped_where_asked() -> None:
    b = StreamsBuilder()
    b.stream("in", on_error="skip").map_values(lambda text: int(text)).to("out", value_serde=int)
    with TopologyTestDriver(b) as driver:
        driver.pipe_input("in", "no number")
        driver.pipe_input("in", "7")
        assert pairs(driver, "out") == [(None, 7)]


def test_a_record_that_fails_goes_to_the_dead_letters_with_the_reason() -> None:
    b = StreamsBuilder()
    b.stream("in", on_error="dead-letter", dead_letter_topic="dead").map_values(lambda text: int(text)).to(
        "out"
    )
    with TopologyTestDriver(b) as driver:
        driver.pipe_input("in", "no number", "k", timestamp=5, headers=(("trace", b"1"),))
        (letter,) = driver.read_all("dead")
        assert (letter.key, letter.value, letter.timestamp) == ("k", "no number", 5)
        headers = dict(letter.headers)
        assert headers["trace"] == b"1"
        assert headers["__streams.errors.exception"] == b"ValueError"
        assert headers["__streams.errors.topic"] == b"in"


def test_dead_letters_need_a_topic() -> None:
    with pytest.raises(TopologyError, match="dead_letter_topic"):
        StreamsBuilder().stream("in", on_error="dead-letter")


def test_time_comes_from_the_value_where_asked() -> None:
    b = StreamsBuilder()
    stream = b.stream("in", value_serde="json", timestamp=lambda value, _: value["at"])
    stream.group_by_key().windowed_by(tumbling(10)).count(store="counts")
    with TopologyTestDriver(b) as driver:
        driver.pipe_input("in", {"at": 25}, "k", timestamp=3)
        assert driver.store("counts").fetch("k", 20).value == 1
        driver.pipe_input("in", {"at": -1}, "k")
        assert len(driver.store("counts").all()) == 1


def test_a_topic_is_chosen_for_each_record() -> None:
    b = StreamsBuilder()
    b.stream("in").to(lambda _, value: f"out-{value}")
    with TopologyTestDriver(b) as driver:
        driver.pipe_input("in", "left")
        driver.pipe_input("in", "right")
        assert driver.output_topics() == ["out-left", "out-right"]


def test_headers_travel_along_and_can_be_changed() -> None:
    class Stamp(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_headers((*record.headers, ("seen", b"yes"))))

    b = StreamsBuilder()
    b.stream("in").process(Stamp).to("out")
    with TopologyTestDriver(b) as driver:
        driver.pipe_input("in", "v", headers=(("trace", b"7"),))
        (record,) = driver.read_all("out")
        assert record.headers == (("trace", b"7"), ("seen", b"yes"))


class Batcher(Processor):
    """Collects values and forwards them every ten seconds of the clock."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.waiting = context.store("waiting")
        context.schedule(10_000, PunctuationType.WALL_CLOCK_TIME, self.let_go)

    def process(self, record: Record) -> None:
        self.waiting.put(record.key, [*(self.waiting.get(record.key) or []), record.value])

    def let_go(self, now: int) -> None:
        for key, values in list(self.waiting.all()):
            self.context.forward(Record(key, ",".join(values), now))
            self.waiting.delete(key)


def test_a_processor_has_stores_and_timers() -> None:
    b = StreamsBuilder().add_state_store("waiting")
    b.stream("in").process(Batcher, stores=["waiting"]).to("out")
    with TopologyTestDriver(b) as driver:
        for value in "abc":
            driver.pipe_input("in", value, "k")
        driver.advance_time(9_000)
        assert driver.read_output("out") is None
        driver.advance_time(1_000)
        assert pairs(driver, "out") == [("k", "a,b,c")]
        assert len(driver.store("waiting")) == 0


def test_a_store_that_nobody_added_is_named() -> None:
    b = StreamsBuilder()
    b.stream("in").process(Batcher, stores=["waiting"]).to("out")
    with pytest.raises(TopologyError, match=r"waiting, but no add_state_store\(\) added it"):
        b.build()


def test_a_store_changes_only_when_it_is_told() -> None:
    b = StreamsBuilder()

    def append(_key: str, value: str, values: list[str]) -> list[str]:
        values.append(value)
        return values

    b.stream("in").group_by_key().aggregate(list, append, store="lists", value_serde="json")
    with TopologyTestDriver(b) as driver:
        driver.pipe_input("in", "a", "k")
        held = driver.store("lists").get("k").value
        held.append("not stored")
        driver.pipe_input("in", "b", "k")
        assert driver.store("lists").get("k").value == ["a", "b"]


def test_sessions_that_grow_together_are_one() -> None:
    b = StreamsBuilder()
    b.stream("in").group_by_key().windowed_by(session(10, grace=100)).count(store="visits").to_stream().to(
        "out"
    )
    with TopologyTestDriver(b) as driver:
        for time in (0, 20, 10):
            driver.pipe_input("in", "click", "u", timestamp=time)
        assert [(record.key, record.value) for record in driver.read_all("out")] == [
            (Windowed("u", Window(0, 0)), 1),
            (Windowed("u", Window(20, 20)), 1),
            (Windowed("u", Window(0, 0)), None),
            (Windowed("u", Window(20, 20)), None),
            (Windowed("u", Window(0, 20)), 3),
        ]


def test_internal_topics_have_the_names_that_kafka_streams_gives() -> None:
    topology = example("word_count.py").build()
    assert topology.repartition_topics("wc") == ["wc-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition"]
    assert topology.changelog_topics("wc") == ["wc-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog"]


def test_mistakes_in_a_topology_are_met_with_a_sentence() -> None:
    with pytest.raises(TopologyError, match="empty"):
        StreamsBuilder().build()
    b = StreamsBuilder()
    stream = b.stream("a")
    stream.group_by_key().count(store="s")
    with pytest.raises(TopologyError, match="two state stores are named s"):
        b.stream("b").group_by_key().count(store="s")
    with pytest.raises(TopologyError, match="already read"):
        b.table("a")
    with pytest.raises(TopologyError, match="within a window"):
        stream.join(b.stream("b"), lambda x, y: (x, y))
    with pytest.raises(TopologyError, match="merger"):
        stream.group_by_key().windowed_by(session(5)).aggregate("", lambda k, v, a: a)
    with pytest.raises(TopologyError, match=r"makes a new .* for every key"):
        stream.group_by_key().aggregate([], lambda k, v, a: a)
    with pytest.raises(TopologyError, match="at least 1 ms"):
        tumbling(0)


def test_a_driver_names_topics_and_stores_that_are_not_there() -> None:
    with TopologyTestDriver(example("word_count.py")) as driver:
        with pytest.raises(StreamsError, match="does not read words; it reads lines"):
            driver.pipe_input("words", "x")
        with pytest.raises(StreamsError, match="no state store counts"):
            driver.store("counts")
