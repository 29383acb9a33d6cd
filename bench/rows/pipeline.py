"""The data pipeline: what its sink writes from Arrow on one core; word counts beside Kafka Streams and Quix Streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench import load, streams
from bench.context import Bench
from bench.load import Load
from bench.sheet import KAFKA, OTTLA
from bench.streams.measure import PARTITIONS, Engine, lines_a_second
from ottla.testing.maven import classpath

_SINK_PARTITIONS = 4
_QUIX = "quixstreams==3.28.1"
_LINES = {"full": 200_000, "quick": 40_000}
_SLOW_ENGINE = 10
"""Quix Streams gets a tenth of the lines, so as not to take ten times as long."""

_APPLICATION = """from ottla.streams import StreamsBuilder

b = StreamsBuilder()
(
    b.stream({source!r})
    .flat_map_values(lambda line: line.lower().split())
    .group_by(lambda _, word: word)
    .count()
    .to_stream()
    .to({target!r})
)
"""


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
    system = bench.systems[0]
    lines = _LINES.get(bench.scale.name, _LINES["quick"])
    for _ in bench.turns(1, [system]):
        for turn in range(bench.scale.few_rounds):
            names = ("spark", "java", "quix") if turn % 2 == 0 else ("quix", "java", "spark")
            for name in names:
                source = bench.topic(system, f"{name}-lines", PARTITIONS)
                target = bench.topic(system, f"{name}-counts", PARTITIONS)
                engine = _engine(bench, name, system.bootstrap, source, target)
                if engine is None:
                    continue
                wanted = lines // _SLOW_ENGINE if name == "quix" else lines
                rate = lines_a_second(system.bootstrap, source, target, engine, wanted // 4, wanted)
                bench.sheet.add(engine.name, row, "lines/s", "lines/s", rate, higher=True)
    bench.sheet.note(
        f"{row}: the column of Apache Kafka is Kafka Streams 4.3.1, in one process with two threads"
    )


def _engine(bench: Bench, name: str, bootstrap: str, source: str, target: str) -> Engine | None:
    """The program, and what its figures are filed under."""
    scratch = bench.directory / source
    scratch.mkdir(parents=True)
    arguments = [bootstrap, source, target, source, str(scratch / "state")]
    here = Path(streams.__file__).parent
    if name == "java":
        path = classpath("org.apache.kafka:kafka-streams:4.3.1")
        return Engine(KAFKA, ["java", "-cp", path, str(here / "WordCount.java"), *arguments], scratch / "log")
    if name == "quix":
        python = _quix(bench)
        return (
            Engine("quix", [python, str(here / "quix.py"), *arguments], scratch / "log") if python else None
        )
    file = scratch / "app.py"
    file.write_text(_APPLICATION.format(source=source, target=target))
    command = [
        *(sys.executable, "-m", "ottla", "streams", "run", str(file), "--application-id", source),
        *("--bootstrap-server", bootstrap, "--state-dir", str(scratch / "state")),
    ]
    return Engine(OTTLA, command, scratch / "log")


def _quix(bench: Bench) -> str | None:
    """A Python with Quix Streams in it, made for this run; None where it cannot be had."""
    home = bench.directory / "quix"
    python = home / "bin" / "python"
    if not python.exists():
        steps = (
            [sys.executable, "-m", "venv", str(home)],
            [str(python), "-m", "pip", "install", "-q", _QUIX],
        )
        for step in steps:
            if subprocess.run(step, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
                bench.sheet.note(f"word count: {_QUIX} could not be installed")
                return None
    return str(python)
