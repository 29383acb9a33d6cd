"""Records as JSON text for people: any format that a registry knows, by the schema id in the record.

For tools and pages. Bytes without a schema id stay as they are.
"""

from __future__ import annotations

import decimal
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.schemas import frames
from ottla.schemas.client import RegisteredSchema, Registry
from ottla.schemas.errors import RegistryUnavailable, SchemaError
from ottla.schemas.proto_messages import MessageTypes

if TYPE_CHECKING:
    from ottla.client.engine_types import EngineMessage

_logger = logging.getLogger(__name__)

_MAX_KNOWN: Final = 10_000
_DOWN_FOR_S: Final = 5.0
"""A registry that does not answer is asked again after this time, not with every record."""

Show = Callable[[bytes, int], bytes]
RecordHeaders = Iterable[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A key or a value as JSON text, the format that it has in the log, and the id or guid of its schema."""

    text: bytes
    format: str
    schema: int | str


class Shower:
    """Shows records. A record that cannot be read is shown as its bytes, and the reason is logged."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[int | str, tuple[str, Show]] = {}
        self._logged: set[int | str | None] = set()
        self._down_until = 0.0

    def show(
        self, data: bytes | None, headers: RecordHeaders | None = None, *, key: bool = False
    ) -> bytes | None:
        """JSON for a record with a schema id; the bytes themselves for others."""
        found = self.decode(data, headers, key=key)
        return data if found is None else found.text

    def decode(
        self, data: bytes | None, headers: RecordHeaders | None = None, *, key: bool = False
    ) -> Decoded | None:
        """A record with a schema id as JSON; None for others, and for those that cannot be read."""
        if data is None or time.monotonic() < self._down_until:
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
                return None
            kind, show = self._by_name(name)
            return Decoded(show(data, start), kind, name)
        except RegistryUnavailable as error:
            self._down_until = time.monotonic() + _DOWN_FOR_S
            _logger.warning("Records are shown as they are for %g s: %s", _DOWN_FOR_S, error)
        except (SchemaError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
            if name not in self._logged and len(self._logged) < _MAX_KNOWN:
                self._logged.add(name)
                _logger.warning("Records with the schema id %s are shown as they are: %s", name, error)
        return None

    def _by_name(self, name: int | str) -> tuple[str, Show]:
        found = self._known.get(name)
        if found is None:
            held = self._registry.by_guid(name) if isinstance(name, str) else self._registry.by_id(name)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[name] = held.type, self._shower(held)
        return found

    def _shower(self, held: RegisteredSchema) -> Show:
        if held.type == "JSON":
            return lambda data, start: data[start:]
        if held.type == "PROTOBUF":
            return _protobuf(MessageTypes(self._registry, held))
        decode = self._registry.avro("-")._decoder(held)

        def show(data: bytes, start: int) -> bytes:
            return msgspec.json.encode(decode(data, start), enc_hook=_plain)

        return show


def _protobuf(types: MessageTypes) -> Show:
    from google.protobuf import json_format

    def show(data: bytes, start: int) -> bytes:
        text: str = json_format.MessageToJson(types.read(data, start), indent=None)
        return text.encode()

    return show


def _plain(value: object) -> str:
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


class ShownMessage:
    """A record of librdkafka whose key and value are shown as JSON."""

    __slots__ = ("_message", "_shower")

    def __init__(self, message: EngineMessage, shower: Shower) -> None:
        self._message = message
        self._shower = shower

    def key(self) -> bytes | None:
        """The key as JSON."""
        return self._shower.show(self._message.key(), self._message.headers(), key=True)

    def value(self) -> bytes | None:
        """The value as JSON."""
        return self._shower.show(self._message.value(), self._message.headers())

    def __getattr__(self, name: str) -> object:
        return getattr(self._message, name)

    def __len__(self) -> int:
        return len(self._message)
