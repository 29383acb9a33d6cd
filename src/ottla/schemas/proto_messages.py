"""Protobuf messages by the schemas of a registry, without generated classes; and messages as plain Python values.

An absent message or optional field is None, an enum its name, a Timestamp a datetime in UTC, a wrapper its value.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ottla.json_types import JsonTypeError, as_text
from ottla.schemas import proto_built_in
from ottla.schemas.avro_values import MAX_DIGITS, read_long
from ottla.schemas.client import RegisteredSchema, Registry, references_of
from ottla.schemas.errors import InvalidData, SchemaError
from ottla.schemas.values import Value

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.message import Message

MAX_INDEXES: Final = 100
_MAX_IMPORTS_DEPTH: Final = 20
_MAIN: Final = "main.proto"
TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class MessageTypes:
    """The messages of one registered file, and of the files that it imports."""

    def __init__(self, registry: Registry, held: RegisteredSchema) -> None:
        if held.type != "PROTOBUF":
            raise InvalidData(f"the schema {held.id} is {held.type}, and PROTOBUF is wanted", held.id)
        try:
            from google.protobuf import descriptor_pool
        except ImportError:
            raise SchemaError("Protobuf needs the package protobuf: pip install 'ottla[registry]'") from None
        self._registry = registry
        self._pool = descriptor_pool.DescriptorPool()
        self._added: set[str] = set()
        self._by_path: dict[tuple[int, ...], type[Message]] = {}
        self._file = self._add(f"/schemas/ids/{held.id}", _MAIN, 0)

    def _add(self, path: str, name: str, depth: int) -> FileDescriptor:
        """A file and those that it imports, in the pool."""
        from google.protobuf import descriptor_pb2

        if depth > _MAX_IMPORTS_DEPTH:
            raise SchemaError(f"the imports of a schema are nested deeper than {_MAX_IMPORTS_DEPTH} levels")
        answer = self._registry.ask_object("GET", f"{path}?format=serialized", about=name)
        self._added.add(name)
        for one in references_of(answer):
            if one.name not in self._added:
                place = f"/subjects/{quote(one.subject, safe='')}/versions/{one.version}"
                self._add(place, one.name, depth + 1)
        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(
                base64.b64decode(as_text(answer.get("schema")))
            )
        except (binascii.Error, ValueError, JsonTypeError) as error:
            raise SchemaError(f"the registry gives no descriptor of {name}: {error}") from None
        file.name = name
        for each in file.dependency:
            if each not in self._added and proto_built_in.add_to(self._pool, each):
                self._added.add(each)
        self._pool.Add(file)
        return self._pool.FindFileByName(name)

    def at(self, path: Sequence[int]) -> type[Message]:
        """The class of the message at the indexes of a record; the first of the file for none."""
        key = tuple(path) or (0,)
        found = self._by_path.get(key)
        if found is None:
            try:
                kind = list(self._file.message_types_by_name.values())[key[0]]
                for each in key[1:]:
                    kind = list(kind.nested_types)[each]
            except IndexError:
                raise ValueError(f"its file has no message at the indexes {list(key)}") from None
            found = self._by_path[key] = message_class(kind)
        return found

    def named(self, name: str | None) -> type[Message]:
        """The class of a message by its name, with or without the package; the first of the file for None."""
        if name is None:
            return self.at((0,))
        package = f"{self._file.package}." if self._file.package else ""
        for full in (name, package + name):
            try:
                return message_class(self._pool.FindMessageTypeByName(full))
            except KeyError:
                continue
        known = ", ".join(self._file.message_types_by_name)
        raise SchemaError(f"the schema has no message {name}; it has {known}")

    def read(self, data: bytes, start: int) -> Message:
        """The message of a record whose indexes begin at a place."""
        path, start = read_indexes(data, start)
        return parse(self.at(path), data[start:])


def message_class(descriptor: Descriptor) -> type[Message]:
    """The class of a descriptor."""
    from google.protobuf import message_factory

    found: type[Message] = message_factory.GetMessageClass(descriptor)
    return found


def parse(kind: type[Message], data: bytes) -> Message:
    """A message of bytes; ValueError if they are none."""
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ValueError(f"it is not a {kind.DESCRIPTOR.name}: {error}") from None


def read_indexes(data: bytes, start: int) -> tuple[list[int], int]:
    """The indexes of a message type in a record, and the place after them."""
    count, start = read_long(data, start)
    if not 0 <= count <= MAX_INDEXES:
        raise ValueError(f"the record claims {count} indexes of a message type")
    path = []
    for _ in range(count):
        each, start = read_long(data, start)
        if each < 0:
            raise ValueError(f"the record has the index {each} of a message type")
        path.append(each)
    return path, start


def indexes_of(descriptor: Descriptor) -> list[int]:
    """Where a message type stands in its file."""
    found: list[int] = []
    while descriptor.containing_type is not None:
        found.insert(0, list(descriptor.containing_type.nested_types).index(descriptor))
        descriptor = descriptor.containing_type
    return [list(descriptor.file.message_types_by_name.values()).index(descriptor), *found]


# -- plain values


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def repeated(field: FieldDescriptor) -> bool:
    """Whether a field is a list or a map."""
    found = getattr(field, "is_repeated", None)
    # Before version 6 of the package only labels say it.
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def to_python(message: Message) -> dict[str, Value]:
    """A message as a dict of its fields."""
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: FieldDescriptor) -> Value:
    held = getattr(message, field.name)
    if is_map(field):
        convert = _converter(field.message_type.fields_by_name["value"])
        return {key: convert(held[key]) for key in held}
    convert = _converter(field)
    if repeated(field):
        return [convert(each) for each in held]
    if field.has_presence and not message.HasField(field.name):
        return None
    return convert(held)


def _converter(field: FieldDescriptor) -> Callable[[Value], Value]:
    kind = field.message_type
    if kind is None:
        return _enum_name(field.enum_type) if field.enum_type is not None else _same
    if kind.full_name == TIMESTAMP:
        return _moment
    return _unwrapped if kind.full_name in WRAPPERS else to_python


def _same(value: Value) -> Value:
    return value


def _unwrapped(message: Message) -> Value:
    return message.value


def _moment(message: Message) -> dt.datetime:
    return _EPOCH + dt.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def _enum_name(kind: EnumDescriptor) -> Callable[[int], str]:
    names = {number: each.name for number, each in kind.values_by_number.items()}
    # A number of a newer enum has no name here.
    return lambda number: names.get(number, str(number))


def from_python(kind: type[Message], fields: Mapping[str, Value]) -> Message:
    """A message of a dict; what is None stays absent. InvalidData where a value does not fit."""
    message = kind()
    for name, value in fields.items():
        field = kind.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise InvalidData(f"{kind.DESCRIPTOR.full_name} has no field {name}")
        if value is None:
            continue
        try:
            _put(message, field, value)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise InvalidData(f"{kind.DESCRIPTOR.name}.{name}: {error}") from None
    return message


def _put(message: Message, field: FieldDescriptor, value: Value) -> None:
    if is_map(field):
        target, kind = getattr(message, field.name), field.message_type.fields_by_name["value"]
        for key, each in value.items() if isinstance(value, dict) else value:
            if kind.message_type is None:
                target[key] = _scalar(kind, each)
            else:
                target[key].CopyFrom(_message(kind.message_type, each))
    elif repeated(field):
        make = _scalar if field.message_type is None else (lambda at, each: _message(at.message_type, each))
        getattr(message, field.name).extend([make(field, each) for each in value])
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(_message(field.message_type, value))
    else:
        setattr(message, field.name, _scalar(field, value))


def _scalar(field: FieldDescriptor, value: Value) -> Value:
    if field.enum_type is not None and isinstance(value, str):
        found = field.enum_type.values_by_name.get(value)
        if found is None:
            raise ValueError(f"the enum {field.enum_type.name} has no value {value[:80]!r}")
        return found.number
    return int(value) if isinstance(value, decimal.Decimal) else value


def _message(descriptor: Descriptor, value: Value) -> Message:
    kind = message_class(descriptor)
    if descriptor.full_name == TIMESTAMP and isinstance(value, dt.datetime):
        since = (value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH
        return kind(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)
    if descriptor.full_name in WRAPPERS and not isinstance(value, dict):
        return kind(value=value)
    if descriptor.full_name == proto_built_in.DECIMAL and isinstance(value, decimal.Decimal):
        return kind(**_decimal_parts(value))
    if descriptor.full_name == proto_built_in.DATE and isinstance(value, dt.date):
        return kind(year=value.year, month=value.month, day=value.day)
    if descriptor.full_name == proto_built_in.TIME and isinstance(value, dt.time):
        nanos = value.microsecond * 1000
        return kind(hours=value.hour, minutes=value.minute, seconds=value.second, nanos=nanos)
    if not isinstance(value, dict):
        raise TypeError(f"a dict is wanted for {descriptor.name}, not a {type(value).__name__}")
    return from_python(kind, value)


def _decimal_parts(value: decimal.Decimal) -> dict[str, Value]:
    """A decimal as its unscaled number, the number of its digits, and its scale."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or abs(exponent) > MAX_DIGITS or len(digits) > MAX_DIGITS:
        raise ValueError(f"a decimal has at most {MAX_DIGITS} digits")
    number = int("".join(map(str, digits)) or "0") * 10 ** max(0, exponent)
    number = -number if sign else number
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    raw = number.to_bytes(size, "big", signed=True)
    return {"value": raw, "precision": len(str(abs(number))), "scale": max(0, -exponent)}
