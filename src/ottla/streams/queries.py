"""Looking into an application's state stores from outside: what Spark has committed last."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.streams.errors import StreamsError
from ottla.streams.graph.operators import Store, StoreKind
from ottla.streams.interpreter.keys import KeyCodec
from ottla.streams.records import ValueAndTimestamp, Window, Windowed
from ottla.streams.serdes import bool_serde, bytes_serde, float_serde, json_serde, long_serde

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOTHING_YET: Final = re.compile(r"STDS_\w*UNAVAILABLE|STDS_FAILED_TO_READ|PATH_NOT_FOUND")
"""Spark's words for a checkpoint in which no batch is finished."""

_READS: Final[dict[Any, Callable[[str], Any]]] = {
    long_serde: int,
    float_serde: float,
    bool_serde: lambda text: text == "true",
    bytes_serde: str.encode,
    json_serde: json.loads,
}


class QueryableStore:
    """`get`, `range` and `all`, as of the last finished batch. Windowed stores are keyed by `Windowed` keys."""

    def __init__(
        self, spark: SparkSession, checkpoint: Path | str, store: Store, *, counted: bool = False
    ) -> None:
        """`counted`: the store is one that Spark's own aggregation keeps."""
        if store.kind not in (StoreKind.KEY_VALUE, StoreKind.WINDOW, StoreKind.SESSION):
            raise StreamsError(
                f"the store {store.name} is for an operator's own use: it has no keys to ask for"
            )
        self._spark = spark
        self._checkpoint = str(checkpoint)
        self._store = store
        self._counted = counted
        self._keys = KeyCodec(None if counted else store.key_serde)

    def get(self, key: Any) -> Any:
        """The value of a key; for windowed stores all windows of the key, or that of a Windowed key."""
        asked = key.key if isinstance(key, Windowed) else key
        entries = self._entries(self._keys.encode(asked))
        if not entries:
            return None
        found = dict(self._shown(*entries[0]))
        if self._store.kind is StoreKind.KEY_VALUE:
            return next(iter(found.values()))
        return found.get(key) if isinstance(key, Windowed) else found

    def key_of(self, text: str) -> Any:
        """A key as it stands in an address: of the store's own type."""
        read = _READS.get(self._store.key_serde)
        try:
            return text if read is None else read(text)
        except ValueError:
            raise StreamsError(f"{text} is no key of the store {self._store.name}") from None

    def all(self) -> Iterator[tuple[Any, Any]]:
        """Everything, in the order of the keys' bytes."""
        for name, held in self._entries():
            yield from self._shown(name, held)

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Keys between two, both included, by their bytes."""
        lowest, highest = self._keys.encode(first), self._keys.encode(last)
        for name, held in self._entries():
            if lowest <= name <= highest:
                yield from self._shown(name, held)

    def _entries(self, name: bytes | None = None) -> list[tuple[bytes, Any]]:
        """The bytes of all keys, or of one, and what is held under them, in the order of the bytes."""
        try:
            found = self._counts(name) if self._counted else self._buckets(name)
        except Exception as problem:
            if _NOTHING_YET.search(str(problem)):
                raise StreamsError(f"the store {self._store.name} has no content yet") from None
            raise
        return sorted(found, key=lambda entry: entry[0])

    def _buckets(self, name: bytes | None) -> list[tuple[bytes, Any]]:
        from pyspark.sql import functions as f

        from ottla.streams.planner.state import possible_buckets, read_bucket
        from ottla.streams.planner.stateful_stage import state_name

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

    def _counts(self, name: bytes | None) -> list[tuple[bytes, Any]]:
        from pyspark.sql import functions as f

        frame = self._spark.read.format("statestore").load(self._checkpoint)
        held: Any = frame.schema["value"].dataType
        records = f.col("value").getField(held.names[0])
        wanted = f.col("key.store") == self._store.name
        if name is not None:
            wanted &= f.col("key.name") == f.lit(name)
        rows = frame.where(wanted).select(f.col("key.name").alias("name"), records.alias("held")).collect()
        return [(bytes(row.name), row.held) for row in rows]

    def _operator(self, variable: str) -> int:
        """Which of the query's stateful operators holds the store."""
        for row in self._spark.read.format("state-metadata").load(self._checkpoint).collect():
            told = json.loads(row.operatorProperties or "{}")
            if any(one.get("stateName") == variable for one in told.get("stateVariables", [])):
                return int(row.operatorId)
        raise StreamsError(f"the store {self._store.name} has no content yet")

    def _shown(self, name: bytes, found: Any) -> Iterator[tuple[Any, Any]]:
        key = self._keys.decode(name)
        if self._counted:
            yield key, found
            return
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
