"""What the binary log does not say about columns, from the tables' definitions: hidden types and defaults."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.connect.failures import TaskFailed
from ottla.connect.sources.changes.mysql_types import HIDDEN_KINDS, LogColumn, MySqlType

_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)
_BITS: Final = re.compile(r"b'([01]*)'")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_NOW: Final = ("current_timestamp", "now(")
_TIME: Final = re.compile(r"(-?)(\d+):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?")


@dataclass(frozen=True, slots=True)
class Definitions:
    """The columns of a table as they are now."""

    kinds: Mapping[str, str]
    defaults: Mapping[str, str | None]
    unique: Sequence[str]
    """The columns of the first unique index by name, which is the key of a table without a primary key."""

    def unhidden(self, column: LogColumn) -> LogColumn:
        """MariaDB's log shows some types as bytes, and a point as any geometry."""
        kind = self.kinds.get(column.name, "")
        if (column.kind == "binary" and kind in HIDDEN_KINDS) or (
            column.kind == "geometry" and kind == "point"
        ):
            return replace(column, kind=kind)
        return column

    def default(self, name: str) -> str | None:
        """The default of a column as text: a value, or CURRENT_TIMESTAMP."""
        return self.defaults.get(name)


def written_default(row: Mapping[str, object], *, mariadb: bool) -> str | None:
    """The default that information_schema.columns has; None for those that are computed.

    MariaDB has an expression there, MySQL a value unless `extra` says that it is generated.
    """
    found, extra = row["written"], str(row["extra"]).upper()
    if found is None or "VIRTUAL" in extra or "STORED" in extra:
        return None
    text = found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
    if text.lower().startswith(_NOW):
        return "CURRENT_TIMESTAMP"
    if bits := _BITS.fullmatch(text):
        return bits[1]
    if not mariadb:
        return None if "DEFAULT_GENERATED" in extra else text
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1].replace("''", "'")
    return text if _NUMBER.fullmatch(text) else None


def default_of(found: MySqlType, written: str | None, *, nullable: bool) -> object:
    """The default's value in a schema, or None."""
    if written is None:
        return None
    if written == "CURRENT_TIMESTAMP":
        return None if nullable else found.convert(datetime.datetime(1970, 1, 1))
    try:
        return found.convert(_as_sent(found, written))
    except (ValueError, AssertionError, ArithmeticError, TypeError, TaskFailed):
        return None


def _as_sent(found: MySqlType, written: str) -> object:
    """A default as the server would send such a value."""
    name = found.schema.name or ""
    if name.endswith(("ZonedTimestamp", "Timestamp")):
        return datetime.datetime.fromisoformat(written)
    if name.endswith("Date"):
        return datetime.date.fromisoformat(written)
    if name.endswith("Time"):
        match = _TIME.fullmatch(written)
        if match is None:
            raise ValueError(written)
        sign, hours, minutes, seconds, part = match.groups()
        span = datetime.timedelta(
            hours=int(hours),
            minutes=int(minutes),
            seconds=int(seconds or 0),
            microseconds=int((part or "0").ljust(6, "0")),
        )
        return -span if sign else span
    if name.endswith("Decimal"):
        return decimal.Decimal(written)
    if found.schema.type.name.startswith("INT"):
        return int(written)
    return float(written) if found.schema.type.name.startswith("FLOAT") else written
