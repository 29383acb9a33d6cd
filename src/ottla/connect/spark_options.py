"""The keys that sources and sinks of Spark's formats share: the format, where, and the format's own options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.connect.config.definitions import ConfigKey

OPTIONS: Final = "options."
COMMON: Final = (
    ConfigKey(
        "format", importance="HIGH", documentation="A format of Spark: parquet, orc, csv, jdbc, delta, ..."
    ),
    ConfigKey("path", default="", importance="HIGH", documentation="The folder or address of files"),
    ConfigKey(
        "table", default="", importance="HIGH", documentation="A table of Spark's catalog, in place of path"
    ),
)


def options_of(config: Mapping[str, str]) -> dict[str, str]:
    """The format's own options: keys that begin with `options.`.

    >>> options_of({"format": "csv", "options.header": "true"})
    {'header': 'true'}
    """
    return {key.removeprefix(OPTIONS): one for key, one in config.items() if key.startswith(OPTIONS)}


def place_errors(config: Mapping[str, str]) -> dict[str, list[str]]:
    """A path and a table exclude each other."""
    if config.get("path") and config.get("table"):
        return {"table": ["path and table exclude each other: write one of them"]}
    return {}


def first_line(error: Exception) -> str:
    """What Spark says, without the trace of the JVM."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
