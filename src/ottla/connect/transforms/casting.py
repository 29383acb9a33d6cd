"""Cast and SetSchemaMetadata: other types for values, other names and versions for schemas."""

from __future__ import annotations

import base64
import datetime
import decimal
import re
import struct as structs
from collections.abc import Mapping
from typing import Final

import pyarrow.compute as pc

from ottla.connect.converters.simple import java_string
from ottla.connect.converters.simple_header import header_text
from ottla.connect.data import schema as schemas
from ottla.connect.data.arrow import arrow_type
from ottla.connect.data.column_texts import plain_texts
from ottla.connect.data.columns import (
    Column,
    NotByColumns,
    RecordColumns,
    has_nulls,
    packed,
    put_into,
    values_of,
)
from ottla.connect.data.java_text import Float32, copied
from ottla.connect.data.logical import days_of, time_ms_of, timestamp_ms_of
from ottla.connect.data.schema import BOUNDS, ConnectValue, Schema, Struct, Type, java_class_of, schema_type
from ottla.connect.failures import ConfigInvalid, DataError
from ottla.connect.transforms.parts import (
    OneSided,
    R,
    basics,
    is_struct,
    require_map,
    require_schema,
    require_struct,
    struct_like,
)
from ottla.java_order import java_map_order

_OUTPUTS: Final = (
    *(Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64, Type.BOOLEAN, Type.STRING),
)
_INPUTS: Final = (*_OUTPUTS, Type.BYTES)


class Cast(OneSided):
    """Casts fields, or the whole key or value, to another primitive type."""

    definition = "Cast"

    def __init__(self, configs: Mapping[str, str]) -> None:
        super().__init__(configs)
        self._whole: Type | None = None
        self._casts: dict[str, Type] = {}
        for one in self.values["spec"]:
            parts = one.split(":")
            if len(parts) > 2:
                raise ConfigInvalid(f"Invalid rename mapping: {one}")
            kind = _output(parts[-1].strip())
            if len(parts) == 1:
                self._whole = kind
            else:
                self._casts[parts[0].strip()] = kind
        if self._whole is not None and len(self.values["spec"]) > 1:
            raise ConfigInvalid(
                "Cast transformations that specify a type to cast the entire value to may only specify a single "
                "cast in their spec"
            )

    def apply(self, record: R) -> R | None:
        schema, value = self.found(record)
        if value is None:
            return record
        if schema is None:
            if self._whole is not None:
                return self.changed(record, None, cast(None, value, self._whole))
            made = copied(require_map(value, "cast types"))
            for name, kind in java_map_order(self._casts).items():
                made[name] = cast(None, made.get(name), kind)
            return self.changed(record, None, made)
        changed = self._remembered_change(schema)
        if self._whole is not None:
            return self.changed(record, changed, cast(schema, value, self._whole))
        struct = require_struct(value, "cast types")
        new = Struct(changed)
        for at in struct.schema.fields:
            found = self.value_of(struct, at)
            target = self._casts.get(at.name)
            new.put(at.name, cast(at.schema, found, target) if target is not None else found)
        return self.changed(record, changed, new)

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        side = self.side_of(records)
        if side.schema is None:
            raise NotByColumns
        if self._whole is not None:
            column = side.column
            if has_nulls(column):
                raise NotByColumns
            changed = self._remembered_change(side.schema)
            return self.with_side(records, changed, [_cast_column(side.schema, column, self._whole, changed)])
        changed = self._remembered_change(side.struct())
        columns = []
        for at, new in zip(side.struct().fields, changed.fields, strict=True):
            column = self.column_of(side, at)
            if at.name in self._casts:
                column = _cast_column(at.schema, column, self._casts[at.name], new.schema)
                column = put_into(new, column, defaults=False)
            columns.append(column)
        return self.with_side(records, changed, columns)

    def _remembered_change(self, schema: Schema) -> Schema:
        return self.remembered(schema) or self.remember(schema, self._changed_schema(schema))

    def _changed_schema(self, schema: Schema) -> Schema:
        if self._whole is not None:
            default = cast(schema, schema.default, self._whole)
            return Schema(self._whole, **(basics(schema) | {"optional": schema.optional, "default": default}))
        if not is_struct(schema):
            raise DataError(f"Cannot list fields on non-struct type: {schema.type}")
        fields = []
        for at in schema.fields:
            target = self._casts.get(at.name)
            if target is None:
                fields.append((at.name, at.schema))
            else:
                default = cast(at.schema, at.schema.default, target)
                fields.append((at.name, Schema(target, at.schema.optional, default)))
        return struct_like(schema, fields, optional=schema.optional)


def _cast_column(schema: Schema, column: Column, target: Type, changed: Schema) -> Column:
    if target is Type.STRING:
        texts = plain_texts(schema, column)
        if texts is not None:
            return texts
    if not isinstance(column, list) and schema.type in BOUNDS and schema.name is None and target in BOUNDS:
        low, high = BOUNDS[target]
        bounds = pc.min_max(column).as_py()
        if bounds["min"] is None or low <= bounds["min"] <= bounds["max"] <= high:
            return column.cast(arrow_type(changed))
    return packed(changed, [cast(schema, one, target) for one in values_of(schema, column)])


def _output(name: str) -> Type:
    try:
        kind = Type(name.upper())
    except ValueError:
        raise ConfigInvalid(f"Invalid type found in casting spec: {name}") from None
    if kind not in _OUTPUTS:
        listed = ", ".join(_OUTPUTS)
        raise ConfigInvalid(
            f"Cast transformation does not support casting to {kind}; supported types are [{listed}]"
        )
    return kind


def cast(schema: Schema | None, value: ConnectValue, target: Type) -> ConnectValue:
    """A value in another type, as Java's casts and parsers give it."""
    if value is None:
        return None
    kind = schema_type(value) if schema is None else schema.type
    if kind is None:
        raise DataError(
            f"Cast transformation was passed a value of type {java_class_of(value)} which is not supported by "
            "Connect's data API"
        )
    if kind not in _INPUTS:
        listed = ", ".join(_INPUTS)
        raise DataError(
            f"Cast transformation does not support casting from {kind}; supported types are [{listed}]"
        )
    if schema is not None and schema.name is not None and target is not Type.STRING:
        value = _encoded(value)
    if target is Type.STRING:
        return _text(schema, value)
    if isinstance(value, str):
        return _parsed(value, target)
    if not isinstance(value, bool | int | float | decimal.Decimal):
        raise DataError(f"Unexpected type in Cast transformation: {java_class_of(value)}")
    return _number(value, target)


def _encoded(value: ConnectValue) -> ConnectValue:
    if isinstance(value, datetime.datetime):
        return timestamp_ms_of(value)
    if isinstance(value, datetime.date):
        return days_of(value)
    return time_ms_of(value) if isinstance(value, datetime.time) else value


def _text(schema: Schema | None, value: ConnectValue) -> str:
    if isinstance(value, datetime.date | datetime.time):
        return header_text(schema, value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return java_string(value, schema)


def _number(value: bool | int | float | decimal.Decimal, target: Type) -> ConnectValue:
    if target is Type.BOOLEAN:
        return _whole(value, Type.INT64) != 0
    if target is Type.FLOAT32:
        return float32(float(value))
    if target is Type.FLOAT64:
        return float(value)
    return _whole(value, target)


def _whole(value: bool | int | float | decimal.Decimal, target: Type) -> int:
    """Java's cast: fractions are cut off, floats stop at the limits of int or long, integers wrap around."""
    if isinstance(value, float):
        if value != value:
            return 0
        low, high = BOUNDS[Type.INT64 if target is Type.INT64 else Type.INT32]
        value = low if value <= low else high if value >= high else int(value)
    low, high = BOUNDS[target]
    return (int(value) - low) % (high - low + 1) + low


def float32(value: float) -> Float32:
    """The nearest 32-bit float."""
    try:
        return Float32(structs.unpack("f", structs.pack("f", value))[0])
    except OverflowError:
        return Float32("inf" if value > 0 else "-inf")


def _parsed(text: str, target: Type) -> ConnectValue:
    if target is Type.BOOLEAN:
        return text.lower() == "true"
    if target in BOUNDS:
        low, high = BOUNDS[target]
        if re.fullmatch(r"[+-]?\d+", text) and low <= int(text) <= high:
            return int(text)
    else:
        try:
            found = float(
                re.sub(r"[fFdD]$", "", text.strip()) if text.strip().lower() not in ("inf",) else "x"
            )
            return float32(found) if target is Type.FLOAT32 else found
        except ValueError:
            pass
    raise DataError(f"Value ({text}) was out of range for requested data type")


class SetSchemaMetadata(OneSided):
    """Sets the name and version of a schema."""

    definition = "SetSchemaMetadata"

    def apply(self, record: R) -> R | None:
        schema, value = self.found(record)
        if value is None and schema is None:
            return record
        schema = require_schema(schema, "updating schema metadata")
        name, version = self.values["schema.name"], self.values["schema.version"]
        changed = schemas.changed(
            schema,
            name=name if name is not None else schema.name,
            version=version if version is not None else schema.version,
        )
        if isinstance(value, Struct):
            new = Struct(changed)
            for at in value.schema.fields:
                new.put(at.name, self.value_of(value, at))
            value = new
        return self.changed(record, changed, value)

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        side = self.side_of(records)
        if side.schema is None:
            raise NotByColumns
        name, version = self.values["schema.name"], self.values["schema.version"]
        changed = schemas.changed(
            side.schema,
            name=name if name is not None else side.schema.name,
            version=version if version is not None else side.schema.version,
        )
        if not side.is_struct:
            return self.with_side(records, changed, side.columns)
        return self.with_side(records, changed, [self.column_of(side, at) for at in changed.fields])
