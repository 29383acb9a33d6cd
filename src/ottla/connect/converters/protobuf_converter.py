"""ProtobufConverter: Connect's data as Protobuf messages with a schema in a registry.

Optional fields carry the word `optional`, as Confluent's converter writes them with `optional.for.nullables`.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.connect.converters.registry_converter import (
    RegistryConverter,
    TypeBudget,
    connect_value,
    plain_value,
)
from ottla.connect.data import schema as data
from ottla.connect.data.schema import ConnectValue, Schema, Type
from ottla.connect.failures import DataError
from ottla.schemas import frames, proto_built_in
from ottla.schemas.avro_values import MAX_DIGITS
from ottla.schemas.errors import InvalidData
from ottla.schemas.proto import index_bytes
from ottla.schemas.proto_messages import (
    TIMESTAMP,
    WRAPPERS,
    MessageTypes,
    from_python,
    is_map,
    parse,
    read_indexes,
    repeated,
    to_python,
)
from ottla.schemas.rules import check_rules

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_PROTO_TYPES: Final = {
    Type.INT8: "int32",
    Type.INT16: "int32",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "bool",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_KEYS: Final = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.BOOLEAN, Type.STRING)
_CONNECT_TYPES: Final = {
    1: Type.FLOAT64,
    2: Type.FLOAT32,
    **dict.fromkeys((3, 4, 6, 7, 13, 16, 18), Type.INT64),
    **dict.fromkeys((5, 15, 17), Type.INT32),
    8: Type.BOOLEAN,
    9: Type.STRING,
    12: Type.BYTES,
    14: Type.STRING,
}
"""By the numbers of `FieldDescriptorProto.Type`; unsigned numbers of 32 bits need 64, and enums are names."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_DEFAULT_NAME: Final = "ConnectDefault1"
_META: Final = "confluent.field_meta"
_IMPORTS: Final = {
    TIMESTAMP: "google/protobuf/timestamp.proto",
    proto_built_in.DATE: "google/type/date.proto",
    proto_built_in.TIME: "google/type/timeofday.proto",
    proto_built_in.DECIMAL: "confluent/type/decimal.proto",
    _META: "confluent/meta.proto",
}
"""The files of the types and the option that a schema may use."""
_MESSAGES: Final = {
    data.TIMESTAMP: TIMESTAMP,
    data.DATE: proto_built_in.DATE,
    data.TIME: proto_built_in.TIME,
    data.DECIMAL: proto_built_in.DECIMAL,
}
_FIRST: Final = index_bytes([0])


class ProtobufConverter(RegistryConverter):
    """`io.confluent.connect.protobuf.ProtobufConverter`: see `RegistryConverter` for its settings.

    INT8 and INT16 come back as INT32, and a struct inside another may always be null: Protobuf does not tell more.
    """

    format = "Protobuf"

    def _writer(self, topic: str, schema: Schema) -> Callable[[ConnectValue], bytes]:
        text = proto_of(schema)
        submit = self.registry.register if self._registers else self.registry.lookup
        held = submit(self.subject_of(topic), text, "PROTOBUF")
        check_rules(held, "WRITE")
        kind = MessageTypes(self.registry, held).at((0,))
        prefix = frames.prefix(held.id) + _FIRST

        def write(value: ConnectValue) -> bytes:
            written: bytes = prefix + from_python(kind, plain_value(value)).SerializeToString()
            return written

        return write

    def _reader(self, schema_id: int) -> tuple[Schema, Callable[[bytes], ConnectValue]]:
        held = self.registry.by_id(schema_id)
        check_rules(held, "READ")
        types = MessageTypes(self.registry, held)
        schemas: dict[tuple[int, ...], Schema] = {}

        def read(record: bytes) -> ConnectValue:
            try:
                path, start = read_indexes(record, frames.PREFIX_BYTES)
                kind = types.at(path)
                schema = schemas.get(tuple(path))
                if schema is None:
                    schema = schemas[tuple(path)] = schema_of(kind.DESCRIPTOR)
                return connect_value(schema, to_python(parse(kind, record[start:])), _logical)
            except (ValueError, IndexError, ArithmeticError) as error:
                text = f"a record with the schema id {schema_id} cannot be read: {error}"
                raise InvalidData(text, schema_id) from None

        return schema_of(types.at((0,)).DESCRIPTOR), read

    def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, ConnectValue]:
        """The value of a record; the schema is that of its message, which need not be the first of the file."""
        schema, value = super().to_connect(topic, data)
        return (schema, None) if value is None else (value.schema, value)


# -- Connect to Protobuf


def proto_of(schema: Schema) -> str:
    """The .proto file of a struct's schema."""
    if schema.type is not Type.STRUCT:
        raise DataError(f"ProtobufConverter writes structs, not {schema.type}; use the transform HoistField")
    package, _, name = (schema.name or _DEFAULT_NAME).rpartition(".")
    body = _message(name, schema, "")
    head = 'syntax = "proto3";\n'
    if package:
        head += f"package {'.'.join(_checked(part) for part in package.split('.'))};\n"
    imports = [f'import "{file}";\n' for word, file in _IMPORTS.items() if word in body]
    return head + "".join(imports) + body


def _message(name: str, schema: Schema, indent: str) -> str:
    inner: dict[str, Schema] = {}
    lines = [
        f"{indent}  {_field(one.schema, one.name, inner)} {_checked(one.name)} = {one.index + 1}{_scale(one.schema)};\n"
        for one in schema.fields
    ]
    lines += [_message(each, its, indent + "  ") for each, its in inner.items()]
    return f"{indent}message {_checked(name)} {{\n{''.join(lines)}{indent}}}\n"


def _field(schema: Schema, name: str, inner: dict[str, Schema]) -> str:
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return f"repeated {_type(schema.value_schema, name, inner)}"
    if schema.type is Type.MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        if schema.key_schema.type not in _KEYS:
            raise DataError(
                f"ProtobufConverter has no map with keys of the type {schema.key_schema.type} ({name})"
            )
        values = _type(schema.value_schema, name, inner)
        return f"map<{_PROTO_TYPES[schema.key_schema.type]}, {values}>"
    kind = _type(schema, name, inner)
    plain = schema.type is not Type.STRUCT and kind not in _IMPORTS
    return f"optional {kind}" if schema.optional and plain else kind


def _type(schema: Schema, name: str, inner: dict[str, Schema]) -> str:
    if schema.name in _MESSAGES:
        return _MESSAGES[schema.name]
    if schema.type in (Type.ARRAY, Type.MAP):
        raise DataError(
            f"Protobuf has no list or map inside a list or map (field {name}); put it into a struct"
        )
    if schema.type is not Type.STRUCT:
        return _PROTO_TYPES[schema.type]
    wanted = (schema.name or name[:1].upper() + name[1:]).rpartition(".")[2]
    while inner.setdefault(wanted, schema) != schema:
        wanted += "_"
    return wanted


def _scale(schema: Schema) -> str:
    """The option that tells a decimal's scale, of a field, or of a list's or map's values."""
    one = schema.value_schema if schema.type in (Type.ARRAY, Type.MAP) and schema.value_schema else schema
    if one.name != data.DECIMAL:
        return ""
    scale = int((one.parameters or {}).get(data.SCALE, "0"))
    return f' [({_META}) = {{ params: [{{ key: "scale", value: "{scale}" }}] }}]'


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise DataError(
            f"{name[:100]!r} is not a name in Protobuf; rename it with the transform ReplaceField"
        )
    return name


# -- Protobuf to Connect


def schema_of(
    descriptor: Descriptor, above: tuple[str, ...] = (), budget: TypeBudget | None = None
) -> Schema:
    """The Connect schema of a message, inside those `above` it."""
    name = descriptor.full_name
    budget = budget or TypeBudget("ProtobufConverter")
    budget.take(f"the message {name}", above, contains_itself=name in above)
    fields = [(field.name, _schema_of_field(field, (*above, name), budget)) for field in descriptor.fields]
    return data.struct(fields, name=descriptor.full_name)


def _schema_of_field(field: FieldDescriptor, above: tuple[str, ...], budget: TypeBudget) -> Schema:
    if is_map(field):
        entry = field.message_type.fields_by_name
        scale = _scale_of(field)
        values = _schema_of_one(entry["value"], above, budget, scale)
        return data.map_of(_schema_of_one(entry["key"], above, budget), values)
    found = _schema_of_one(field, above, budget, _scale_of(field))
    if repeated(field):
        return data.array(found)
    return data.optional(found) if field.has_presence else found


def _scale_of(field: FieldDescriptor) -> int:
    """The scale of the decimals of a field, as its options tell it."""
    scale = proto_built_in.field_params(field).get(data.SCALE, "0")
    return int(scale) if scale.isascii() and scale.isdigit() and len(scale) < 6 else 0


def _schema_of_one(
    field: FieldDescriptor, above: tuple[str, ...], budget: TypeBudget, scale: int = 0
) -> Schema:
    kind = field.message_type
    if kind is None:
        return Schema(_CONNECT_TYPES[field.type])
    if kind.full_name == TIMESTAMP:
        return data.TIMESTAMP_SCHEMA
    if kind.full_name == proto_built_in.DATE:
        return data.DATE_SCHEMA
    if kind.full_name == proto_built_in.TIME:
        return data.TIME_SCHEMA
    if kind.full_name == proto_built_in.DECIMAL:
        return data.decimal_schema(scale)
    if kind.full_name in WRAPPERS:
        return _schema_of_one(kind.fields_by_name["value"], above, budget)
    return schema_of(kind, above, budget)


def _logical(schema: Schema, value: ConnectValue) -> ConnectValue:
    """The message of a logical type as Connect's value."""
    if not isinstance(value, dict):
        return value
    if schema.name == data.DATE:
        return dt.date(value["year"], value["month"], value["day"])
    if schema.name == data.TIME:
        return dt.time(value["hours"], value["minutes"], value["seconds"], value["nanos"] // 1000)
    return _decimal(schema, value)


def _decimal(schema: Schema, value: ConnectValue) -> decimal.Decimal:
    scale = int((schema.parameters or {}).get(data.SCALE, "0"))
    own = value["scale"]
    if not 0 <= own <= MAX_DIGITS or len(value["value"]) > MAX_DIGITS:
        raise ValueError(f"a decimal has more than {MAX_DIGITS} digits")
    number = int.from_bytes(value["value"], "big", signed=True)
    if own > scale:
        number, lost = divmod(number, 10 ** (own - scale))
        if lost:
            raise ValueError(
                f"a decimal has {own} digits after the point, and its schema says {scale}"
                " (the parameter scale of confluent.field_meta)"
            )
        own = scale
    sign, digits = int(number < 0), tuple(map(int, str(abs(number) * 10 ** (scale - own))))
    return decimal.Decimal((sign, digits, -scale))
