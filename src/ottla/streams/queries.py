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
    from pyspark.sql import DataFrame, SparkSession

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
        rows = self._entries().where(self._is_key(asked)).collect()
        if not rows:
            return None
        found = dict(self._shown(rows[0]))
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
        for row in sorted(self._entries().collect(), key=lambda row: bytes(row.name)):
            yield from self._shown(row)

    def range(self, first: Any, last: Any) -> Iterator[tuple[Any, Any]]:
        """Keys between two, both included, by their bytes."""
        from pyspark.sql import functions as f

        lowest, highest = self._keys.encode(first), self._keys.encode(last)
        chosen = self._entries().where((f.col("name") >= f.lit(lowest)) & (f.col("name") <= f.lit(highest)))
        for row in sorted(chosen.collect(), key=lambda row: bytes(row.name)):
            yield from self._shown(row)

    def _is_key(self, key: Any) -> Any:
        from pyspark.sql import functions as f

        return f.col("name") == f.lit(self._keys.encode(key))

    def _entries(self) -> DataFrame:
        try:
            return self._counts() if self._counted else self._variable()
        except Exception as problem:
            if _NOTHING_YET.search(str(problem)):
                raise StreamsError(f"the store {self._store.name} has no content yet") from None
            raise

    def _variable(self) -> DataFrame:
        from pyspark.sql import functions as f

        from ottla.streams.planner.stateful import state_name

        variable = state_name(self._store.name)
        reader = (
            self._spark.read.format("statestore")
            .option("operatorId", self._operator(variable))
            .option("stateVarName", variable)
        )
        frame = reader.load(self._checkpoint)
        return frame.select(
            f.col("user_map_key.key").alias("name"), f.col("user_map_value.value").alias("held")
        )

    def _counts(self) -> DataFrame:
        from pyspark.sql import functions as f

        frame = self._spark.read.format("statestore").load(self._checkpoint)
        held: Any = frame.schema["value"].dataType
        records = f.col("value").getField(held.names[0])
        return frame.where(f.col("key.store") == self._store.name).select(
            f.col("key.name").alias("name"), records.alias("held")
        )

    def _operator(self, variable: str) -> int:
        """Which of the query's stateful operators holds the store."""
        for row in self._spark.read.format("state-metadata").load(self._checkpoint).collect():
            told = json.loads(row.operatorProperties or "{}")
            if any(one.get("stateName") == variable for one in told.get("stateVariables", [])):
                return int(row.operatorId)
        raise StreamsError(f"the store {self._store.name} has no content yet")

    def _shown(self, row: Any) -> Iterator[tuple[Any, Any]]:
        key = self._keys.decode(bytes(row.name))
        if self._counted:
            yield key, row.held
            return
        held = pickle.loads(row.held)
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
