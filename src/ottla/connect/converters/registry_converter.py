"""What the converters with a schema registry share: its settings, the schemas that were seen, and plain values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.connect.converters.base import Converter, SchemaAndValue
from ottla.connect.data.schema import ConnectValue, Schema, Struct, Type
from ottla.connect.failures import DataError, Retriable
from ottla.schemas import frames
from ottla.schemas.client import Registry
from ottla.schemas.errors import RegistryUnavailable, SchemaError

_MOST_CACHED: Final = 1_000
_MAX_TYPES: Final = 10_000
_MAX_LEVELS: Final = 100
K = TypeVar("K")
V = TypeVar("V")


class RegistryConverter(Converter):
    """Reads and writes records with schema ids.

    `schema.registry.url` is required; `basic.auth.user.info` is user:password; without `auto.register.schemas` a
    schema must have been registered before.
    """

    format = ""

    def __init__(self, configs: Mapping[str, str] | None = None, *, is_key: bool = False) -> None:
        super().__init__(configs, is_key=is_key)
        self._name = type(self).__name__
        try:
            registry = Registry.of(self.configs)
        except ValueError as error:
            raise DataError(f"{self._name}: schema.registry.url: {error}") from None
        if registry is None:
            raise DataError(f"{self._name} needs the setting schema.registry.url")
        self.registry = registry
        self._registers = self.flag("auto.register.schemas", True)
        self._writers: dict[tuple[str, Schema], Callable[[ConnectValue], bytes]] = {}
        self._readers: dict[int, tuple[Schema, Callable[[bytes], ConnectValue]]] = {}

    @abstractmethod
    def _writer(self, topic: str, schema: Schema) -> Callable[[ConnectValue], bytes]:
        """The function that writes values of a schema to a topic."""

    @abstractmethod
    def _reader(self, schema_id: int) -> tuple[Schema, Callable[[bytes], ConnectValue]]:
        """The Connect schema of a schema id, and the function that reads its records."""

    def from_connect(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        """The record of a value; null without a value."""
        if value is None:
            return None
        if schema is None:
            raise DataError(
                f"{self._name} writes data with a schema only; use a source or transform that gives one"
            )
        try:
            write = _cached(self._writers, (topic, schema), lambda: self._writer(topic, schema))
            return write(value)
        except RegistryUnavailable as error:
            raise Retriable(f"Failed to serialize {self.format} data from topic {topic}: {error}") from error
        except SchemaError as error:
            raise DataError(f"Failed to serialize {self.format} data from topic {topic}: {error}") from error

    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """The value of a record with its schema."""
        if data is None:
            return None, None
        try:
            number = frames.check_prefix(data)
            schema, read = _cached(self._readers, number, lambda: self._reader(number))
            return schema, read(data)
        except RegistryUnavailable as error:
            raise Retriable(
                f"Failed to deserialize data for topic {topic} to {self.format}: {error}"
            ) from error
        except SchemaError as error:
            raise DataError(
                f"Failed to deserialize data for topic {topic} to {self.format}: {error}"
            ) from error

    def subject_of(self, topic: str) -> str:
        """The subject of a topic's keys or values."""
        return f"{topic}-{'key' if self.is_key else 'value'}"


class TypeBudget:
    """Bounds a Connect schema, in which each use of a type is written out: a small hostile one would have no end."""

    def __init__(self, converter: str) -> None:
        self._converter = converter
        self._left = _MAX_TYPES

    def take(self, name: str, above: Sequence[object], *, contains_itself: bool) -> None:
        """Count one more use of a type inside those `above` it."""
        if contains_itself:
            raise DataError(f"{name} contains itself, which {self._converter} does not read")
        self._left -= 1
        if self._left < 0 or len(above) > _MAX_LEVELS:
            raise DataError(
                f"{self._converter} reads schemas of at most {_MAX_TYPES} types and {_MAX_LEVELS} levels, with each use"
                " of a type counted"
            )


def _cached(known: dict[K, V], key: K, make: Callable[[], V]) -> V:
    found = known.get(key)
    if found is None:
        if len(known) >= _MOST_CACHED:
            known.clear()
        found = known[key] = make()
    return found


def plain_value(value: ConnectValue) -> ConnectValue:
    """A Connect value as serializers take it: structs become dicts."""
    if isinstance(value, Struct):
        return {one.name: plain_value(value.get(one.name)) for one in value.schema.fields}
    if isinstance(value, list | tuple):
        return [plain_value(each) for each in value]
    if isinstance(value, dict):
        return {key: plain_value(each) for key, each in value.items()}
    return value


def _same(schema: Schema, value: ConnectValue) -> ConnectValue:
    return value


def connect_value(
    schema: Schema, value: ConnectValue, scalar: Callable[[Schema, ConnectValue], ConnectValue] = _same
) -> ConnectValue:
    """A decoded value as Connect has it: structs in place of dicts, and other values by `scalar`.

    A map may also be a list of entries with a key and a value.
    """
    if value is None:
        return None
    if schema.type is Type.STRUCT:
        found = Struct(schema)
        for one in schema.fields:
            found.put(one.name, connect_value(one.schema, value.get(one.name), scalar))
        return found
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return [connect_value(schema.value_schema, each, scalar) for each in value]
    if schema.type is Type.MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        keys, inner = schema.key_schema, schema.value_schema
        if isinstance(value, dict):
            return {key: connect_value(inner, each, scalar) for key, each in value.items()}
        return {
            connect_value(keys, each["key"], scalar): connect_value(inner, each["value"], scalar)
            for each in value
        }
    return scalar(schema, value)
