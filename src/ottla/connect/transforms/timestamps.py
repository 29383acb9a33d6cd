"""TimestampConverter, TimestampRouter and RegexRouter: times in other forms, and topics by time or pattern."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.connect.data import schema as schemas
from ottla.connect.data.columns import Column, NotByColumns, RecordColumns, packed, values_of
from ottla.connect.data.java_text import copied
from ottla.connect.data.logical import timestamp_ms_of, timestamp_of
from ottla.connect.data.schema import ConnectValue, Schema, Struct, Type, java_class_of
from ottla.connect.failures import ConfigInvalid, ConnectError, DataError
from ottla.connect.transforms.base import Transformation
from ottla.connect.transforms.java_dates import JavaDateFormat
from ottla.connect.transforms.java_regex import java_regex, java_replacement
from ottla.connect.transforms.parts import OneSided, R, require_map, require_struct, struct_like

_SCHEMAS: Final = {
    "string": schemas.STRING,
    "unix": schemas.INT64,
    "Date": schemas.DATE_SCHEMA,
    "Time": schemas.TIME_SCHEMA,
    "Timestamp": schemas.TIMESTAMP_SCHEMA,
}
_UNITS: Final = {
    "seconds": (1000, 1),
    "milliseconds": (1, 1),
    "microseconds": (1, 1000),
    "nanoseconds": (1, 10**6),
}
_DAY: Final = datetime.date(1970, 1, 1)


class TimestampConverter(OneSided):
    """Converts times between texts, Unix times and Connect's logical types."""

    definition = "TimestampConverter"

    def __init__(self, configs: Mapping[str, str]) -> None:
        super().__init__(configs)
        self._field, self._target = self.values["field"], self.values["target.type"]
        pattern = self.values["format"]
        if self._target == "string" and not pattern.strip():
            raise ConfigInvalid(
                "TimestampConverter requires format option to be specified when using string timestamps"
            )
        self._format = JavaDateFormat(pattern) if pattern.strip() else None

    def apply(self, record: R) -> R | None:
        schema, value = self.found(record)
        if schema is None:
            if value is None or not self._field:
                return self.changed(record, None, self._converted(value, None))
            made = copied(require_map(value, "converting timestamp formats"))
            made[self._field] = self._converted(made.get(self._field), None)
            return self.changed(record, None, made)
        if not self._field:
            return self.changed(record, self._typed(schema), self._converted(value, schema))
        struct = None if value is None else require_struct(value, "converting timestamp formats")
        changed = self.remembered(schema)
        if changed is None:
            fields = [
                (at.name, self._typed(at.schema) if at.name == self._field else at.schema)
                for at in schema.fields
            ]
            changed = self.remember(schema, struct_like(schema, fields, optional=schema.optional))
        if struct is None:
            return self.changed(record, changed, None)
        new = Struct(changed)
        for at in struct.schema.fields:
            found = self.value_of(struct, at)
            new.put(at.name, self._converted(found, at.schema) if at.name == self._field else found)
        return self.changed(record, changed, new)

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        side = self.side_of(records)
        if side.schema is None:
            raise NotByColumns
        if not self._field:
            return self.with_side(records, self._typed(side.schema), [self._column(side.schema, side.column)])
        fields, columns = [], []
        for at in side.struct().fields:
            column = self.column_of(side, at)
            typed = at.schema
            if at.name == self._field:
                typed, column = self._typed(at.schema), self._column(at.schema, column)
            fields.append((at.name, typed))
            columns.append(column)
        changed = struct_like(side.schema, fields, optional=side.schema.optional)
        return self.with_side(records, changed, columns)

    def _column(self, schema: Schema, column: Column) -> Column:
        return packed(
            self._typed(schema), [self._converted(one, schema) for one in values_of(schema, column)]
        )

    def _typed(self, schema: Schema) -> Schema:
        found = _SCHEMAS[self._target]
        return schemas.optional(found) if schema.optional else found

    def _converted(self, value: ConnectValue, schema: Schema | None) -> ConnectValue:
        if schema is not None:
            _check_kind(schema)
        if value is None:
            return None
        return self._to_target(self._raw(value))

    def _raw(self, value: ConnectValue) -> datetime.datetime:
        if isinstance(value, datetime.datetime):
            return value
        if isinstance(value, datetime.date):
            return datetime.datetime.combine(value, datetime.time(), datetime.UTC)
        if isinstance(value, datetime.time):
            return datetime.datetime.combine(_DAY, value, datetime.UTC)
        if isinstance(value, int) and not isinstance(value, bool):
            times, by = _UNITS[self.values["unix.precision"]]
            # Java's conversions cut fractions off towards zero.
            return timestamp_of(
                value * times if by == 1 else int(value / by) if abs(value) < 2**53 else value // by
            )
        if isinstance(value, str):
            if self._format is None:
                raise ConfigInvalid("TimestampConverter needs `format` to read timestamps from text")
            return self._format.parse(value)
        raise DataError(f"TimestampConverter does not support {java_class_of(value)} objects as timestamps")

    def _to_target(self, raw: datetime.datetime) -> ConnectValue:
        if self._target == "string":
            assert self._format is not None
            return self._format.format(raw)
        if self._target == "unix":
            times, by = _UNITS[self.values["unix.precision"]]
            ms = timestamp_ms_of(raw)
            return int(ms / times) if times != 1 else ms * by
        if self._target == "Date":
            return raw.date()
        return raw.time() if self._target == "Time" else raw


def _check_kind(schema: Schema) -> None:
    logical = schema.name in (schemas.DATE, schemas.TIME, schemas.TIMESTAMP)
    if not logical and schema.type not in (Type.STRING, Type.INT64):
        raise ConnectError(f"Schema {schema} does not correspond to a known timestamp type format")


class TimestampRouter(Transformation):
    """Names the topic by the record's time."""

    definition = "TimestampRouter"

    def __init__(self, configs: Mapping[str, str]) -> None:
        super().__init__(configs)
        self._format = JavaDateFormat(self.values["timestamp.format"])

    def apply(self, record: R) -> R | None:
        if record.timestamp is None:
            raise DataError(f"Timestamp missing on record: {record.topic}")
        shown = self._format.format(timestamp_of(record.timestamp))
        topic = self.values["topic.format"].replace("${topic}", record.topic, 1)
        return record.with_changes(topic=topic.replace("${timestamp}", shown, 1))  # type: ignore[return-value]


class RegexRouter(Transformation):
    """Names the topic by a pattern and its replacement."""

    definition = "RegexRouter"

    def __init__(self, configs: Mapping[str, str]) -> None:
        super().__init__(configs)
        self._pattern: re.Pattern[str] = java_regex("regex", self.values["regex"])
        self._replacement = java_replacement(self.values["replacement"], self._pattern)

    def apply(self, record: R) -> R | None:
        match = self._pattern.fullmatch(record.topic)
        if match is None:
            return record
        return record.with_changes(topic=match.expand(self._replacement))  # type: ignore[return-value]

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        match = self._pattern.fullmatch(records.topic)
        return records if match is None else replace(records, topic=match.expand(self._replacement))
