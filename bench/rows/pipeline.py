"""The data pipeline: what its sink writes from Arrow on one core; counts and latency beside Kafka Streams and Quix."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
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
_QUIX = "quixstreams==3.28.1"
_RECORDS = {"full": 400_000, "quick": 100_000}
"""Enough for several micro-batches: fewer records would measure a single batch."""

_SLOW_ENGINE = 10
"""Quix Streams gets a tenth of the records, so as not to take ten times as long."""

_LATENCY_RECORDS = 60

_APPLICATION = """from ottla.streams import StreamsBuilder, col, tumbling

b = StreamsBuilder()
b.stream({source!r}){steps}.to({target!r})
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


def stream_latency(bench: Bench) -> None:
    """One record at a time through a topology without state (at least once) and through a count (exactly once)."""
    system = bench.systems[0]
    for _ in bench.turns(1, [system]):
        for topology, row in ((_UPPER, "stream latency, no state"), (_KEYS, "stream latency, count")):
            for name in ("spark", "java"):
                source = bench.topic(system, f"{name}-in", PARTITIONS)
                target = bench.topic(system, f"{name}-out", PARTITIONS)
                engine = _engine(bench, topology, name, system.bootstrap, source, target)
                if engine is not None:
                    took = latencies_ms(system.bootstrap, source, target, engine, _LATENCY_RECORDS)
                    bench.sheet.add(engine.name, row, "p50", "ms", median(took), higher=False)
                    worst = sorted(took)[int(len(took) * 0.99)]
                    bench.sheet.add(engine.name, row, "p99", "ms", worst, higher=False)
    bench.sheet.note("stream latency: ours without state runs in Spark's real-time mode")


def _side_by_side(bench: Bench, topology: _Topology, row: str, unit: str, write: Write, records: int) -> None:
    system = bench.systems[0]
    for _ in bench.turns(1, [system]):
        for turn in range(bench.scale.few_rounds):
            # Quix Streams is so much slower that one turn is enough.
            names = ("spark", "java", "quix") if turn % 2 == 0 else ("java", "spark")
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
