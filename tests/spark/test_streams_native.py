"""Expressions as Spark's own columns have the results of the interpreter."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from ottla.streams import StreamsBuilder, TopologyTestDriver, col, lit, struct
from ottla.streams.expressions import concat
from ottla.streams.planner.plan import Strategy
from ottla.streams.planner.query import build, plan_for_spark
from ottla.streams.planner.rows import Tasks
from spark.streams_batches import SCHEMA, Arrived, write_batches


def orders() -> StreamsBuilder:
    b = StreamsBuilder()
    (
        b.stream("in", value_serde="json")
        .filter((col("value.amount") > 10) | col("value.note").is_null())
        .filter_not(col("value.country").isin("de", "fr") & (col("timestamp") % 2 == 0))
        .select_key(concat(col("value.country").otherwise("?").upper(), "-", col("key")))
        .map_values(
            struct(
                total=col("value.amount") * 2 - 1,
                country=col("value.country"),
                half=col("value.amount") / 2,
                kind=lit("order"),
                size=col("value.note").length(),
                key=col("key"),
            )
        )
        .filter(col("value.total").is_not_null())
        .to("out", key_serde=str, value_serde="json")
    )
    return b


def texts() -> StreamsBuilder:
    b = StreamsBuilder()
    (
        b.stream("in")
        .filter(col("value").contains("a") & ~col("key").startswith("k1"))
        .map_values(col("value").trim().lower() + "!")
        .filter(col("value").length() < 90)
        .to("out")
    )
    return b


def untouched() -> StreamsBuilder:
    b = StreamsBuilder()
    b.stream("in", value_serde="json").filter(col("value.amount") >= 20).to("out", value_serde="json")
    return b


def records(seed: int) -> list[Arrived]:
    rng = random.Random(seed)
    found = []
    for offset in range(300):
        amount = rng.choice([None, 1, 10, 11, 25.5, 40, -3])
        order: dict[str, Any] = {"amount": amount, "country": rng.choice(["cz", "de", None])}
        if rng.random() < 0.5:
            order["note"] = rng.choice(["", "  Hé ", "gift"])
        found.append(Arrived("in", 0, offset, b"k%d" % rng.randrange(20), json.dumps(order).encode(), offset))
    return found


def by_value(data: bytes) -> str:
    """JSON with one kind of number and sorted names; other bytes as text."""
    try:
        return json.dumps(as_doubles(json.loads(data)), sort_keys=True)
    except ValueError:
        return data.decode()


@pytest.mark.parametrize("make", [orders, texts, untouched])
def test_columns_give_what_the_interpreter_gives(spark: Any, tmp_path: Path, make: Any) -> None:
    arrived = records(seed=3)
    write_batches(tmp_path / "in", [arrived])
    plan = plan_for_spark(make().build())
    assert plan.strategy is Strategy.NATIVE
    frame = build(spark.read.schema(SCHEMA).parquet(str(tmp_path / "in")), plan, Tasks.spread(1, 2))
    output = {
        (bytes(row.key), by_value(bytes(row.value)), round(row.timestamp.timestamp() * 1000))
        for row in frame.collect()
    }
    with TopologyTestDriver(make()) as driver:
        for one in arrived:
            driver.pipe_input("in", one.value, one.key, timestamp=one.time)
        expected = {
            (record.key, by_value(record.value), record.timestamp)
            for record in driver.read_all("out", key_serde=bytes, value_serde=bytes)
        }
    assert output == expected
    assert len(expected) > 20


def as_doubles(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_doubles(field) for name, field in value.items()}
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def test_a_lambda_stays_with_python() -> None:
    b = StreamsBuilder()
    b.stream("in").filter(lambda value: "a" in value).to("out")
    assert plan_for_spark(b.build()).strategy is Strategy.GENERAL
