"""Debezium's keys that all sources of changes have, and which tables and columns they choose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.databases.dialect import TableId

_LISTS: Final = ("table.include.list", "table.exclude.list", "column.include.list", "column.exclude.list")
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
        ConfigKey("skipped.operations", "LIST", ["t"], "LOW", "Operations without records: c, u, d, t, none"),
        ConfigKey("heartbeat.interval.ms", "INT", 0, "LOW", "The pause between heartbeats; 0 for none"),
        ConfigKey(
            "heartbeat.action.query", default="", importance="LOW", documentation="Run at each heartbeat"
        ),
        ConfigKey("topic.heartbeat.prefix", default="__debezium-heartbeat", importance="LOW"),
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


class Choice:
    """Which tables and columns a connector reads."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._tables = _patterns(values["table.include.list"]), _patterns(values["table.exclude.list"])
        self._columns = _patterns(values["column.include.list"]), _patterns(values["column.exclude.list"])

    def table(self, table: TableId) -> bool:
        """Whether a table is read."""
        return _chosen(str(table), *self._tables)

    def column(self, table: TableId, name: str) -> bool:
        """Whether a column is read."""
        return _chosen(f"{table}.{name}", *self._columns)


def _patterns(texts: Sequence[str]) -> list[re.Pattern[str]]:
    return [re.compile(one, re.IGNORECASE) for one in texts]


def _chosen(name: str, included: list[re.Pattern[str]], excluded: list[re.Pattern[str]]) -> bool:
    if included and not any(one.fullmatch(name) for one in included):
        return False
    return not any(one.fullmatch(name) for one in excluded)


def pattern_errors(config: Mapping[str, str]) -> dict[str, list[str]]:
    """Patterns that cannot be read, by key."""
    found: dict[str, list[str]] = {}
    for name in _LISTS:
        for one in filter(None, re.split(r"\s*,\s*", config.get(name, "").strip())):
            try:
                re.compile(one)
            except re.error as error:
                found.setdefault(name, []).append(f"the pattern {one} cannot be read: {error}")
    return found
