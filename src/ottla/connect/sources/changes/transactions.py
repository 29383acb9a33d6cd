"""Transactions as Debezium shows them: a record at each beginning and end, and the order of the changes between.

Changes are counted while the log is read. A transaction that is read again from its beginning, because a part of it is
in Kafka already, is counted again from its beginning, so its numbers are the same in every run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ottla.connect.data import schema as schemas
from ottla.connect.data.java_text import java_keys
from ottla.connect.data.record import SourceRecord
from ottla.connect.data.schema import ConnectValue, Struct

BLOCK: Final = schemas.struct(
    [("id", schemas.STRING), ("total_order", schemas.INT64), ("data_collection_order", schemas.INT64)],
    optional=True,
    name="event.block",
    version=1,
)
"""The block `transaction` of a change."""
_KEY: Final = schemas.struct(
    [("id", schemas.STRING)], name="io.debezium.connector.common.TransactionMetadataKey", version=1
)
_COLLECTION: Final = schemas.struct(
    [("data_collection", schemas.STRING), ("event_count", schemas.INT64)],
    optional=True,
    name="event.collection",
    version=1,
)
_VALUE: Final = schemas.struct(
    [
        ("status", schemas.STRING),
        ("id", schemas.STRING),
        ("event_count", schemas.optional(schemas.INT64)),
        ("data_collections", schemas.array(_COLLECTION, optional=True)),
        ("ts_ms", schemas.INT64),
    ],
    name="io.debezium.connector.common.TransactionMetadataValue",
    version=1,
)


@dataclass(frozen=True, slots=True)
class Order:
    """Where a change is in its transaction: its number there, and among those of its table."""

    transaction: str
    total: int
    table: int

    def block(self, second: bool) -> Struct:
        """The block of the change, or of the second one of a changed key."""
        return Struct.of_values(BLOCK, [self.transaction, self.total + second, self.table + second])


@dataclass(frozen=True, slots=True)
class Mark:
    """A transaction begins, or ends with so many changes of each table."""

    id: str
    at_ms: int
    counts: dict[str, int] | None

    def record(self, topic: str) -> SourceRecord:
        """The record of the topic of transactions."""
        total: ConnectValue = None
        collections: ConnectValue = None
        if self.counts is not None:
            total = sum(self.counts.values())
            names = java_keys({**self.counts})
            collections = [Struct.of_values(_COLLECTION, [name, self.counts[name]]) for name in names]
        status = "BEGIN" if self.counts is None else "END"
        value = Struct.of_values(_VALUE, [status, self.id, total, collections, self.at_ms])
        return SourceRecord(topic, value, _VALUE, Struct.of_values(_KEY, [self.id]), _KEY)


@dataclass(slots=True)
class Counter:
    """Counts the changes of the transaction that is being read; without changes it has no records."""

    counts: dict[str, int] = field(default_factory=dict)

    def count(self, transaction: str, table: str, changes: int) -> Order:
        """The place of the next change, which is the first one of two if a row's key was changed."""
        at = Order(transaction, sum(self.counts.values()) + 1, self.counts.get(table, 0) + 1)
        self.counts[table] = self.counts.get(table, 0) + changes
        return at

    def end(self) -> dict[str, int]:
        """The counts of a transaction that ends; the next one begins with none."""
        counts, self.counts = self.counts, {}
        return counts
