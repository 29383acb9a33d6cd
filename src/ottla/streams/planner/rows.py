"""Rows between stages: where a record goes next, its bytes, and its place in the order."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ottla.streams.graph.operators import Sink, Source
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.keys import decode_key, encode_key
from ottla.streams.records import Headers, Record
from ottla.streams.serdes import natural_serde


class HeaderRow(TypedDict):
    """A header as Arrow, pandas and Spark show it."""

    key: str
    value: bytes | None


AnyArray = npt.NDArray[Any]
"""An array of numbers, or of objects as pandas gives them."""

Columns = dict[str, AnyArray]
"""Rows as arrays by column name."""

HEADERS: Final = "array<struct<key:string,value:binary>>"
"""A record without headers has an empty list: nulls make the transfer from Spark to Python slow."""

COLUMNS: Final = (
    ("group", "int"),
    ("stage", "int"),
    ("dest", "int"),
    ("task", "int"),
    ("topic", "string"),
    ("key", "binary"),
    ("value", "binary"),
    ("time", "long"),
    ("headers", HEADERS),
    ("lane", "int"),
    ("place", "long"),
    ("sub", "int"),
    ("arrived", "long"),
)
"""Spark shuffles by `group`. `lane`, `place` and `sub` restore the order of records of one origin. `arrived` (the
latest time that was read there before) orders records of several origins."""

SCHEMA: Final = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)
NAMES: Final = tuple(name for name, _ in COLUMNS)


@dataclass(frozen=True, slots=True)
class Tasks:
    """The number of tasks, and the group by which Spark shuffles each."""

    count: int
    groups: tuple[int, ...]

    @classmethod
    def spread(cls, count: int, shuffle_partitions: int) -> Tasks:
        """Groups chosen so that Spark's own hash spreads the tasks evenly over its partitions."""
        groups: list[int] = []
        candidate = 0
        for task in range(count):
            while spark_hash(candidate) % shuffle_partitions != task % shuffle_partitions:
                candidate += 1
            groups.append(candidate)
            candidate += 1
        return cls(count, tuple(groups))


def spark_hash(value: int) -> int:
    """Spark's hash of one int column: Murmur3 with the seed 42."""
    k = value * 0xCC9E2D51 & 0xFFFFFFFF
    k = (k << 15 | k >> 17) & 0xFFFFFFFF
    k = k * 0x1B873593 & 0xFFFFFFFF
    h = 42 ^ k
    h = (h << 13 | h >> 19) & 0xFFFFFFFF
    h = (h * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    h ^= h >> 16
    h = h * 0x85EBCA6B & 0xFFFFFFFF
    h ^= h >> 13
    h = h * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h


def have_headers(batch: pa.RecordBatch) -> bool:
    """Whether any record of a batch has headers; the column may be missing."""
    return "headers" in batch.schema.names and len(batch.column("headers").flatten()) > 0


def by_partition(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """The parts of a batch, each with the records of one partition in their order."""
    topics = batch.column("topic").dictionary_encode()
    partitions = batch.column("partition").to_numpy()
    places = topics.indices.to_numpy().astype(np.int64) << 32 | partitions
    for place in np.unique(places).tolist():
        mine = places == place
        part = batch if mine.all() else batch.filter(pa.array(mine))
        yield topics.dictionary[place >> 32].as_py(), place & 0xFFFFFFFF, part


def read_headers(column_value: Sequence[HeaderRow] | None) -> Headers:
    """Headers as Arrow, pandas or Spark show them."""
    if column_value is None or len(column_value) == 0:
        return ()
    return tuple((header["key"], header["value"]) for header in column_value)


def sink_bytes(sink: Sink, record: Record) -> tuple[bytes | None, bytes | None]:
    """The bytes of key and value, as the sink's topic holds them."""
    key = (sink.key_serde or natural_serde).serialize(record.key)
    return key, (sink.value_serde or natural_serde).serialize(record.value)


def partition_bytes(sink: Sink, key: object) -> bytes | None:
    """The bytes whose hash chooses a task: those the repartition topic would hold."""
    return (sink.key_serde or natural_serde).serialize(key)


def pack(record: Record) -> tuple[bytes | None, bytes]:
    """Key and value of a record for another stage."""
    return None if record.key is None else encode_key(record.key), pickle.dumps(record.value, 5)


def unpack(key: bytes | None, value: bytes, time: int, headers: Sequence[HeaderRow] | None) -> Record:
    """The record that another stage packed."""
    return Record(None if key is None else decode_key(key), pickle.loads(value), time, read_headers(headers))


def arrival_order(lanes: AnyArray, places: AnyArray, subs: AnyArray, times: AnyArray) -> npt.NDArray[np.intp]:
    """The order in which Kafka Streams would take records of several partitions: each partition in its own
    order, and among them the one whose next record is the earliest."""
    order = np.lexsort((subs, places, lanes))
    if len(order) == 0 or (lanes[order[0]] == lanes[order[-1]]):
        return order
    sorted_lanes, heads = lanes[order], times[order].copy()
    starts = np.flatnonzero(np.r_[True, sorted_lanes[1:] != sorted_lanes[:-1]])
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        heads[start:end] = np.maximum.accumulate(heads[start:end])
    return order[np.argsort(heads, kind="stable")]


def is_raw(node: Node) -> bool:
    """Whether a row for this node holds bytes as they came from a topic."""
    return isinstance(node.operator, Source) and not node.operator.internal
