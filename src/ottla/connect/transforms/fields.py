"""Transforms of fields: ExtractField, Flatten, HoistField, InsertField, MaskField, ReplaceField, ValueToKey."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ottla.connect.data import schema as schemas
from ottla.connect.data.columns import (
    Column,
    NotByColumns,
    RecordColumns,
    Side,
    packed,
    put_into,
    repeated,
    values_of,
    with_default,
)
from ottla.connect.data.java_text import Ordered, copied, java_keys
from ottla.connect.data.logical import EPOCH, timestamp_of
from ottla.connect.data.record import ConnectRecord, SinkRecord
from ottla.connect.data.schema import ConnectValue, Schema, Struct, Type, java_class_of, schema_type
from ottla.connect.failures import ConfigInvalid, DataError
from ottla.connect.transforms.base import Transformation
from ottla.connect.transforms.field_path import FieldPath
from ottla.connect.transforms.parts import OneSided, R, require_map, require_struct, struct_like
from ottla.java_order import java_set_order


class ExtractField(OneSided):
    """Replaces the key or value by one of its fields."""

    definition = "ExtractField"

    def __init__(self, configs: Mapping[str, str]) -> None:
        super().__init__(configs)
        self._path = FieldPath(self.values["field"], self.values["field.syntax.version"])

    def apply(self, record: R) -> R | None:
        schema, value = self.found(record)
        if schema is None:
            inner = self._path.in_map(require_map(value, "field extraction")) if value is not None else None
            return self.changed(record, None, inner)
        struct = require_struct(value, "field extraction") if value is not None else None
        field = self._path.field_of(schema)
        if field is None:
            raise DataError(f"Unknown field: {self.values['field']}")
        with_default = self.values["replace.null.with.default"]
        found = None if struct is None else self._path.in_struct(struct, with_default=with_default)
        return self.changed(record, field.schema, found)

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        side = self.side_of(records)
        at = side.struct().field(self._path.steps[0])
        if len(self._path.steps) > 1 or at.schema.type is Type.STRUCT:
            raise NotByColumns
        column = side.columns[at.index]
        if self.values["replace.null.with.default"]:
            column = with_default(at.schema, column)
        return self.with_side(records, at.schema, [column])


class HoistField(OneSided):
    """Puts the key or value into a struct or map with one field."""

    definition = "HoistField"

    def apply(self, record: R) -> R | None:
        schema, value = self.found(record)
        name = self.values["field"]
        if schema is None:
            return self.changed(record, None, {name: value})
        outer = self.remembered(schema) or self.remember(schema, schemas.struct([(name, schema)]))
        return self.changed(record, outer, Struct(outer).put(name, value))

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        side = self.side_of(records)
        if side.schema is None:
            raise NotByColumns
        outer = schemas.struct([(self.values["field"], side.schema)])
        column = side.values() if side.is_struct else side.column
        return self.with_side(records, outer, [put_into(outer.fields[0], column, defaults=False)])


_INSERTED: Final = (
    ("topic.field", schemas.STRING),
    ("partition.field", schemas.INT32),
    ("offset.field", schemas.INT64),
    ("timestamp.field", schemas.TIMESTAMP_SCHEMA),
    ("static.field", schemas.STRING),
)


class InsertField(OneSided):
    """Adds fields with the record's topic, partition, offset, timestamp or a fixed text."""

    definition = "InsertField"

    def __init__(self, configs: Mapping[str, str]) -> None:
        super().__init__(configs)
        self._inserted: list[tuple[str, str, Schema]] = []
        for key, schema in _INSERTED:
            given = self.values[key]
            if given is None:
                continue
            optional = not given.endswith("!")
            name = given[:-1] if given.endswith(("!", "?")) else given
            self._inserted.append((key, name, schemas.optional(schema) if optional else schema))
        if not self._inserted:
            raise ConfigInvalid("No field insertion configured")
        if self.values["static.field"] is not None and self.values["static.value"] is None:
            raise ConfigInvalid(
                "Invalid value null for configuration static.value: No value specified for static field: "
                f"{self.values['static.field']}"
            )

    def apply(self, record: R) -> R | None:
        schema, value = self.found(record)
        if value is None:
            return record
        if schema is None:
            made = copied(require_map(value, "field insertion"))
            for key, name, _ in self._inserted:
                inserted = self._value(key, record)
                if inserted is not None:
                    made[name] = inserted
            return self.changed(record, None, made)
        struct = require_struct(value, "field insertion")
        changed = self._with_fields(schema)
        new = Struct(changed)
        for at in struct.schema.fields:
            new.put(at.name, self.value_of(struct, at))
        for key, name, _ in self._inserted:
            inserted = self._value(key, record)
            if inserted is not None:
                new.put(name, timestamp_of(inserted) if key == "timestamp.field" else inserted)
        return self.changed(record, changed, new)

    def _with_fields(self, schema: Schema) -> Schema:
        changed = self.remembered(schema)
        if changed is None:
            fields = [(at.name, at.schema) for at in schema.fields]
            fields += [(name, one) for _, name, one in self._inserted]
            changed = self.remember(schema, struct_like(schema, fields))
        return changed

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        side = self.side_of(records)
        columns = [self.column_of(side, at) for at in side.struct().fields]
        columns += [self._inserted_column(key, one, records) for key, _, one in self._inserted]
        return self.with_side(records, self._with_fields(side.struct()), columns)

    def _inserted_column(self, key: str, schema: Schema, records: RecordColumns) -> Column:
        if key == "topic.field":
            return repeated(schema, records.topic, len(records))
        if key == "static.field":
            return repeated(schema, self.values["static.value"], len(records))
        if key == "partition.field":
            return records.partitions
        if key == "offset.field":
            if records.fetched is None:
                raise NotByColumns
            return records.fetched.column("offset")
        return [None if one is None else timestamp_of(one) for one in records.times.to_pylist()]

    def _value(self, key: str, record: ConnectRecord) -> ConnectValue:
        if key == "topic.field":
            return record.topic
        if key == "partition.field":
            return record.partition
        if key == "offset.field":
            if not isinstance(record, SinkRecord):
                raise DataError(
                    f"Only SinkRecord supported for [field insertion], found: {type(record).__name__}"
                )
            return record.offset
        if key == "timestamp.field":
            return record.timestamp
        return self.values["static.value"]


class MaskField(OneSided):
    """Replaces the values of fields by empty ones, or by a text of the same type."""

    definition = "MaskField"

    def apply(self, record: R) -> R | None:
        schema, value = self.found(record)
        names = java_set_order(self.values["fields"])
        if schema is None:
            made = copied(require_map(value, "mask fields"))
            for name in names:
                made[name] = self._masked(made.get(name), None)
            return self.changed(record, None, made)
        struct = require_struct(value, "mask fields")
        new = Struct(struct.schema)
        for at in struct.schema.fields:
            found = self.value_of(struct, at)
            new.put(at.name, self._masked(found, at.schema) if at.name in names else found)
        return self.changed(record, schema, new)

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        side = self.side_of(records)
        columns = []
        for at in side.struct().fields:
            column = self.column_of(side, at)
            if at.name in self.values["fields"]:
                # Values of one type are masked by the same value: those of an array by that of any of them.
                masks: dict[type, ConnectValue] = {}
                masked = [
                    None if one is None else self._mask_of(one, at.schema, masks)
                    for one in values_of(at.schema, column)
                ]
                column = put_into(at, packed(at.schema, masked), defaults=False)
            columns.append(column)
        return self.with_side(records, side.schema, columns)

    def _mask_of(self, value: ConnectValue, schema: Schema, masks: dict[type, ConnectValue]) -> ConnectValue:
        kind = type(value)
        if kind not in masks:
            masks[kind] = self._masked(value, schema)
        return masks[kind]

    def _masked(self, value: ConnectValue, schema: Schema | None) -> ConnectValue:
        if value is None:
            return None
        text = self.values["replacement"]
        if text is not None:
            return _replaced(value, text)
        if isinstance(value, decimal.Decimal):
            return decimal.Decimal(0)
        for kind, empty in (
            (bool, False),
            (int, 0),
            (float, 0.0),
            (str, ""),
            (list, []),
            (dict, {}),
            (datetime.datetime, EPOCH),
            (datetime.date, EPOCH.date()),
            (datetime.time, datetime.time()),
        ):
            if isinstance(value, kind):
                return empty
        raise DataError(f"Cannot mask value of type: {java_class_of(value)}")


def _replaced(value: ConnectValue, text: str) -> ConnectValue:
    try:
        if isinstance(value, str):
            return text
        if isinstance(value, int) and not isinstance(value, bool):
            return int(text)
        if isinstance(value, float):
            return float(text)
        if isinstance(value, decimal.Decimal):
            return decimal.Decimal(text)
    except (ValueError, decimal.InvalidOperation):
        raise DataError(f"Unable to convert {text} (class java.lang.String) to number") from None
    raise DataError(f"Cannot mask value of type {java_class_of(value)} with custom replacement.")


class ReplaceField(OneSided):
    """Keeps, drops or renames fields."""

    definition = "ReplaceField"

    def __init__(self, configs: Mapping[str, str]) -> None:
        super().__init__(configs)
        self._renames: dict[str, str] = {}
        for pair in self.values["renames"]:
            parts = pair.split(":")
            if len(parts) != 2:
                raise ConfigInvalid(
                    f"Invalid value [{', '.join(self.values['renames'])}] for configuration renames: "
                    f"Invalid rename mapping: {pair}"
                )
            self._renames[parts[0]] = parts[1]
        self._back = {new: old for old, new in self._renames.items()}

    def _kept(self, name: str) -> bool:
        include = self.values["include"]
        return name not in self.values["exclude"] and (not include or name in include)

    def apply(self, record: R) -> R | None:
        schema, value = self.found(record)
        if value is None:
            return record
        if schema is None:
            found = require_map(value, "field replacement")
            made = copied(found, capacity=len(found))
            made.update(
                (self._renames.get(key, key), found[key]) for key in java_keys(found) if self._kept(key)
            )
            return self.changed(record, None, made)
        struct = require_struct(value, "field replacement")
        changed = self._with_names(struct.schema)
        new = Struct(changed)
        for at in changed.fields:
            old = struct.schema.field(self._back.get(at.name, at.name))
            new.put(at.name, self.value_of(struct, old))
        return self.changed(record, changed, new)

    def _with_names(self, schema: Schema) -> Schema:
        changed = self.remembered(schema)
        if changed is None:
            fields = [
                (self._renames.get(at.name, at.name), at.schema)
                for at in schema.fields
                if self._kept(at.name)
            ]
            changed = self.remember(schema, struct_like(schema, fields))
        return changed

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        side = self.side_of(records)
        changed = self._with_names(side.struct())
        old = [side.struct().field(self._back.get(at.name, at.name)) for at in changed.fields]
        if not old:
            raise NotByColumns
        return self.with_side(records, changed, [self.column_of(side, at) for at in old])


class Flatten(OneSided):
    """Makes one level of nested structs and maps; names are joined by a delimiter."""

    definition = "Flatten"

    def apply(self, record: R) -> R | None:
        schema, value = self.found(record)
        if value is None and schema is None:
            return record
        if schema is None:
            made = Ordered()
            self._flatten_map(require_map(value, "flattening"), "", made)
            return self.changed(record, None, made)
        struct = None if value is None else require_struct(value, "flattening")
        changed = self.remembered(schema)
        if changed is None:
            fields: list[tuple[str, Schema]] = []
            self._flatten_schema(schema, "", fields, schema.optional, schema.default)
            changed = self.remember(schema, struct_like(schema, fields))
        if struct is None:
            return self.changed(record, changed, None)
        new = Struct(changed)
        self._flatten_struct(struct, "", new)
        return self.changed(record, changed, new)

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self.values['delimiter']}{name}" if prefix else name

    def _flatten_map(self, found: dict[str, ConnectValue], prefix: str, into: Ordered) -> None:
        for key in java_keys(found):
            value, name = found[key], self._name(prefix, key)
            if value is None:
                into[name] = None
                continue
            kind = schema_type(value)
            if kind is None:
                raise DataError(
                    f"Flatten transformation was passed a value of type {java_class_of(value)} which is not "
                    "supported by Connect's data API"
                )
            if kind is Type.MAP:
                self._flatten_map(require_map(value, "flattening"), name, into)
            elif kind is Type.STRUCT:
                raise DataError(
                    f"Flatten transformation does not support {java_class_of(value)} for record without schemas "
                    f"(for field {name})."
                )
            else:
                into[name] = value

    def _flatten_schema(
        self,
        schema: Schema,
        prefix: str,
        into: list[tuple[str, Schema]],
        optional: bool,
        default: Struct | None,
    ) -> None:
        for at in schema.fields:
            name = self._name(prefix, at.name)
            inner_optional = optional or at.schema.optional
            inner = at.schema.default
            if inner is None and default is not None:
                inner = default.get(at.name)
            if at.schema.type is Type.STRUCT:
                self._flatten_schema(at.schema, name, into, inner_optional, inner)
            elif at.schema.type is Type.MAP:
                raise DataError(
                    f"Flatten transformation does not support {at.schema.type} for record with schemas "
                    f"(for field {name})."
                )
            else:
                into.append((name, schemas.changed(at.schema, optional=inner_optional, default=inner)))

    def _flatten_struct(self, found: Struct | None, prefix: str, into: Struct) -> None:
        if found is None:
            return
        for at in found.schema.fields:
            name = self._name(prefix, at.name)
            if at.schema.type is Type.STRUCT:
                self._flatten_struct(found.get(at.name), name, into)
            else:
                into.put(name, found.get(at.name))


class ValueToKey(Transformation):
    """Makes the key of fields of the value."""

    definition = "ValueToKey"

    def apply(self, record: R) -> R | None:
        names = self.values["fields"]
        if record.value_schema is None:
            found = require_map(record.value, "copying fields from value to key")
            key: ConnectValue = copied({}, capacity=len(names))
            key.update((name, found.get(name)) for name in names)
            return record.with_changes(key=key, key_schema=None)  # type: ignore[return-value]
        struct = require_struct(record.value, "copying fields from value to key")
        for name in names:
            if not struct.schema.has(name):
                raise DataError(f"Field does not exist: {name}")
        fields = [(name, struct.schema.field(name).schema) for name in names]
        schema = schemas.struct(fields)
        key = Struct(schema)
        for name in names:
            with_default = self.values["replace.null.with.default"]
            key.put(name, struct.get(name) if with_default else struct.without_default(name))
        return record.with_changes(key=key, key_schema=schema)  # type: ignore[return-value]

    def apply_to_columns(self, records: RecordColumns) -> RecordColumns | None:
        value = records.value
        fields = [value.struct().field(name) for name in self.values["fields"]]
        if not fields:
            raise NotByColumns
        defaults = self.values["replace.null.with.default"]
        columns = [put_into(at, value.columns[at.index], defaults=defaults) for at in fields]
        schema = schemas.struct([(at.name, at.schema) for at in fields])
        return replace(records, key=Side(schema, tuple(columns)))
