"""JDBC source: the rows of tables, or of a query, as records; new rows by a number, a time, or both.

Keys, modes and offsets are those of Confluent's connector; Python's drivers read. A cycle has a bounded number of
rows. Offsets: `{"protocol":"1","table":name}` has `{"incrementing","timestamp","timestamp_nanos"}`.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping
from typing import Final

from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.databases.keys import CONNECTION, address_errors, dialect_for
from ottla.connect.failures import ConnectError
from ottla.connect.sources.jdbc_reader import JdbcReader
from ottla.connect.spi import SourceConnector, SourceReader
from ottla.json_types import Json

BULK: Final = "bulk"
INCREMENTING: Final = "incrementing"
TIMESTAMP: Final = "timestamp"
BOTH: Final = "timestamp+incrementing"
_LISTS: Final = ("table.whitelist", "table.blacklist", "table.include.list", "table.exclude.list")


class JdbcSource(SourceConnector):
    """`io.confluent.connect.jdbc.JdbcSourceConnector`."""

    java_classes = (
        "io.confluent.connect.jdbc.JdbcSourceConnector",
        "io.aiven.connect.jdbc.JdbcSourceConnector",
    )
    version = "10.8.0"

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Confluent's keys."""
        return CONNECTION | ConfigDef(
            [
                ConfigKey("mode", importance="HIGH", valid=f"[{BULK}, {TIMESTAMP}, {INCREMENTING}, {BOTH}]"),
                ConfigKey("topic.prefix", importance="HIGH", documentation="In front of a table's name"),
                ConfigKey("incrementing.column.name", default="", documentation="The column that only grows"),
                ConfigKey("timestamp.column.name", "LIST", [], documentation="Columns of the last change"),
                ConfigKey(
                    "timestamp.initial", "LONG", None, documentation="Where to begin, in ms since 1970"
                ),
                ConfigKey("timestamp.delay.interval.ms", "LONG", 0, "HIGH", "Rows younger than this wait"),
                ConfigKey("validate.non.null", "BOOLEAN", True, "LOW", "Refuse columns that can be null"),
                ConfigKey("query", default="", documentation="Read this query instead of tables"),
                ConfigKey(
                    "query.suffix", default="", importance="LOW", documentation="Text behind each query"
                ),
                ConfigKey("poll.interval.ms", "INT", 5_000, "HIGH", "The pause between two looks at a table"),
                ConfigKey(
                    "table.poll.interval.ms", "LONG", 60_000, "LOW", "How often new tables are looked for"
                ),
                ConfigKey("batch.max.rows", "INT", 100, "LOW", "Has no effect: see ottla.cycle.max.records"),
                ConfigKey("table.types", "LIST", ["TABLE"], documentation="TABLE, VIEW"),
                ConfigKey("schema.pattern", default=None, documentation="The schema of the tables"),
                ConfigKey(
                    "catalog.pattern", default=None, documentation="Has no effect: the address names it"
                ),
                ConfigKey(
                    "numeric.mapping",
                    default="none",
                    valid="[none, precision_only, best_fit, best_fit_eager_double]",
                ),
                ConfigKey("numeric.precision.mapping", "BOOLEAN", False, "LOW", "The same as precision_only"),
                *(ConfigKey(name, "LIST", [], documentation="Names of tables") for name in _LISTS),
            ]
        )

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """Contradictions between keys, and columns that the mode needs."""
        found = address_errors(config)
        mode, query = config.get("mode", ""), config.get("query", "")
        if query and any(config.get(name) for name in _LISTS):
            found["query"] = ["query reads no tables: remove it, or the lists of tables"]
        if config.get("table.whitelist") and config.get("table.blacklist"):
            found["table.blacklist"] = ["table.whitelist and table.blacklist exclude each other"]
        if mode in (TIMESTAMP, BOTH) and not config.get("timestamp.column.name"):
            found["timestamp.column.name"] = [f"mode {mode} needs the name of a column"]
        if query and mode in (INCREMENTING, BOTH) and not config.get("incrementing.column.name"):
            found["incrementing.column.name"] = [f"mode {mode} of a query needs the name of a column"]
        try:
            zoneinfo.ZoneInfo(config.get("db.timezone") or "UTC")
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            found["db.timezone"] = ["there is no such time zone: write a name such as Europe/Berlin"]
        return found

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task: the tables of a cycle are shared out when it runs."""
        return [dict(self.config)]

    def reader(self) -> SourceReader:
        """A reader of the tables."""
        dialect_for(self.values)
        return JdbcReader(self.values)

    def check_offset(self, partition: Mapping[str, Json] | None, offset: Mapping[str, Json] | None) -> None:
        """Offsets of tables and of queries, with numbers."""
        if partition is not None and not ({"table", "query"} & set(partition)):
            raise ConnectError(
                'the partition of a JDBC source is {"protocol":"1","table":name} or {"query":"query"}'
            )
        for key, value in (offset or {}).items():
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConnectError(f"{key} of the offset is {value!r}, not a whole number")
