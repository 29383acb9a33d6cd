"""An application reads with Ottla's reader or with Spark's: the same records, and both continue one checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.streams import StreamsBuilder, tumbling
from ottla.streams.runner import StreamsApp
from ottla.streams.settings import StreamsSettings
from spark.killing import children_of, watcher

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

READERS = ("spark", "ottla", "spark")
START_MS = 1_700_000_000_000


def fill(kafka: Any, topic: str, turn: int) -> Counter[tuple[Any, ...]]:
    """Writes a committed transaction and an aborted one; returns what is committed."""
    committed: Counter[tuple[Any, ...]] = Counter()
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "compression.type": "lz4"}
    )
    producer.init_transactions(60)
    for commit in (True, False):
        producer.begin_transaction()
        for number in range(40):
            key = None if number % 9 == 0 else b"k%d" % (number % 10)
            headers = [("turn", b"%d" % turn), ("none", None)] if number % 4 == 0 else None
            time = START_MS + turn * 10_000 + number
            value = b"%d-%d-%s" % (turn, number, b"yes" if commit else b"no")
            producer.produce(topic, value, key, partition=number % 2, timestamp=time, headers=headers)
            if commit:
                committed[key, value, time, tuple(headers or ())] += 1
        if commit:
            producer.commit_transaction(60)
        else:
            producer.flush(60)
            producer.abort_transaction(60)
    return committed


@pytest.mark.parametrize("state", ["none", "windows"])
def test_both_readers_see_the_same_and_go_on_from_one_checkpoint(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path, state: str
) -> None:
    source, target = ottla_kafka.make(name("in"), 2), ottla_kafka.make(name("out"), 2)
    b = StreamsBuilder()
    if state == "none":
        b.stream(source).map_values(lambda value: value).to(target)
    else:
        counts = b.stream(source).group_by_key().windowed_by(tumbling(10_000)).count()
        counts.to_stream().map_values(str).to(target)
    topology = b.build()
    written: Counter[tuple[Any, ...]] = Counter()
    for turn, reader in enumerate(READERS):
        written += fill(ottla_kafka, source, turn)
        settings = StreamsSettings(
            ottla_kafka.bootstrap,
            state_dir=tmp_path,
            fused_reader=reader == "ottla",
            max_offsets_per_batch=50,
        )
        app = StreamsApp(topology, name("app"), settings)
        assert app.start(available_now=True).wait(timeout_s=300)
        sources = app.query.lastProgress["sources"] if app.query is not None else []
        assert [("PythonMicroBatchStream" in str(one["description"])) for one in sources] == [
            reader == "ottla"
        ]
    found = ottla_kafka.read(target)
    if state == "none":
        assert written == Counter(
            (one.key(), one.value(), one.timestamp()[1], tuple(one.headers() or ())) for one in found
        )
    else:
        # A key is in one partition only, so the last record of a key and window has its count.
        expected = Counter(
            key + (time // 10_000 * 10_000).to_bytes(8, "big")
            for key, _, time, _ in written.elements()
            if key
        )
        assert {one.key(): int(one.value()) for one in found} == expected
    assert ottla_kafka.committed(name("app"), source) == ottla_kafka.ends(source)


def planners() -> list[int]:
    """The processes of this session that plan what a stream of ours reads; they belong to the driver."""
    found, known = [], [os.getpid()]
    while known:
        children = children_of(known.pop())
        known += children
        for pid in children:
            with contextlib.suppress(OSError):
                if b"python_streaming_source_runner" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
    return found


def test_an_application_outlives_the_process_that_plans_its_reads(
    spark: Any, ottla_kafka: Any, name: Any, tmp_path: Path
) -> None:
    source, target = ottla_kafka.make(name("in")), ottla_kafka.make(name("out"))
    b = StreamsBuilder()
    b.stream(source).map_values(lambda value: value.upper()).to(target)
    others = set(planners())
    app = StreamsApp(b, name("app"), StreamsSettings(ottla_kafka.bootstrap, state_dir=tmp_path)).start()
    consumer = watcher(ottla_kafka.bootstrap, target, "read_committed")
    try:
        for text in ("before", "after"):
            ottla_kafka.fill(source, [(b"k", text.encode())])
            while (message := consumer.poll(0)) is None:
                assert not app.wait(timeout_s=0.5)
            assert message.value() == text.upper().encode()
            if text == "before":
                (planner,) = set(planners()) - others
                os.kill(planner, signal.SIGKILL)
    finally:
        consumer.close()
        app.stop()
    assert [one.value() for one in ottla_kafka.read(target)] == [b"BEFORE", b"AFTER"]
