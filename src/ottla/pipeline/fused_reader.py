"""A source that reads topics as `format("ottla")` does, and runs a step of the query in the task that reads.

A record then crosses from Python to the JVM once, as part of what the step makes of it. With a frame of records and
`mapInArrow` it would cross three times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.pipeline.decoding import TIME
from ottla.pipeline.reader import OttlaDataSource, TopicStreamReader
from ottla.pipeline.reader_options import FUSED_PREFIX, parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_COLUMNS: Final = ("topic", "partition", "offset", "key", "value", TIME)


def read_through(
    spark: SparkSession,
    name: str,
    options: Mapping[str, str],
    step: bytes,
    schema: str,
    *,
    with_headers: bool,
) -> DataFrame:
    """A streaming frame of what a step makes of topics; `schema` is that of the step's batches.

    `options` are those of `format("ottla")`. `step` is a pickled `Step`, with all that tasks cannot import. It gets
    batches with the columns topic, partition, offset, key, value, time (in ms) and, if asked for, headers; each batch
    has records of one partition, in order. `name` tells sources of one session apart.
    """
    made, columns = schema, (*_COLUMNS, "headers") if with_headers else _COLUMNS

    # A class of its own for each step: Spark pickles it by value, with what it refers to here.
    class FusedDataSource(OttlaDataSource):
        @classmethod
        def name(cls) -> str:
            return f"{FUSED_PREFIX}{name}"

        def schema(self) -> str:  # type: ignore[override]
            return made

        def streamReader(self, schema: StructType) -> TopicStreamReader:  # noqa: N802
            found = parse_options(self.options, streaming=True)
            return TopicStreamReader(replace(found, columns=columns), step)

    spark.dataSource.register(FusedDataSource)
    return spark.readStream.format(FusedDataSource.name()).options(**options).load()
