"""Delta sink: records as rows of Delta tables, each once.

The offsets of a cycle are application transactions of its commit: one for each partition, whose version is the next
offset. Delta refuses a second commit with the same application's transaction, so an older run cannot append again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues
from ottla.connect.data.record import SinkRecord
from ottla.connect.failures import ConnectError, Retriable, TaskFailed
from ottla.connect.sinks.lake import TOPIC, LakeWriter, TableState, ends_of, widened
from ottla.connect.spi import Finding, Place, SinkConnector, SinkCycle, SinkWriter

_STORAGE: Final = "delta.storage."
_SHOWN: Final = 300
# Delta has no time of day: milliseconds since midnight, as a number.
_TYPES: Final = {pa.time32("ms"): pa.int32(), pa.timestamp("ms", "UTC"): pa.timestamp("us", "UTC")}


class DeltaSink(SinkConnector):
    """`ottla.connect.DeltaSink`; the keys of Databricks' connector are of its service and have no meaning here."""

    java_classes = ("ottla.connect.DeltaSink",)
    version = "0.1.0"
    extra = "delta"
    free_prefixes = (_STORAGE,)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Where the tables are, and what may be made."""
        return ConfigDef(
            [
                ConfigKey(
                    "delta.table",
                    importance="HIGH",
                    documentation="The folder or address of the table; ${topic} stands for the topic",
                ),
                ConfigKey("delta.auto.create", "BOOLEAN", True, documentation="Make tables that are missing"),
                ConfigKey("delta.evolve", "BOOLEAN", True, documentation="Add columns that are missing"),
                ConfigKey(
                    "delta.partition.by", "LIST", [], documentation="Columns of folders, in new tables"
                ),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """Options of storage have a name."""
        if _STORAGE in config:
            return {_STORAGE: ["write the option's name behind it, like delta.storage.AWS_REGION"]}
        return {}

    def check(self) -> list[Finding]:
        """Opens the tables that exist."""
        writer = self.writer()
        assert isinstance(writer, DeltaWriter)
        found = []
        for topic in filter(None, (one.strip() for one in self.config.get("topics", "").split(","))):
            table = writer.table_of_topic(topic)
            try:
                there = writer.opened(table)
            except ConnectError as error:
                found.append(Finding(False, str(error)))
                continue
            makes = self.values["delta.auto.create"]
            text = f"version {there.version()}" if there else "not there yet, and will be made"
            found.append(Finding(bool(there) or makes, f"{table}: {text if there or makes else 'not there'}"))
        return found

    def writer(self) -> SinkWriter:
        """A writer of Delta's own library."""
        storage = {
            key.removeprefix(_STORAGE): one for key, one in self.config.items() if key.startswith(_STORAGE)
        }
        routed = bool(self.config.get("transforms"))
        return DeltaWriter(self.config["name"], self.values, storage, routed=routed)


class DeltaWriter(LakeWriter):
    """Writes Parquet files and Delta's log."""

    def __init__(
        self, connector: str, values: ConfigValues, storage: Mapping[str, str], *, routed: bool
    ) -> None:
        super().__init__(connector, routed=routed)
        self._values = dict(values)
        self._storage = dict(storage)

    def as_stored(self, kind: pa.DataType) -> pa.DataType:
        """Delta keeps microseconds, and times of day as numbers."""
        return widened(kind, _TYPES)

    def tables_of(self, record: SinkRecord) -> Sequence[str]:
        """One table, by the name of the topic."""
        return [self.table_of_topic(record.topic)]

    def table_of_topic(self, topic: str) -> str:
        """The folder or address of a topic's table; a topic's name cannot lead out of it."""
        return str(self._values["delta.table"]).replace(TOPIC, topic if topic.strip(".") else "_")

    def opened(self, table: str) -> DeltaTable | None:
        """The table as it is now; None if it is not there."""
        try:
            return DeltaTable(table, storage_options=self._storage or None)
        except TableNotFoundError:
            return None
        except Exception as error:
            raise _failed(table, error) from error

    def state(self, table: str, lineage: int, places: Iterable[Place]) -> TableState:
        """The versions of this connector's application transactions, and the columns."""
        there = self.opened(table)
        if there is None:
            return TableState()
        versions = {place: there.transaction_version(self._id(place, lineage)) for place in places}
        found = {place: version for place, version in versions.items() if version is not None}
        return TableState(found, pa.schema(there.schema().to_arrow()))

    def _id(self, place: Place, lineage: int) -> str:
        return f"{self._connector}@{lineage}/{place.topic}-{place.partition}"

    def append(self, table: str, rows: pa.Table, cycle: SinkCycle) -> None:
        """One commit of the table."""
        lineage, ends = cycle.lineage, ends_of(cycle)
        there = self.opened(table)
        if there is None and not self._values["delta.auto.create"]:
            raise TaskFailed(f"there is no Delta table at {table}: make it, or set delta.auto.create=true")
        if there is not None:
            for place, end in ends.items():
                known = there.transaction_version(self._id(place, lineage))
                if known is not None and known >= end:
                    raise Retriable(f"{table}: another run of connector {self._connector} has written it")
            missing = set(rows.schema.names) - {one.name for one in there.schema().fields}
            if missing and not self._values["delta.evolve"]:
                names = ", ".join(sorted(missing))
                raise TaskFailed(f"{table} has no column {names}: add it, or set delta.evolve=true")
        notes = [Transaction(self._id(place, lineage), end) for place, end in sorted(ends.items())]
        try:
            write_deltalake(
                there if there is not None else table,
                rows,
                mode="append",
                schema_mode="merge" if self._values["delta.evolve"] else None,
                partition_by=(self._values["delta.partition.by"] or None) if there is None else None,
                storage_options=self._storage or None,
                commit_properties=CommitProperties(app_transactions=notes),
            )
        except Exception as error:
            raise _failed(table, error) from error


def _failed(table: str, error: Exception) -> ConnectError:
    """The library raises plain exceptions with the trace of Rust behind the first line."""
    words = " ".join(str(error).split())[:_SHOWN]
    if isinstance(error, CommitFailedError):
        return Retriable(f"{table} was changed by another writer meanwhile: {words}")
    if isinstance(error, OSError):
        return Retriable(f"{table} cannot be reached: {words}")
    return TaskFailed(f"{table} cannot be written: {words}")
