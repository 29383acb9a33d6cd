"""The data pipeline: its sink and its reader on one core; counts and latency beside Kafka Streams and Quix Streams."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench import load, streams
from bench.context import Bench
from bench.load import Load
from bench.sheet import KAFKA, OTTLA
from bench.streams.measure import (
    PARTITIONS,
    Engine,
    Write,
    latencies_ms,
    records_a_second,
    write_clicks,
    write_lines,
)
from ottla.testing.maven import classpath

_SINK_PARTITIONS = 4
_READER_PARTITIONS = 4
_QUIX = "quixstreams==3.28.1"
_RECORDS = {"full": 400_000, "quick": 100_000}
"""Enough for several micro-batches: fewer records would measure a single batch."""

_SHORT_RUN = 200_000
"""So few that the engines' code is still being compiled."""

_SLOW_ENGINE = 10
"""Quix Streams gets a tenth of the records, so as not to take ten times as long."""

_LATENCY_RECORDS = 60

_APPLICATION = """from ottla.streams import JoinWindows, StreamsBuilder, col, tumbling

b = StreamsBuilder()
records = b.stream({source!r})
records{steps}.to({target!r})
"""


@dataclass(frozen=True, slots=True)
class _Topology:
    """The same work for each engine: steps of our DSL, a program for Kafka Streams, one for Quix Streams."""

    steps: str
    java: tuple[str, ...]
    quix: str | None = None
    options: tuple[str, ...] = ()


_WORDS = _Topology(
    ".flat_map_values(lambda line: line.lower().split()).group_by(lambda _, word: word).count().to_stream()",
    ("WordCount.java",),
    "quix.py",
)
_WINDOWS = _Topology(
    ".group_by_key().windowed_by(tumbling(10_000)).count().to_stream()",
    ("Topologies.java", "windows"),
    "quix_windows.py",
)
_UPPER = _Topology(
    '.filter(col("value").contains("a")).map_values(col("value").upper())',
    ("Topologies.java", "upper"),
    options=("--real-time",),
)
_KEYS = _Topology(".group_by_key().count().to_stream()", ("Topologies.java", "keys"))
_KEYS_LOW_LATENCY = replace(_KEYS, options=("--low-latency",))
_REDUCE = _Topology(
    ".group_by_key().reduce(lambda before, now: now).to_stream()", ("Topologies.java", "reduce")
)
_AGGREGATE = _Topology(
    ".group_by_key().aggregate(lambda: 0, lambda key, value, held: held + 1).to_stream()",
    ("Topologies.java", "aggregate"),
)
_JOIN = _Topology(
    ".join(records, lambda left, right: left + right, JoinWindows.of(10_000))",
    ("Topologies.java", "join"),
)
_LATENCY_ROWS = {
    "stream latency, no state": (_UPPER, ("spark", "java")),
    "stream latency, count": (_KEYS, ("spark", "java")),
    "stream latency, count, --low-latency": (_KEYS_LOW_LATENCY, ("spark",)),
    "stream latency, reduce": (_REDUCE, ("spark", "java")),
    "stream latency, aggregate": (_AGGREGATE, ("spark", "java")),
    "stream latency, join": (_JOIN, ("spark", "java")),
}


def sink(bench: Bench) -> None:
    """Columns of 100 B values with keys, encoded and written in transactions."""
    row = "sink from Arrow, 100 B"
    records = bench.scale.records(100) // 1_000_000 * 1_000_000 or 500_000
    for system in bench.turns(bench.scale.few_rounds):
        topic = bench.topic(system, "sink", _SINK_PARTITIONS)
        figures = load.run("sink", Load(system.bootstrap, topic, records, 100, _SINK_PARTITIONS))
        for name, value in figures.items():
            bench.sheet.add(system.name, row, name, "records/s", value, higher=True)
        load.delete_topic(system.bootstrap, topic)


def reader(bench: Bench) -> None:
    """A topic of 100 B records into Spark's rows on one core, by Ottla's reader and by Spark's own source."""
    row, system = "topic into Spark, 100 B, one core", bench.systems[0]
    records = bench.scale.records(100) // 1_000_000 * 1_000_000 or 500_000
    for _ in bench.turns(1, [system]):
        topic = bench.topic(system, "reader", _READER_PARTITIONS)
        plan = Load(system.bootstrap, topic, records, 100, _READER_PARTITIONS)
        load.run("produce", plan)
        for turn in range(bench.scale.few_rounds):
            kinds = [("read-with-ottla", OTTLA), ("read-with-spark", KAFKA)]
            for kind, name in kinds if turn % 2 == 0 else reversed(kinds):
                for figure, value in load.run(kind, plan).items():
                    bench.sheet.add(name, row, figure, "records/s", value, higher=True)
        load.delete_topic(system.bootstrap, topic)
    bench.sheet.note(f"{row}: the column of Apache Kafka is Spark's own Kafka source, on the same broker")


def word_count(bench: Bench) -> None:
    """Three engines, exactly once, on one and the same broker: ours if it is there."""
    row = "word count, exactly once, lines of 8 words"
    records = _RECORDS.get(bench.scale.name, _RECORDS["quick"])
    _side_by_side(bench, _WORDS, row, "lines/s", write_lines, records)


def windowed_count(bench: Bench) -> None:
    """Clicks of a thousand users in windows of ten seconds; ten times as many as lines, for they are as much faster."""
    row = "windowed count, exactly once, windows of 10 s"
    records = 10 * _RECORDS.get(bench.scale.name, _RECORDS["quick"])
    _side_by_side(bench, _WINDOWS, row, "events/s", write_clicks, records)
    short = f"{row}, runs of {_SHORT_RUN:,}"
    _side_by_side(bench, _WINDOWS, short, "events/s", write_clicks, _SHORT_RUN, ("spark", "java"))


def stream_latency(bench: Bench) -> None:
    """One record at a time: without state (at least once), and through state of four kinds (exactly once)."""
    system = bench.systems[0]
    for _ in bench.turns(1, [system]):
        for row, (topology, names) in _LATENCY_ROWS.items():
            for name in names:
                source = bench.topic(system, f"{name}-in", PARTITIONS)
                target = bench.topic(system, f"{name}-out", PARTITIONS)
                engine = _engine(bench, topology, name, system.bootstrap, source, target)
                if engine is not None:
                    took = latencies_ms(system.bootstrap, source, target, engine, _LATENCY_RECORDS)
                    bench.sheet.add(engine.name, row, "p50", "ms", median(took), higher=False)
                    worst = sorted(took)[int(len(took) * 0.99)]
                    bench.sheet.add(engine.name, row, "p99", "ms", worst, higher=False)
    bench.sheet.note("stream latency: ours without state runs in Spark's real-time mode")


def _side_by_side(
    bench: Bench,
    topology: _Topology,
    row: str,
    unit: str,
    write: Write,
    records: int,
    engines: tuple[str, ...] = ("spark", "java", "quix"),
) -> None:
    system = bench.systems[0]
    for _ in bench.turns(1, [system]):
        for turn in range(bench.scale.few_rounds):
            # Quix Streams is so much slower that one turn is enough.
            names = engines if turn % 2 == 0 else ("java", "spark")
            for name in names:
                source = bench.topic(system, f"{name}-in", PARTITIONS)
                target = bench.topic(system, f"{name}-out", PARTITIONS)
                engine = _engine(bench, topology, name, system.bootstrap, source, target)
                if engine is None:
                    continue
                wanted = records // _SLOW_ENGINE if name == "quix" else records
                rate = records_a_second(system.bootstrap, source, target, engine, write, wanted // 4, wanted)
                bench.sheet.add(engine.name, row, unit, unit, rate, higher=True)
    bench.sheet.note(
        f"{row}: the column of Apache Kafka is Kafka Streams 4.3.1, in one process with two threads"
    )


def _engine(
    bench: Bench, topology: _Topology, name: str, bootstrap: str, source: str, target: str
) -> Engine | None:
    """Return the program, and the name for its figures."""
    scratch = bench.directory / source
    scratch.mkdir(parents=True)
    arguments = [bootstrap, source, target, source, str(scratch / "state")]
    here = Path(streams.__file__).parent
    if name == "java":
        path = classpath("org.apache.kafka:kafka-streams:4.3.1")
        command = ["java", "-cp", path, str(here / topology.java[0]), *arguments, *topology.java[1:]]
        return Engine(KAFKA, command, scratch / "log")
    if name == "quix":
        python = _quix(bench)
        if python is None or topology.quix is None:
            return None
        return Engine("quix", [python, str(here / topology.quix), *arguments], scratch / "log")
    file = scratch / "app.py"
    file.write_text(_APPLICATION.format(source=source, target=target, steps=topology.steps))
    command = [
        *(sys.executable, "-m", "ottla", "streams", "run", str(file), "--application-id", source),
        *("--bootstrap-server", bootstrap, "--state-dir", str(scratch / "state"), *topology.options),
    ]
    return Engine(OTTLA, command, scratch / "log")


def _quix(bench: Bench) -> str | None:
    """Create a Python environment with Quix Streams for this run; None if that fails."""
    home = bench.directory / "quix"
    python = home / "bin" / "python"
    if not python.exists():
        steps = (
            [sys.executable, "-m", "venv", str(home)],
            [str(python), "-m", "pip", "install", "-q", _QUIX],
        )
        for step in steps:
            if subprocess.run(step, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
                bench.sheet.note(f"{_QUIX} could not be installed")
                return None
    return str(python)
