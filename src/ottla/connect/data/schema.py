"""Connect's schemas and structs, with Kafka's types, names, versions, defaults and parameters.

Values are Python's own: int, float, bool, str, bytes, list, dict, Struct, and for the logical types Decimal,
datetime.date, datetime.time and datetime.datetime in UTC.
"""

from __future__ import annotations

import datetime
import decimal
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypedDict, Unpack

from ottla.connect.config.definitions import ConfigValues
from ottla.connect.failures import DataError, SchemaError


class Type(enum.StrEnum):
    """The types of Connect."""

    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FLOAT32 = "FLOAT32"
    FLOAT64 = "FLOAT64"
    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    BYTES = "BYTES"
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"

    @property
    def is_primitive(self) -> bool:
        """Whether values have no parts."""
        return self not in (Type.ARRAY, Type.MAP, Type.STRUCT)


ConnectValue: TypeAlias = Any
"""A value of a record, a field or a header: one of those that this module's docstring lists, or None.

Which one is known at run time only, from its schema: converters and transforms look there and not at the value.
"""


class SchemaAttributes(TypedDict, total=False):
    """What a schema says beside its type and its parts."""

    optional: bool
    default: ConnectValue
    name: str | None
    version: int | None
    doc: str | None
    parameters: Mapping[str, str] | None


BOUNDS: Final = {
    Type.INT8: (-(2**7), 2**7 - 1),
    Type.INT16: (-(2**15), 2**15 - 1),
    Type.INT32: (-(2**31), 2**31 - 1),
    Type.INT64: (-(2**63), 2**63 - 1),
}

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
SCALE: Final = "scale"
LOGICAL_TYPES: Final = frozenset((DECIMAL, DATE, TIME, TIMESTAMP))

_LOGICAL_CLASSES: Final[dict[str, type]] = {
    DECIMAL: decimal.Decimal,
    DATE: datetime.date,
    TIME: datetime.time,
    TIMESTAMP: datetime.datetime,
}
_CLASSES: Final[dict[Type, tuple[type, ...]]] = {
    **dict.fromkeys(BOUNDS, (int,)),
    Type.FLOAT32: (float, int),
    Type.FLOAT64: (float, int),
    Type.BOOLEAN: (bool,),
    Type.STRING: (str,),
    Type.BYTES: (bytes, bytearray, memoryview),
    Type.ARRAY: (list, tuple),
    Type.MAP: (dict,),
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct."""

    name: str
    index: int
    schema: Schema


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """A schema; two with the same content are equal. Build them with the functions of this module.

    >>> struct([("id", INT64), ("name", optional(STRING))]).field("name").schema.optional
    True
    """

    type: Type
    optional: bool = False
    default: ConnectValue = None
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] | None = None
    fields: tuple[Field, ...] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    _by_name: dict[str, Field] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for one in self.fields:
            if one.name in self._by_name:
                raise SchemaError(f"Cannot create field because of field name duplication {one.name}")
            self._by_name[one.name] = one

    def field(self, name: str) -> Field:
        """The field of that name; DataError if there is none."""
        found = self._by_name.get(name)
        if found is None:
            raise DataError(f"{name} is not a valid field name")
        return found

    def has(self, name: str) -> bool:
        """Whether a struct has a field."""
        return name in self._by_name

    def _content(self) -> tuple[object, ...]:
        return (
            self.type,
            self.optional,
            self.default,
            self.name,
            self.version,
            self.doc,
            self.parameters,
            self.fields,
            self.key_schema,
            self.value_schema,
        )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Schema) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash((self.type, self.optional, self.name, self.version, len(self.fields)))

    def __str__(self) -> str:
        return f"Schema{{{self.name}:{self.type}}}" if self.name is not None else f"Schema{{{self.type}}}"

    def validate(self, value: ConnectValue, where: str = "value") -> None:
        """DataError if a value does not fit."""
        _validate(self, value, where)


def _validate(schema: Schema, value: ConnectValue, where: str) -> None:
    if value is None:
        if not schema.optional:
            raise DataError(f"Invalid value: null used for required {where}, schema type: {schema.type}")
        return
    if not _fits(schema, value):
        named = f' "{schema.name}"' if schema.name is not None else ""
        raise DataError(
            f"Invalid Java object for schema{named} with type {schema.type}: {java_class_of(value)} for {where}"
        )
    if schema.type is Type.STRUCT:
        if value.schema != schema:
            raise DataError("Struct schemas do not match.")
        value.validate()
    elif schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        for one in value:
            _validate(schema.value_schema, one, f"element of array {where}")
    elif schema.type is Type.MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        for key, one in value.items():
            _validate(schema.key_schema, key, f"key of map {where}")
            _validate(schema.value_schema, one, f"value of map {where}")


def _fits(schema: Schema, value: ConnectValue) -> bool:
    logical = _LOGICAL_CLASSES.get(schema.name or "")
    if logical is not None:
        if logical is datetime.date and isinstance(value, datetime.datetime):
            return False
        return isinstance(value, logical)
    if schema.type is Type.STRUCT:
        return isinstance(value, Struct)
    if isinstance(value, bool) and schema.type is not Type.BOOLEAN:
        return False
    number: ConnectValue = value
    if not isinstance(value, _CLASSES[schema.type]):
        return False
    bounds = BOUNDS.get(schema.type)
    return bounds is None or bounds[0] <= number <= bounds[1]


_JAVA_CLASSES: Final[dict[type, str]] = {
    bool: "java.lang.Boolean",
    int: "java.lang.Long",
    float: "java.lang.Double",
    str: "java.lang.String",
    bytes: "[B",
    list: "java.util.ArrayList",
    dict: "java.util.HashMap",
    decimal.Decimal: "java.math.BigDecimal",
    datetime.datetime: "java.util.Date",
    datetime.date: "java.util.Date",
    datetime.time: "java.util.Date",
}


def java_class_of(value: ConnectValue) -> str:
    """The class that a value has in Kafka's messages."""
    if isinstance(value, Struct):
        return "class org.apache.kafka.connect.data.Struct"
    return f"class {_JAVA_CLASSES.get(type(value), type(value).__name__)}"


class Struct:
    """A record with a schema. `put` checks each value; `get` gives the default where no value was put.

    >>> person = Struct(struct([("name", STRING)])).put("name", "Ada")
    >>> person.get("name")
    'Ada'
    """

    __slots__ = ("_values", "schema")

    def __init__(self, schema: Schema, values: ConfigValues | None = None) -> None:
        if schema.type is not Type.STRUCT:
            raise DataError(f"Not a struct schema: {schema}")
        self.schema = schema
        self._values: list[ConnectValue] = [None] * len(schema.fields)
        for name, value in (values or {}).items():
            self.put(name, value)

    @classmethod
    def of_values(cls, schema: Schema, values: list[ConnectValue]) -> Struct:
        """A struct with a value for each field, in order. They are not checked: the caller knows that they fit."""
        made = cls.__new__(cls)
        made.schema, made._values = schema, values
        return made

    def values(self) -> list[ConnectValue]:
        """The values as they were put, in the order of the fields. Not to be changed."""
        return self._values

    def put(self, name: str, value: ConnectValue) -> Struct:
        """Sets a field; returns the struct."""
        at = self.schema.field(name)
        _validate(at.schema, value, f'field: "{name}"')
        self._values[at.index] = value
        return self

    def get(self, name: str) -> ConnectValue:
        """The value of a field, or its default."""
        at = self.schema.field(name)
        value = self._values[at.index]
        return at.schema.default if value is None and at.schema.default is not None else value

    def without_default(self, name: str) -> ConnectValue:
        """The value of a field as it was put."""
        return self._values[self.schema.field(name).index]

    def validate(self) -> None:
        """DataError if a required field has no value."""
        for at in self.schema.fields:
            value = self._values[at.index]
            if value is None and (at.schema.optional or at.schema.default is not None):
                continue
            _validate(at.schema, value, f'field: "{at.name}"')

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.schema == other.schema and self._values == other._values

    def __hash__(self) -> int:
        return hash((self.schema, repr(self._values)))

    def __repr__(self) -> str:
        parts = (
            f"{at.name}={value}"
            for at, value in zip(self.schema.fields, self._values, strict=True)
            if value is not None
        )
        return f"Struct{{{','.join(parts)}}}"


INT8: Final = Schema(Type.INT8)
INT16: Final = Schema(Type.INT16)
INT32: Final = Schema(Type.INT32)
INT64: Final = Schema(Type.INT64)
FLOAT32: Final = Schema(Type.FLOAT32)
FLOAT64: Final = Schema(Type.FLOAT64)
BOOLEAN: Final = Schema(Type.BOOLEAN)
STRING: Final = Schema(Type.STRING)
BYTES: Final = Schema(Type.BYTES)
OPTIONAL_STRING: Final = Schema(Type.STRING, optional=True)
OPTIONAL_BYTES: Final = Schema(Type.BYTES, optional=True)
DATE_SCHEMA: Final = Schema(Type.INT32, name=DATE, version=1)
TIME_SCHEMA: Final = Schema(Type.INT32, name=TIME, version=1)
TIMESTAMP_SCHEMA: Final = Schema(Type.INT64, name=TIMESTAMP, version=1)


def optional(schema: Schema) -> Schema:
    """The schema that also allows null."""
    return replace(schema, optional=True, _by_name={})


def changed(schema: Schema, **changes: Unpack[SchemaAttributes]) -> Schema:
    """A schema with some attributes changed."""
    return replace(schema, **changes, _by_name={})


def decimal_schema(scale: int, *, optional: bool = False) -> Schema:
    """The schema of decimals with that many digits after the point."""
    return Schema(Type.BYTES, optional, name=DECIMAL, version=1, parameters={SCALE: str(scale)})


def array(items: Schema, **attributes: Unpack[SchemaAttributes]) -> Schema:
    """The schema of a list."""
    return Schema(Type.ARRAY, value_schema=items, **attributes)


def map_of(keys: Schema, values: Schema, **attributes: Unpack[SchemaAttributes]) -> Schema:
    """The schema of a map."""
    return Schema(Type.MAP, key_schema=keys, value_schema=values, **attributes)


def struct(fields: Iterable[tuple[str, Schema]], **attributes: Unpack[SchemaAttributes]) -> Schema:
    """The schema of a struct, from the names and schemas of its fields."""
    numbered = tuple(Field(name, index, schema) for index, (name, schema) in enumerate(fields))
    return Schema(Type.STRUCT, fields=numbered, **attributes)


def schema_type(value: ConnectValue) -> Type | None:
    """The type of a value that has no schema; None if there is none for its class."""
    if isinstance(value, bool):
        return Type.BOOLEAN
    if isinstance(value, Struct):
        return Type.STRUCT
    for kind, found in (
        (int, Type.INT64),
        (float, Type.FLOAT64),
        (str, Type.STRING),
        ((bytes, bytearray, memoryview), Type.BYTES),
        ((list, tuple), Type.ARRAY),
        (dict, Type.MAP),
    ):
        if isinstance(value, kind):
            return found
    return None
