"""Debezium's keys that all sources of changes have, and which tables and columns they choose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.databases.dialect import TableId

_LISTS: Final = ("table.include.list", "table.exclude.list", "column.include.list", "column.exclude.list")
DATABASE_LISTS: Final = ("database.include.list", "database.exclude.list")
CHANGES: Final = ConfigDef(
    [
        ConfigKey(
            "topic.prefix", importance="HIGH", documentation="The name of the server in topics and schemas"
        ),
        ConfigKey("database.hostname", importance="HIGH", documentation="Where the database is"),
        ConfigKey("database.user", importance="HIGH", documentation="A user with the right to replicate"),
        ConfigKey("database.password", "PASSWORD", "", "HIGH", "The password"),
        *(ConfigKey(name, "LIST", [], documentation="Patterns of names") for name in _LISTS),
        ConfigKey("tombstones.on.delete", "BOOLEAN", True, documentation="A null value after each deletion"),
        ConfigKey(
            "extended.headers.enabled",
            "BOOLEAN",
            False,
            "LOW",
            "Headers __debezium.context.* with the connector's names in each record",
        ),
        ConfigKey("skipped.operations", "LIST", ["t"], "LOW", "Operations without records: c, u, d, t, none"),
        ConfigKey("heartbeat.interval.ms", "INT", 0, "LOW", "The pause between heartbeats; 0 for none"),
        ConfigKey(
            "heartbeat.action.query", default="", importance="LOW", documentation="Run at each heartbeat"
        ),
        ConfigKey("topic.heartbeat.prefix", default="__debezium-heartbeat", importance="LOW"),
        ConfigKey(
            "provide.transaction.metadata",
            "BOOLEAN",
            False,
            "LOW",
            "Records of the beginnings and ends of transactions, and the order of changes in them",
        ),
        ConfigKey(
            "topic.transaction",
            default="transaction",
            importance="LOW",
            documentation="The end of the name of the topic of transactions",
        ),
        ConfigKey(
            "signal.data.collection",
            default="",
            importance="MEDIUM",
            documentation="A table with id, type and data, into which signals are inserted",
        ),
        ConfigKey(
            "signal.enabled.channels", "LIST", ["source"], "LOW", "source: the table of signals", "[source]"
        ),
        ConfigKey(
            "incremental.snapshot.chunk.size",
            "INT",
            1024,
            "LOW",
            "Rows of one part of an incremental snapshot",
        ),
        ConfigKey(
            "ottla.snapshot.max.rows",
            "LONG",
            5_000_000,
            "LOW",
            "Tables with more rows, by the server's estimate, are read in parts beside the stream",
            valid="[1,...]",
        ),
        ConfigKey("decimal.handling.mode", default="precise", valid="[precise, double, string]"),
        ConfigKey(
            "time.precision.mode",
            default="adaptive",
            valid="[adaptive, adaptive_time_microseconds, connect]",
        ),
        ConfigKey("max.batch.size", "INT", 2048, "LOW", "Has no effect: see ottla.cycle.max.records"),
        ConfigKey("max.queue.size", "INT", 8192, "LOW", "Has no effect: see ottla.cycle.max.records"),
        ConfigKey("poll.interval.ms", "LONG", 500, "LOW", "Has no effect: changes are waited for"),
    ]
)


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """What the keys of all sources of changes say."""

    prefix: str
    tombstones: bool
    skipped: frozenset[str]
    heartbeat_ms: int
    heartbeat_query: str
    heartbeat_prefix: str
    snapshot_mode: str
    headers: bool
    transactions: bool
    transactions_topic: str
    signals: str
    chunk_rows: int
    most_rows: int
    """Of a table that is read in one cycle, which is one transaction."""

    @classmethod
    def of(cls, values: Mapping[str, object]) -> ChangeSettings:
        """The settings of checked values."""
        skipped, every_ms = values["skipped.operations"], values["heartbeat.interval.ms"]
        chunk_rows = values["incremental.snapshot.chunk.size"]
        most_rows = values["ottla.snapshot.max.rows"]
        assert isinstance(skipped, list) and isinstance(every_ms, int)
        assert isinstance(chunk_rows, int) and isinstance(most_rows, int)
        return cls(
            str(values["topic.prefix"]),
            values["tombstones.on.delete"] is True,
            frozenset(map(str, skipped)),
            every_ms,
            str(values["heartbeat.action.query"] or ""),
            str(values["topic.heartbeat.prefix"]),
            str(values["snapshot.mode"]),
            values["extended.headers.enabled"] is True,
            values["provide.transaction.metadata"] is True,
            f"{values['topic.prefix']}.{values['topic.transaction']}",
            str(values["signal.data.collection"] or ""),
            chunk_rows,
            most_rows,
        )


@dataclass(frozen=True, slots=True)
class Names:
    """Patterns of names that are chosen or left out."""

    included: tuple[re.Pattern[str], ...]
    excluded: tuple[re.Pattern[str], ...]

    @classmethod
    def of(cls, values: Mapping[str, object], what: str) -> Names:
        """The patterns of the keys of tables, columns or databases."""
        return cls(_patterns(values[f"{what}.include.list"]), _patterns(values[f"{what}.exclude.list"]))

    def chosen(self, name: str) -> bool:
        """Whether a name is read."""
        if self.included and not any(one.fullmatch(name) for one in self.included):
            return False
        return not any(one.fullmatch(name) for one in self.excluded)


class Choice:
    """Which tables and columns a connector reads."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._tables = Names.of(values, "table")
        self._columns = Names.of(values, "column")

    def table(self, table: TableId) -> bool:
        """Whether a table is read."""
        return self._tables.chosen(str(table))

    def column(self, table: TableId, name: str) -> bool:
        """Whether a column is read."""
        return self._columns.chosen(f"{table}.{name}")


def _patterns(texts: object) -> tuple[re.Pattern[str], ...]:
    assert isinstance(texts, list)
    return tuple(re.compile(str(one), re.IGNORECASE) for one in texts)


def pattern_errors(config: Mapping[str, str]) -> dict[str, list[str]]:
    """Patterns that cannot be read, by key."""
    found: dict[str, list[str]] = {}
    for name in (*_LISTS, *DATABASE_LISTS):
        for one in filter(None, re.split(r"\s*,\s*", config.get(name, "").strip())):
            try:
                re.compile(one)
            except re.error as error:
                found.setdefault(name, []).append(f"the pattern {one} cannot be read: {error}")
    channels = filter(None, re.split(r"\s*,\s*", config.get("signal.enabled.channels", "").strip()))
    if others := [one for one in channels if one != "source"]:
        found["signal.enabled.channels"] = [
            f"the channel {others[0]} is not there: set source, and insert signals into signal.data.collection"
        ]
    return found
