"""An application against a broker: topics in, topics out, state that outlives the process, mistakes with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.streams import StreamsBuilder, StreamsError, tumbling
from ottla.streams.app import Settings, StreamsApp, read_status, reset


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
    settings = Settings(ottla_kafka.bootstrap, state_dir=tmp_path)
    app = name("app")

    send(ottla_kafka, source, ["hello kafka", "hello spark", "hello hello"])
    first = StreamsApp(word_count(source, target), app, settings).start(available_now=True)
    assert first.wait(timeout_s=300)
    assert last_counts(ottla_kafka, target) == {b"hello": 4, b"kafka": 1, b"spark": 1}
    assert read_status(tmp_path / app)["batch"] is not None

    send(ottla_kafka, source, ["Spark again"])
    again = StreamsApp(word_count(source, target), app, settings).start(available_now=True)
    assert again.wait(timeout_s=300)
    assert last_counts(ottla_kafka, target) == {b"hello": 4, b"kafka": 1, b"spark": 2, b"again": 1}

    changed = StreamsBuilder()
    changed.stream(source).group_by_key().windowed_by(tumbling(10)).count(store="counts").to_stream().to(
        target
    )
    with pytest.raises(StreamsError, match="counts was a key-value store and is a window store now"):
        StreamsApp(changed, app, settings).start()

    done = reset(app, settings)
    assert len(done) == 2
    assert not (tmp_path / app).exists()


def test_a_topic_that_is_not_there_is_named(ottla_kafka: Any, tmp_path: Path) -> None:
    settings = Settings(ottla_kafka.bootstrap, state_dir=tmp_path)
    with pytest.raises(StreamsError, match="there is no topic nowhere"):
        StreamsApp(word_count("nowhere", "out"), "lost", settings).start()


def test_a_function_that_cannot_travel_is_named(tmp_path: Path) -> None:
    import threading

    lock = threading.Lock()
    b = StreamsBuilder()
    b.stream("a").map_values(lambda value: (lock, value)).to("b")
    with pytest.raises(StreamsError, match="KSTREAM-MAPVALUES-0000000001 cannot be sent"):
        StreamsApp(b, "locked", Settings("127.0.0.1:1", state_dir=tmp_path)).start()


def test_joined_topics_need_as_many_partitions(ottla_kafka: Any, name: Any, tmp_path: Path) -> None:
    one, two = ottla_kafka.make(name("one"), 2), ottla_kafka.make(name("two"), 3)
    b = StreamsBuilder()
    b.stream(one).join(b.table(two), lambda x, y: x + y).to(one + "-out")
    ottla_kafka.make(one + "-out", 1)
    with pytest.raises(StreamsError, match="as many partitions as each other"):
        StreamsApp(b, "uneven", Settings(ottla_kafka.bootstrap, state_dir=tmp_path)).start()
