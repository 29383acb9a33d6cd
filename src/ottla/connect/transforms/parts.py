"""What transforms have in common: the side of a record that they work on, and checks of what they find there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, TypeVar, Unpack

from ottla.connect.data import schema as schemas
from ottla.connect.data.columns import Column, RecordColumns, Side, put_into
from ottla.connect.data.record import ConnectRecord
from ottla.connect.data.schema import (
    ConnectValue,
    Field,
    Schema,
    SchemaAttributes,
    Struct,
    Type,
    java_class_of,
)
from ottla.connect.failures import DataError
from ottla.connect.transforms.base import Transformation

R = TypeVar("R", bound=ConnectRecord)

MOST_SCHEMAS = 100


class OneSided(Transformation):
    """A transform of the key or of the value."""

    side: ClassVar[str] = "value"

    def __init__(self, configs: Mapping[str, str]) -> None:
        super().__init__(configs)
        self._schemas: dict[Schema, Schema] = {}

    def found(self, record: ConnectRecord) -> tuple[Schema | None, ConnectValue]:
        """The schema and the value of the side."""
        if self.side == "key":
            return record.key_schema, record.key
        return record.value_schema, record.value

    def changed(self, record: R, schema: Schema | None, value: ConnectValue) -> R:
        """The record with another schema and value on the side."""
        changes = {f"{self.side}_schema": schema, self.side: value}
        made: R = record.with_changes(**changes)  # type: ignore[assignment]
        return made

    def side_of(self, records: RecordColumns) -> Side:
        """The side of records side by side."""
        return records.key if self.side == "key" else records.value

    def with_side(
        self, records: RecordColumns, schema: Schema | None, columns: Iterable[Column]
    ) -> RecordColumns:
        """The records with another schema and other columns on the side."""
        side = Side(schema, tuple(columns))
        return replace(records, key=side) if self.side == "key" else replace(records, value=side)

    def column_of(self, side: Side, at: Field) -> Column:
        """A field's column, as `value_of` takes each value and `Struct.put` sets it again."""
        return put_into(
            at, side.columns[at.index], defaults=self.values.get("replace.null.with.default", True)
        )

    def remembered(self, schema: Schema) -> Schema | None:
        """The changed schema of an earlier record."""
        return self._schemas.get(schema)

    def remember(self, schema: Schema, changed: Schema) -> Schema:
        """Keeps a changed schema for later records."""
        if len(self._schemas) >= MOST_SCHEMAS:
            self._schemas.clear()
        self._schemas[schema] = changed
        return changed

    def value_of(self, value: Struct, field: Field) -> ConnectValue:
        """A field's value, with its default if the transform replaces nulls by defaults."""
        if self.values.get("replace.null.with.default", True):
            return value.get(field.name)
        return value.without_default(field.name)


def require_map(value: ConnectValue, purpose: str) -> dict[str, ConnectValue]:
    """A map; DataError in Kafka's words."""
    if not isinstance(value, dict):
        shown = java_class_of(value).removeprefix("class ") if value is not None else "null"
        raise DataError(f"Only Map objects supported in absence of schema for [{purpose}], found: {shown}")
    return value


def require_struct(value: ConnectValue, purpose: str) -> Struct:
    """A struct; DataError in Kafka's words."""
    if not isinstance(value, Struct):
        shown = java_class_of(value).removeprefix("class ") if value is not None else "null"
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {shown}")
    return value


def require_schema(schema: Schema | None, purpose: str) -> Schema:
    """A schema; DataError in Kafka's words."""
    if schema is None:
        raise DataError(f"Schema required for [{purpose}]")
    return schema


def basics(schema: Schema) -> SchemaAttributes:
    """What a changed schema takes over: name, version, doc and parameters."""
    return {
        "name": schema.name,
        "version": schema.version,
        "doc": schema.doc,
        "parameters": schema.parameters or None,
    }


def struct_like(
    schema: Schema, fields: list[tuple[str, Schema]], **attributes: Unpack[SchemaAttributes]
) -> Schema:
    """A struct's schema with other fields."""
    return schemas.struct(fields, **(basics(schema) | attributes))


def is_struct(schema: Schema | None) -> bool:
    """Whether a schema is a struct's."""
    return schema is not None and schema.type is Type.STRUCT
