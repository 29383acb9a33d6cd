"""The examples of plain Structured Streaming give the results that they describe."""

from __future__ import annotations

import importlib.util
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.java

EXAMPLE = Path(__file__).parents[2] / "examples" / "structured_streaming.py"
LINES = 300


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("structured_streaming", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lines(example: Any, spark: Any, ottla_kafka: Any, name: Any) -> Any:
    topic = ottla_kafka.make(name("lines"), 2)
    example.generate(ottla_kafka.bootstrap, topic, LINES)
    return example.read_lines(spark, ottla_kafka.bootstrap, topic)


def expected(example: Any) -> Counter[str]:
    chance = random.Random(1)
    return Counter(word for _ in range(LINES) for word in chance.choices(example.WORDS, k=8))


def run(writer: Any, tmp_path: Path) -> Any:
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    return query


def test_parquet(example: Any, spark: Any, lines: Any, tmp_path: Path) -> None:
    run(example.to_parquet(lines, str(tmp_path / "files")), tmp_path)
    table = spark.read.parquet(str(tmp_path / "files"))
    assert Counter(word for row in table.collect() for word in row.line.split(" ")) == expected(example)


def test_jdbc(example: Any, spark: Any, lines: Any, tmp_path: Path) -> None:
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", f"{tmp_path}/derby.log")
    url = f"jdbc:derby:{tmp_path}/words;create=true"
    run(example.to_jdbc(lines, url, "words", example.DERBY), tmp_path)
    rows = spark.read.jdbc(url, "words", properties={"driver": example.DERBY}).collect()
    last = {row.word: row.occurrences for row in sorted(rows, key=lambda row: row.batch)}
    assert last == expected(example)


def test_kafka(example: Any, ottla_kafka: Any, lines: Any, name: Any, tmp_path: Path) -> None:
    target = ottla_kafka.make(name("counts"), 2)
    run(example.to_kafka(lines, ottla_kafka.bootstrap, target), tmp_path)
    last = {one.key().decode(): int(one.value()) for one in ottla_kafka.read(target)}
    assert last == expected(example)


def test_console(example: Any, lines: Any, tmp_path: Path) -> None:
    """Spark's own process prints the result; the query's progress says that it has read all lines."""
    assert run(example.to_console(lines), tmp_path).lastProgress["numInputRows"] == LINES


def test_the_script_itself(
    example: Any, spark: Any, ottla_kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of its first lines: generate, then process a part with --once."""
    for topic in ("lines", "word-counts"):
        ottla_kafka.make(topic, 2)

    def script(*arguments: str) -> None:
        more = ("--bootstrap-server", ottla_kafka.bootstrap, "--checkpoints", str(tmp_path / "checkpoints"))
        monkeypatch.setattr("sys.argv", ["structured_streaming.py", *arguments, *more])
        example.main()

    script("generate", "--lines", str(LINES))
    script("kafka", "--once")
    script("parquet", "--once", "--path", str(tmp_path / "files"))
    assert {one.key().decode(): int(one.value()) for one in ottla_kafka.read("word-counts")} == expected(
        example
    )
    assert ottla_kafka.committed("structured-word-count", "lines") == ottla_kafka.ends("lines")
    assert spark.read.parquet(str(tmp_path / "files")).count() == LINES
