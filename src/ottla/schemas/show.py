"""Records as JSON text for people: any format that a registry knows, by the schema id in the record.

For tools and pages. Bytes without a schema id stay as they are.
"""

from __future__ import annotations

import base64
import decimal
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ottla.schemas import frames
from ottla.schemas.avro_values import read_long
from ottla.schemas.client import RegisteredSchema, Registry
from ottla.schemas.errors import SchemaError

_logger = logging.getLogger(__name__)

_MAX_KNOWN: Final = 10_000
_MAX_INDEXES: Final = 100

Show = Callable[[bytes, int], bytes]


class Shower:
    """Shows records. A record that cannot be read is shown as its bytes, and the reason is logged."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[int | str, Show] = {}

    def show(self, data: bytes | None, headers: Any = None, *, key: bool = False) -> bytes | None:
        """JSON for a record with a schema id; the bytes themselves for others."""
        if data is None:
            return None
        name: int | str | None = frames.schema_id_of(data)
        start = frames.PREFIX_BYTES
        header = (
            frames.header_of(headers, frames.KEY_HEADER if key else frames.VALUE_HEADER) if headers else None
        )
        try:
            if header is not None:
                name, start = frames.read_header(header), 0
            if name is None:
                return data
            return self._by_name(name)(data, start)
        except (SchemaError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
            _logger.warning("A record with the schema id %s is shown as it is: %s", name, error)
            return data

    def _by_name(self, name: int | str) -> Show:
        found = self._known.get(name)
        if found is None:
            held = self._registry.by_guid(name) if isinstance(name, str) else self._registry.by_id(name)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[name] = self._shower(held)
        return found

    def _shower(self, held: RegisteredSchema) -> Show:
        if held.type == "JSON":
            return lambda data, start: data[start:]
        if held.type == "PROTOBUF":
            return self._protobuf(held)
        decode = self._registry.avro("-")._decoder(held)

        def show(data: bytes, start: int) -> bytes:
            return msgspec.json.encode(decode(data, start), enc_hook=_plain)

        return show

    def _protobuf(self, held: RegisteredSchema) -> Show:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
        except ImportError:
            raise SchemaError("Protobuf needs the package protobuf: pip install 'ottla[registry]'") from None
        pool = descriptor_pool.DescriptorPool()
        file = self._add(pool, descriptor_pb2, f"/schemas/ids/{held.id}", "main.proto", 0)

        def show(data: bytes, start: int) -> bytes:
            count, start = read_long(data, start)
            if not 0 <= count <= _MAX_INDEXES:
                raise ValueError(f"the record claims {count} indexes of a message type")
            path = []
            for _ in range(count):
                each, start = read_long(data, start)
                path.append(each)
            types = list(file.message_types_by_name.values())
            kind = types[path[0] if path else 0]
            for each in path[1:]:
                kind = list(kind.nested_types)[each]
            message = message_factory.GetMessageClass(kind).FromString(data[start:])
            text: str = json_format.MessageToJson(message, indent=None)
            return text.encode()

        return show

    def _add(self, pool: Any, descriptors: Any, path: str, name: str, depth: int) -> Any:
        """A file and those it imports, in a pool of descriptors."""
        if depth > 20:
            raise SchemaError("the imports of a schema are nested deeper than 20 levels")
        answer = self._registry.ask("GET", f"{path}?format=serialized", about=name)
        for one in answer.get("references") or ():
            place = f"/subjects/{one['subject']}/versions/{one['version']}"
            self._add(pool, descriptors, place, one["name"], depth + 1)
        file = descriptors.FileDescriptorProto.FromString(base64.b64decode(answer["schema"]))
        file.name = name
        for each in file.dependency:
            if each.startswith("google/protobuf/"):
                self._add_built_in(pool, each)
        pool.Add(file)
        return pool.FindFileByName(name)

    @staticmethod
    def _add_built_in(pool: Any, name: str) -> None:
        import importlib

        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def _plain(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


class ShownMessage:
    """A record of librdkafka whose key and value are shown as JSON."""

    __slots__ = ("_message", "_shower")

    def __init__(self, message: Any, shower: Shower) -> None:
        self._message = message
        self._shower = shower

    def key(self) -> bytes | None:
        """The key as JSON."""
        return self._shower.show(self._message.key(), self._message.headers(), key=True)

    def value(self) -> bytes | None:
        """The value as JSON."""
        return self._shower.show(self._message.value(), self._message.headers())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def __len__(self) -> int:
        return len(self._message)
