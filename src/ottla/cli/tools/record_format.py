"""Records as text: what kafka-console-consumer's formatters print."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from ottla.cli.tools.failures import UsageProblem

if TYPE_CHECKING:
    from ottla.client.engine_types import EngineMessage

_TIMESTAMP_TYPES: Final = {1: "CreateTime", 2: "LogAppendTime"}
"""librdkafka's names for what a record's timestamp is."""


def _number(form: str) -> Callable[[bytes], str]:
    size = struct.calcsize(form)

    def read(data: bytes) -> str:
        if len(data) != size:
            raise UsageProblem(f"a value of {len(data)} bytes is no number of {size} bytes")
        return str(struct.unpack(form, data)[0])

    return read


def _boolean(data: bytes) -> str:
    if data not in (b"\0", b"\1"):
        raise UsageProblem("a value that is neither 0 nor 1 is no boolean")
    return "true" if data == b"\1" else "false"


_DESERIALIZERS: Final[dict[str, Callable[[bytes], str]]] = {
    "String": lambda data: data.decode(errors="replace"),
    "Integer": _number(">i"),
    "Long": _number(">q"),
    "Short": _number(">h"),
    "Float": _number(">f"),
    "Double": _number(">d"),
    "Boolean": _boolean,
    "UUID": lambda data: str(uuid.UUID(data.decode())),
}
_AS_THEY_ARE: Final = ("ByteArray", "Bytes", "ByteBuffer")


@dataclass(slots=True)
class DefaultFormatter:
    """Columns that the `print.` properties ask for, and the value."""

    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_delivery: bool = False
    print_epoch: bool = False
    print_headers: bool = False
    print_key: bool = False
    print_value: bool = True
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    readers: dict[str, Callable[[bytes], str]] = field(default_factory=dict)

    @classmethod
    def configured(cls, properties: Mapping[str, str]) -> DefaultFormatter:
        formatter = cls()
        for key, text in properties.items():
            name = key.replace(".", "_")
            if key.startswith("print.") and hasattr(formatter, name):
                setattr(formatter, name, text.strip().lower() == "true")
            elif key in ("key.separator", "line.separator", "headers.separator", "null.literal"):
                setattr(formatter, name, text.encode())
            elif key in ("key.deserializer", "value.deserializer", "headers.deserializer"):
                formatter._set_reader(key.partition(".")[0], text)
        return formatter

    def _set_reader(self, part: str, class_name: str) -> None:
        kind = class_name.rpartition(".")[2].removesuffix("Deserializer")
        if kind in _AS_THEY_ARE:
            return
        if kind not in _DESERIALIZERS:
            known = ", ".join(sorted([*_DESERIALIZERS, *_AS_THEY_ARE]))
            raise UsageProblem(f"{part}.deserializer={class_name} is unknown here; there are {known}")
        self.readers[part] = _DESERIALIZERS[kind]

    def _show(self, part: str, data: bytes | None) -> bytes:
        reader = self.readers.get(part)
        shown = self.null_literal if data is None else data
        return shown if reader is None else reader(shown).encode()

    def format(self, record: EngineMessage, delivery_count: int | None = None) -> bytes:
        columns: list[bytes] = []
        if self.print_timestamp:
            kind, moment = record.timestamp()
            name = _TIMESTAMP_TYPES.get(kind)
            columns.append(f"{name}:{moment}".encode() if name else b"NO_TIMESTAMP")
        if self.print_partition:
            columns.append(f"Partition:{record.partition()}".encode())
        if self.print_offset:
            columns.append(f"Offset:{record.offset()}".encode())
        if self.print_delivery:
            columns.append(f"Delivery:{'NOT_PRESENT' if delivery_count is None else delivery_count}".encode())
        if self.print_epoch:
            # Kafka's own formatter is not handed the epoch either.
            columns.append(b"Epoch:NOT_PRESENT")
        if self.print_headers:
            columns.append(self._headers(record))
        if self.print_key:
            columns.append(self._show("key", record.key()))
        if self.print_value:
            columns.append(self._show("value", record.value()))
        return self.key_separator.join(columns) + (self.line_separator if columns else b"")

    def _headers(self, record: EngineMessage) -> bytes:
        headers = record.headers() or []
        if not headers:
            return b"NO_HEADERS"
        shown = (name.encode() + b":" + self._show("headers", value) for name, value in headers)
        return self.headers_separator.join(shown)


class NoOpFormatter:
    """Prints nothing."""

    def format(self, record: EngineMessage, delivery_count: int | None = None) -> bytes:
        return b""


class LoggingFormatter:
    """The default format, with a line about each record before it."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._inner = DefaultFormatter.configured(properties)

    def format(self, record: EngineMessage, delivery_count: int | None = None) -> bytes:
        kind, moment = record.timestamp()
        name = _TIMESTAMP_TYPES.get(kind)
        time_text = f"{name}:{moment}, " if name else ""
        key, value = (
            "null" if data is None else data.decode(errors="replace")
            for data in (record.key(), record.value())
        )
        return self._inner.format(record) + f"{time_text}key:{key}, value:{value}\n".encode()


class JsonFormatter:
    """One JSON object per record."""

    def format(self, record: EngineMessage, delivery_count: int | None = None) -> bytes:
        import json

        kind, moment = record.timestamp()
        document = {
            "topic": record.topic(),
            "partition": record.partition(),
            "offset": record.offset(),
            "timestamp": moment if kind else None,
            "timestampType": _TIMESTAMP_TYPES.get(kind),
            "headers": [[name, _text(value)] for name, value in record.headers() or []],
            "key": _text(record.key()),
            "value": _text(record.value()),
        }
        if delivery_count is not None:
            document["deliveryCount"] = delivery_count
        return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _text(data: bytes | None) -> object:
    """The bytes as text if they are UTF-8, otherwise in base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(data).decode()}


class Formatter(Protocol):
    """Whatever makes text of a record."""

    def format(self, record: EngineMessage, delivery_count: int | None = None) -> bytes: ...


_PLAIN: Final = ("DefaultMessageFormatter", "LoggingMessageFormatter", "NoOpMessageFormatter")


def formatter_of(class_name: str | None, properties: Mapping[str, str], as_json: bool) -> Formatter:
    """The formatter that a class name of Kafka's stands for, in whatever package or class it is looked for."""
    kind = "DefaultMessageFormatter" if class_name is None else re.split(r"[.$]", class_name)[-1]
    if kind not in _PLAIN:
        from ottla.cli.tools.record_format_internal import ENCLOSING, INTERNAL, internal_formatter

        if kind in INTERNAL:
            return internal_formatter(kind, as_json)
        known = ", ".join(sorted([*_PLAIN, *INTERNAL]))
        hint = " (a $ in a name needs single quotes around it in a shell)" if kind in ENCLOSING else ""
        raise UsageProblem(f"--formatter {class_name} is unknown here{hint}; there are {known}")
    if as_json:
        return JsonFormatter()
    if kind == "NoOpMessageFormatter":
        return NoOpFormatter()
    if kind == "LoggingMessageFormatter":
        return LoggingFormatter(properties)
    return DefaultFormatter.configured(properties)


def advice_on(class_name: str | None) -> str | None:
    """A line about a class that Kafka has no more, for readers of older tutorials."""
    if class_name is None or not class_name.startswith("kafka."):
        return None
    from ottla.cli.tools.record_format_internal import INTERNAL

    kind = re.split(r"[.$]", class_name)[-1]
    package = INTERNAL.get(kind, "org.apache.kafka.tools.consumer.")
    return f"{class_name} is the old name of {package}{kind}."
