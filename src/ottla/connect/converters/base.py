"""What a converter is: it makes bytes of data with a schema, and data of bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from ottla.connect.config.definitions import ConfigDef
from ottla.connect.data.schema import ConnectValue, Schema
from ottla.connect.failures import NotByColumns

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.connect.data.columns import Side

SchemaAndValue = tuple[Schema | None, ConnectValue]


class Converter(ABC):
    """Converts keys, values or headers. `configs` are the connector's keys without the prefix `value.converter.`."""

    java_classes: ClassVar[tuple[str, ...]] = ()
    """Names of Java's converters that a plugin's converter replaces."""

    def __init__(self, configs: Mapping[str, str] | None = None, *, is_key: bool = False) -> None:
        self.configs = dict(configs or {})
        self.is_key = is_key

    @classmethod
    def config_def(cls) -> ConfigDef | None:
        """The keys of a plugin's converter, which are then checked; None if it does not say."""
        return None

    @abstractmethod
    def from_connect(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        """The bytes of a value; DataError if it does not fit."""

    @abstractmethod
    def to_connect(self, topic: str, data: bytes | None) -> SchemaAndValue:
        """The value of bytes, with its schema; DataError if they are damaged."""

    def side_to_bytes(self, topic: str, side: Side) -> pa.Array:
        """`from_connect` of all values. NotByColumns, or any other error, where they must be taken one by one."""
        raise NotByColumns

    def bytes_to_side(self, topic: str, data: pa.Array) -> Side:
        """`to_connect` of a binary array, as `side_to_bytes` the other way round."""
        raise NotByColumns

    def from_header(self, topic: str, key: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        """The bytes of a header."""
        return self.from_connect(topic, schema, value)

    def to_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """The value of a header."""
        return self.to_connect(topic, data)

    def flag(self, name: str, default: bool) -> bool:
        """A setting that is true or false."""
        text = str(self.configs.get(name, default)).strip().lower()
        return text == "true"
