"""Reads the state stores of an application from outside: the state that Spark has committed last."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Generic, cast

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from ottla.streams.errors import StreamsError
from ottla.streams.graph.operators import Store, StoreKind
from ottla.streams.interpreter.keys import KeyCodec
from ottla.streams.planner.state import possible_buckets, read_bucket
from ottla.streams.planner.stateful_stage import state_name
from ottla.streams.records import ValueAndTimestamp, Window, Windowed
from ottla.streams.serdes import AnySerde, bool_serde, bytes_serde, float_serde, json_serde, long_serde
from ottla.streams.type_variables import K, Unknown, V

_NOTHING_YET: Final = re.compile(r"STDS_\w*UNAVAILABLE|STDS_FAILED_TO_READ|PATH_NOT_FOUND")
"""Spark's errors for a checkpoint in which no batch is finished."""

_READS: Final[dict[AnySerde | None, Callable[[str], Unknown]]] = {
    long_serde: int,
    float_serde: float,
    bool_serde: lambda text: text == "true",
    bytes_serde: str.encode,
    json_serde: json.loads,
}


class QueryableStore(Generic[K, V]):
    """A state store as of the last finished batch; `StreamsApp.store` makes one. Windowed stores have `Windowed` keys.

    ::

        counts = app.store("counts")
        counts.get("kafka")
        dict(counts.all())
    """

    def __init__(
        self, spark: SparkSession, checkpoint: Path | str, store: Store, *, counted: bool = False
    ) -> None:
        """`counted` says that Spark's own aggregation keeps the store."""
        if store.kind not in (StoreKind.KEY_VALUE, StoreKind.WINDOW, StoreKind.SESSION):
            raise StreamsError(
                f"the store {store.name} is for an operator's own use: it has no keys to look up"
            )
        self._spark = spark
        self._checkpoint = str(checkpoint)
        self._store = store
        self._counted = counted
        self._keys = KeyCodec(None if counted else store.key_serde)

    def get(self, key: object) -> Unknown:
        """The value of a key. In a windowed store: all windows of a key, or the one window of a Windowed key.

        ::

            app.store("counts").get("kafka")
        """
        inner = key.key if isinstance(key, Windowed) else key
        entries = self._entries(self._keys.encode(inner))
        if not entries:
            return None
        found = dict(self._shown(*entries[0]))
        if self._store.kind is StoreKind.KEY_VALUE:
            return next(iter(found.values()))
        return found.get(key) if isinstance(key, Windowed) else found

    def key_of(self, text: str) -> K:
        """The key that a text in a URL stands for, in the store's own type.

        ::

            app.store("counts-by-number").key_of("7")
        """
        read = _READS.get(self._store.key_serde)
        try:
            return cast("K", text if read is None else read(text))
        except ValueError:
            raise StreamsError(f"{text} is not a key of the store {self._store.name}") from None

    def all(self) -> Iterator[tuple[K, V]]:
        """All keys and values, in the order of the keys' bytes.

        ::

            dict(app.store("counts").all())
        """
        for name, held in self._entries():
            yield from self._shown(name, held)

    def range(self, first: K, last: K) -> Iterator[tuple[K, V]]:
        """The keys between two, both included, by their bytes.

        ::

            dict(app.store("counts").range("a", "c"))
        """
        lowest, highest = self._keys.encode(first), self._keys.encode(last)
        for name, held in self._entries():
            if lowest <= name <= highest:
                yield from self._shown(name, held)

    def _entries(self, name: bytes | None = None) -> list[tuple[bytes, bytes | int]]:
        """The entries of all keys, or of one, in the order of the keys' bytes."""
        try:
            found = self._counts(name) if self._counted else self._buckets(name)
        except Exception as problem:
            if _NOTHING_YET.search(str(problem)):
                raise StreamsError(f"the store {self._store.name} has no content yet") from None
            raise
        return sorted(found, key=lambda entry: entry[0])

    def _buckets(self, name: bytes | None) -> list[tuple[bytes, bytes | int]]:
        variable = state_name(self._store.name)
        reader = (
            self._spark.read.format("statestore")
            .option("operatorId", self._operator(variable))
            .option("stateVarName", variable)
        )
        frame = reader.load(self._checkpoint)
        if name is not None:
            frame = frame.where(f.col("user_map_key.bucket").isin(possible_buckets(name)))
        rows = frame.select(f.col("user_map_value.entries").alias("entries")).collect()
        buckets = (read_bucket(row.entries) for row in rows)
        return [entry for bucket in buckets for entry in bucket.items() if name is None or entry[0] == name]

    def _counts(self, name: bytes | None) -> list[tuple[bytes, bytes | int]]:
        frame = self._spark.read.format("statestore").load(self._checkpoint)
        held = cast("StructType", frame.schema["value"].dataType)
        records = f.col("value").getField(held.names[0])
        wanted = f.col("key.store") == self._store.name
        if name is not None:
            wanted &= f.col("key.name") == f.lit(name)
        rows = frame.where(wanted).select(f.col("key.name").alias("name"), records.alias("held")).collect()
        return [(bytes(row.name), row.held) for row in rows]

    def _operator(self, variable: str) -> int:
        """The number of the query's stateful operator that has the store."""
        for row in self._spark.read.format("state-metadata").load(self._checkpoint).collect():
            properties = json.loads(row.operatorProperties or "{}")
            if any(one.get("stateName") == variable for one in properties.get("stateVariables", [])):
                return int(row.operatorId)
        raise StreamsError(f"the store {self._store.name} has no content yet")

    def _shown(self, name: bytes, found: bytes | int) -> Iterator[tuple[Unknown, Unknown]]:
        key = self._keys.decode(name)
        if self._counted:
            yield key, found
            return
        assert isinstance(found, bytes)
        held = pickle.loads(found)
        match self._store.kind:
            case StoreKind.KEY_VALUE:
                yield key, held[0] if self._store.timestamped else held
            case StoreKind.SESSION:
                for (start, end), value in sorted(held.items()):
                    yield Windowed(key, Window(start, end)), value
            case _:
                for start, entry in sorted(held.items()):
                    for one in [entry] if isinstance(entry, ValueAndTimestamp) else entry:
                        yield Windowed(key, Window(start, start + self._store.window_ms)), one.value
