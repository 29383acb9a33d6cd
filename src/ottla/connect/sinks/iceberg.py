"""Iceberg sink: records as rows of Iceberg tables, each once.

The offsets of a cycle are a property of the table, set in the commit that appends the rows. The commit requires the
snapshot that it was planned on, so an older run cannot append again. Keys are those of Iceberg's own connector.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    ServerError,
)
from pyiceberg.table import Table

from ottla.connect.config.definitions import ConfigDef, ConfigKey, ConfigValues
from ottla.connect.data.record import SinkRecord
from ottla.connect.data.schema import Struct
from ottla.connect.failures import ConnectError, DataError, Retriable, TaskFailed
from ottla.connect.sinks.lake import TOPIC, LakeWriter, TableState, ends_of, widened
from ottla.connect.spi import Finding, Place, SinkConnector, SinkCycle, SinkWriter

_CATALOG: Final = "iceberg.catalog."
_TYPES: Final = {
    pa.time32("ms"): pa.time64("us"),
    pa.timestamp("ms", "UTC"): pa.timestamp("us", "UTC"),
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
}
_CATALOGS: Final = ("rest", "hive", "glue", "dynamodb", "sql", "bigquery")
_SHOWN: Final = 300


class IcebergSink(SinkConnector):
    """`org.apache.iceberg.connect.IcebergSinkConnector`."""

    java_classes = (
        "org.apache.iceberg.connect.IcebergSinkConnector",
        "io.tabular.iceberg.connect.IcebergSinkConnector",
    )
    version = "1.9.0"
    extra = "iceberg"
    free_prefixes = (_CATALOG, "iceberg.kafka.", "iceberg.hadoop.")

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The connector's own keys; those of its coordination have no effect."""
        return ConfigDef(
            [
                ConfigKey(
                    "iceberg.tables", "LIST", [], "HIGH", "Tables, each as namespace.table; ${topic} works"
                ),
                ConfigKey("iceberg.tables.dynamic-enabled", "BOOLEAN", False, documentation="By route-field"),
                ConfigKey("iceberg.tables.route-field", default="", documentation="The field with the table"),
                ConfigKey(
                    "iceberg.tables.auto-create-enabled", "BOOLEAN", False, documentation="Make tables"
                ),
                ConfigKey(
                    "iceberg.tables.evolve-schema-enabled", "BOOLEAN", False, documentation="Add columns"
                ),
                ConfigKey("iceberg.tables.upsert-mode-enabled", "BOOLEAN", False, "LOW", "Not supported"),
                ConfigKey("iceberg.catalog", default="iceberg", documentation="The name of the catalog"),
                ConfigKey(
                    "iceberg.control.topic", default="", importance="LOW", documentation="Has no effect"
                ),
                ConfigKey("iceberg.control.commit.interval-ms", "INT", 0, "LOW", "Has no effect: see cycles"),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """Where the records go, and which catalog has the tables."""
        found: dict[str, list[str]] = {}
        dynamic = config.get("iceberg.tables.dynamic-enabled", "").lower() == "true"
        field = config.get("iceberg.tables.route-field")
        if dynamic and not field:
            found["iceberg.tables.route-field"] = ["dynamic tables need the field that names the table"]
        if not dynamic and field:
            text = "a field names tables only with iceberg.tables.dynamic-enabled=true"
            found["iceberg.tables.route-field"] = [text]
        if not dynamic and not config.get("iceberg.tables"):
            found["iceberg.tables"] = ["write the tables that records go to, like db.orders or db.${topic}"]
        for one in filter(None, config.get("iceberg.tables", "").split(",")):
            if "." not in one.strip():
                found["iceberg.tables"] = [f"{one} has no namespace: write namespace.table"]
        if config.get("iceberg.tables.upsert-mode-enabled", "").lower() == "true":
            found["iceberg.tables.upsert-mode-enabled"] = ["rows are appended only: set it to false"]
        kind = config.get(f"{_CATALOG}type", "rest")
        if kind not in _CATALOGS:
            text = f"{kind} is no catalog that pyiceberg has: known are {', '.join(_CATALOGS)}"
            found[f"{_CATALOG}type"] = [text]
        return found

    def check(self) -> list[Finding]:
        """Asks the catalog for its namespaces."""
        writer = self.writer()
        assert isinstance(writer, IcebergWriter)
        try:
            return [Finding(True, f"the catalog has the namespaces {writer.namespaces()}")]
        except ConnectError as error:
            return [Finding(False, str(error))]

    def writer(self) -> SinkWriter:
        """A writer with a catalog."""
        catalog = {
            key.removeprefix(_CATALOG): one for key, one in self.config.items() if key.startswith(_CATALOG)
        }
        routed = bool(self.config.get("transforms"))
        return IcebergWriter(self.config["name"], self.values, catalog, routed=routed)


class IcebergWriter(LakeWriter):
    """Writes through pyiceberg."""

    def __init__(
        self, connector: str, values: ConfigValues, catalog: Mapping[str, str], *, routed: bool
    ) -> None:
        super().__init__(connector, routed=routed)
        self._values = dict(values)
        self._settings = dict(catalog)
        self._catalog: Catalog | None = None
        self._property = f"ottla.connect.offsets.{connector}"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_catalog": None}

    def _connected(self) -> Catalog:
        if self._catalog is None:
            try:
                self._catalog = load_catalog(self._values["iceberg.catalog"], **self._settings)
            except Exception as error:
                raise _failed("the catalog", error) from error
        return self._catalog

    def namespaces(self) -> str:
        """What the catalog has."""
        try:
            found = [".".join(one) for one in self._connected().list_namespaces()]
        except Exception as error:
            raise _failed("the catalog", error) from error
        return ", ".join(found) or "(none)"

    def as_stored(self, kind: pa.DataType) -> pa.DataType:
        """Iceberg has no numbers below 32 bits, and keeps microseconds."""
        return widened(kind, _TYPES)

    def tables_of(self, record: SinkRecord) -> Sequence[str]:
        """The listed tables, or the one that a field names."""
        if not self._values["iceberg.tables.dynamic-enabled"]:
            return [one.replace(TOPIC, record.topic) for one in self._values["iceberg.tables"]]
        name = self._values["iceberg.tables.route-field"]
        value = record.value
        found = value.get(name) if isinstance(value, Struct) and value.schema.has(name) else None
        if not isinstance(found, str) or "." not in found:
            raise DataError(f"field {name} is {found!r}, not a table's name like namespace.table")
        return [found.lower()]

    def table_of_topic(self, topic: str) -> str | None:
        """The one table of a topic."""
        tables = self._values["iceberg.tables"]
        if self._values["iceberg.tables.dynamic-enabled"] or len(tables) != 1:
            return None
        return str(tables[0]).replace(TOPIC, topic)

    def _opened(self, table: str) -> Table | None:
        try:
            return self._connected().load_table(table)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except Exception as error:
            raise _failed(table, error) from error

    def state(self, table: str, lineage: int, places: Iterable[Place]) -> TableState:
        """The offsets of this connector's property, and the columns."""
        there = self._opened(table)
        if there is None:
            return TableState()
        offsets = self._offsets(there, lineage)
        found = {place: offsets[place] for place in places if place in offsets}
        return TableState(found, there.schema().as_arrow())

    def _offsets(self, there: Table, lineage: int) -> dict[Place, int]:
        try:
            noted = json.loads(there.properties.get(self._property, "{}"))
            if noted.get("lineage") != lineage:
                return {}
            return {_place(key): int(offset) for key, offset in noted["offsets"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TaskFailed(
                f"the property {self._property} of {'.'.join(there.name())} is damaged: remove it to go on from the "
                "group's offsets"
            ) from None

    def append(self, table: str, rows: pa.Table, cycle: SinkCycle) -> None:
        """One commit of the table: its columns, the offsets and the rows."""
        lineage, ends = cycle.lineage, ends_of(cycle)
        there = self._opened(table) or self._made(table, rows.schema)
        known = self._offsets(there, lineage)
        if any(known.get(place, -1) >= end for place, end in ends.items()):
            raise Retriable(f"{table}: another run of connector {self._connector} has written it")
        # Another commit in between is seen as a new state of the table, not rebased on: it may be that of an older run.
        there.metadata.properties["commit.retry.num-retries"] = "0"
        merged = {f"{one.topic}-{one.partition}": offset for one, offset in sorted({**known, **ends}.items())}
        evolves = self._values["iceberg.tables.evolve-schema-enabled"]
        missing = set(rows.schema.names) - set(there.schema().as_arrow().names)
        if missing and not evolves:
            names = ", ".join(sorted(missing))
            raise TaskFailed(
                f"{table} has no column {names}: add it, or set iceberg.tables.evolve-schema-enabled=true"
            )
        try:
            with there.transaction() as change:
                if missing:
                    with change.update_schema() as columns:
                        columns.union_by_name(rows.schema)
                change.set_properties({self._property: json.dumps({"lineage": lineage, "offsets": merged})})
                change.append(rows)
        except Exception as error:
            raise _failed(table, error) from error

    def _made(self, table: str, schema: pa.Schema) -> Table:
        if not self._values["iceberg.tables.auto-create-enabled"]:
            raise TaskFailed(
                f"there is no table {table}: make it, or set iceberg.tables.auto-create-enabled=true"
            )
        catalog = self._connected()
        try:
            catalog.create_namespace_if_not_exists(table.rpartition(".")[0])
            return catalog.create_table_if_not_exists(table, schema)
        except Exception as error:
            raise _failed(table, error) from error

    def stop(self) -> None:
        """Lets the catalog go."""
        self._catalog = None


def _place(key: str) -> Place:
    topic, _, partition = key.rpartition("-")
    return Place(topic, int(partition))


def _failed(what: str, error: Exception) -> ConnectError:
    words = " ".join(str(error).split())[:_SHOWN]
    if isinstance(error, CommitFailedException):
        return Retriable(f"{what} was changed by another writer meanwhile: {words}")
    if isinstance(error, OSError | ServerError | CommitStateUnknownException):
        return Retriable(f"{what} cannot be reached: {words}")
    return TaskFailed(f"{what} cannot be used: {words}")
