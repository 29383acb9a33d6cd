"""`from_avro` on Spark itself with one core (local[1]): a query that reads records and gives their columns to nobody.

The whole query counts: Spark reads the records from a file; it hands them to Python and takes columns back, or its own
reader makes columns of them.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.context import Bench
from bench.sheet import OTTLA
from ottla.json_types import Json, JsonObject
from ottla.schemas import Registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DRAWN: Final = 50_000
_WARM: Final = 3
_RUNS: Final = 6


def from_avro_row(bench: Bench, row: str, registry: Registry, schema: JsonObject) -> None:
    """Records a second of both engines by the clock, and a second of CPU of Spark's two processes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ottla.pipeline.jars import SPARK_AVRO
    from ottla.pipeline.session import spark_session
    from ottla.schemas.spark import Engine, from_avro

    count = 20 * _DRAWN if bench.scale.name == "full" else 4 * _DRAWN
    serde = registry.avro("spark-value", schema)
    drawn = random.Random(19)
    records = pa.array([serde.serialize("spark", [], _order(drawn)) for _ in range(_DRAWN)], pa.binary())
    file = str(bench.directory / "orders.parquet")
    pq.write_table(pa.table({"value": pa.chunked_array([records] * (count // _DRAWN))}), file)
    settings = {"spark.ui.enabled": "false"}
    spark = spark_session("bench", master="local[1]", settings=settings, packages=[SPARK_AVRO])
    engines: tuple[Engine, ...] = ("python", "jvm")
    try:
        for engine in engines:
            read = from_avro("value", registry, "spark-value", engine=engine)
            clock, cpu = _measured(spark.read.parquet(file).select(read.alias("order")))
            name = "from_avro on Spark, one core" + (", engine jvm" if engine == "jvm" else "")
            bench.sheet.add(OTTLA, row, name, "records/s", count / clock, higher=True)
            bench.sheet.add(OTTLA, row, f"{name}, a CPU second", "records/s", count / cpu, higher=True)
    finally:
        spark.stop()


def _measured(query: DataFrame) -> tuple[float, float]:
    """The median time of a warm query, and of its CPU time."""
    clocks, cpus = [], []
    for turn in range(_WARM + _RUNS):
        cpu, clock = _children_cpu_s(), time.monotonic()
        query.write.format("noop").mode("overwrite").save()
        if turn >= _WARM:
            clocks.append(time.monotonic() - clock)
            cpus.append(_children_cpu_s() - cpu)
    return median(clocks), median(cpus)


def _order(drawn: random.Random) -> dict[str, Json]:
    return {
        "id": drawn.randrange(10**9),
        "item": drawn.choice(["apples", "pears", "plums and cherries"]),
        "quantity": drawn.randrange(200),
        "price": drawn.random() * 100,
        "customer": drawn.choice([None, "ann", "bob"]),
        "tags": [drawn.choice("abcdef") * drawn.randrange(1, 9) for _ in range(drawn.randrange(4))],
    }


def _children_cpu_s() -> float:
    """CPU time of the processes below this one: Spark's and its Python workers'; idle servers add nothing."""
    below: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            below.setdefault(int(fields[1]), []).append(int(folder.name))
            # Its own, and that of children that have ended.
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    total, left = 0, [os.getpid()]
    while left:
        for pid in below.get(left.pop(), ()):
            total += ticks[pid]
            left.append(pid)
    return total / os.sysconf("SC_CLK_TCK")
