"""Applications as files, and the command that runs one: `ottla streams run`, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

COUNTS = """
from ottla.streams import StreamsBuilder


def words(line):
    return line.lower().split()


b = StreamsBuilder()
(
    b.stream({source!r})
    .flat_map_values(words)
    .group_by(lambda _, word: word)
    .count(store="counts")
    .to_stream()
    .to({target!r})
)
"""
"""Plain counts, which Spark's own aggregation keeps."""

TALLIES = """
from __future__ import annotations

from dataclasses import dataclass

from ottla.streams import StreamsBuilder


@dataclass
class Tally:
    seen: int = 0


def add(_, word, tally):
    return Tally(tally.seen + 1)


b = StreamsBuilder()
(
    b.stream({source!r})
    .flat_map_values(lambda line: line.lower().split())
    .group_by(lambda _, word: word)
    .aggregate(Tally, add, value_serde=Tally, store="counts")
    .to_stream()
    .map_values(lambda tally: tally.seen, value_serde=int)
    .to({target!r})
)
"""
"""The same counts with a function and a class of the application; a Python store has the state."""


def written(text: str, directory: Path, source: str, target: str) -> Path:
    file = directory / "app.py"
    file.write_text(text.format(source=source, target=target))
    return file


def run_command(file: Path, kafka: Any, application_id: str, state: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "ottla", "streams", "run", str(file), "--application-id", application_id),
        *("--bootstrap-server", kafka.bootstrap, "--state-dir", str(state)),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
        *("--conf", "spark.driver.memory=600m", "--conf", "spark.executor.memory=600m", *more),
    ]
