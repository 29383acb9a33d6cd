"""`ottla produce`: lines of standard input become records, as kafka-console-producer has it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from ottla.cli.tools import engine
from ottla.cli.tools.base import Flags, Session, given, not_with, require, tool
from ottla.cli.tools.failures import UsageProblem
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from confluent_kafka import KafkaError as EngineError
    from confluent_kafka import Message, Producer

    from ottla.client.engine_types import EngineSettings

_SETTINGS_OF_FLAGS: Final = {
    "timeout": "linger.ms",
    "request_required_acks": "acks",
    "request_timeout_ms": "request.timeout.ms",
    "message_send_max_retries": "retries",
    "retry_backoff_ms": "retry.backoff.ms",
    "socket_buffer_size": "send.buffer.bytes",
    "batch_size": "batch.size",
    "max_partition_memory_bytes": "batch.size",
    "metadata_expiry_ms": "metadata.max.age.ms",
}
_LINE_READER: Final = "org.apache.kafka.tools.LineMessageReader"
_MAX_QUEUED: Final = 100_000
_LOOK_EACH_S: Final = 0.05

Headers = list[tuple[str, str | bytes | None]]


class ProduceFlags(Flags):
    """The flags of `ottla produce`."""

    topic: str
    sync: bool
    compression_codec: str | None
    reader_property: tuple[str, ...]
    property: tuple[str, ...]
    reader_config: str | None
    command_property: tuple[str, ...]
    producer_property: tuple[str, ...]
    producer_config: str | None
    batch_size: int | None
    max_partition_memory_bytes: int | None
    max_memory_bytes: int | None
    max_block_ms: int
    timeout: int | None
    request_required_acks: str | None
    request_timeout_ms: int | None
    message_send_max_retries: int | None
    retry_backoff_ms: int | None
    metadata_expiry_ms: int | None
    socket_buffer_size: int | None
    line_reader: str | None
    schema_registry: str | None
    schema: str | None
    key_schema: str | None


@tool(
    "produce",
    click.option("--topic", metavar="NAME", help="The topic to write to."),
    click.option("--sync", is_flag=True, help="Wait for each record to be stored before reading on."),
    click.option(
        "--compression-codec",
        is_flag=False,
        flag_value="gzip",
        metavar="CODEC",
        help="none, gzip, snappy, lz4 or zstd; gzip without a value.",
    ),
    click.option("--reader-property", multiple=True, metavar="KEY=VALUE", help="How lines are read."),
    click.option("--property", multiple=True, metavar="KEY=VALUE", help="The old name of --reader-property."),
    click.option("--reader-config", metavar="FILE", help="Properties file with reader properties."),
    click.option("--command-property", multiple=True, metavar="KEY=VALUE", help="A producer setting."),
    click.option(
        "--producer-property", multiple=True, metavar="KEY=VALUE", help="Old for --command-property."
    ),
    click.option("--producer.config", "producer_config", metavar="FILE", help="Old for --command-config."),
    click.option("--batch-size", type=int, metavar="BYTES", help="Size of a batch."),
    click.option("--max-partition-memory-bytes", type=int, metavar="BYTES", help="Old for --batch-size."),
    click.option("--max-memory-bytes", type=int, metavar="BYTES", help="Memory for records on their way."),
    click.option(
        "--max-block-ms", type=int, default=60_000, metavar="MS", help="How long sending may block."
    ),
    click.option("--timeout", type=int, metavar="MS", help="How long a record waits for others (linger.ms)."),
    click.option("--request-required-acks", metavar="ACKS", help="0, 1, -1 or all."),
    click.option("--request-timeout-ms", type=int, metavar="MS", help="How long replicas may take."),
    click.option(
        "--message-send-max-retries", type=int, metavar="COUNT", help="Retries of a failed request."
    ),
    click.option("--retry-backoff-ms", type=int, metavar="MS", help="Pause before a retry."),
    click.option("--metadata-expiry-ms", type=int, metavar="MS", help="Age at which metadata is refreshed."),
    click.option("--socket-buffer-size", type=int, metavar="BYTES", help="The socket's send buffer."),
    click.option("--line-reader", metavar="CLASS", hidden=True),
    click.option(
        "--schema-registry", metavar="URL", help="Lines are JSON: write them by the topic's schemas."
    ),
    click.option(
        "--schema", metavar="FILE", help="The schema of values, which is registered: .avsc, .json, .proto."
    ),
    click.option("--key-schema", metavar="FILE", help="The same for keys."),
)
def produce(session: Session, flags: ProduceFlags) -> None:
    """Write lines from standard input to a topic."""
    require(flags, "topic")
    not_with(flags, "property", "reader_property")
    not_with(flags, "producer_property", "command_property")
    if flags.line_reader not in (None, _LINE_READER):
        raise UsageProblem(f"--line-reader {flags.line_reader}: Java classes cannot be loaded here")
    reader = LineReader.configured(_reader_properties(flags))
    engine.require_broker(session)
    by_schemas = _by_schemas(session, flags, keys=reader.parse_key)
    client = engine.producer(_producer_settings(session, flags))
    sent = _send_all(session, client, flags, reader, by_schemas)
    if session.as_json:
        session.dump({"sent": sent})


def _reader_properties(flags: ProduceFlags) -> dict[str, str]:
    from ottla.cli.properties_file import read_client_properties

    properties = read_client_properties(flags.reader_config) if flags.reader_config else {}
    return properties | engine.parse_properties(flags.reader_property or flags.property)


def _producer_settings(session: Session, flags: ProduceFlags) -> EngineSettings:
    from ottla.cli.properties_file import read_client_properties

    properties = read_client_properties(flags.producer_config) if flags.producer_config else {}
    properties |= engine.parse_properties(flags.command_property or flags.producer_property)
    for name, key in _SETTINGS_OF_FLAGS.items():
        if given(flags, name):
            properties[key] = str(getattr(flags, name))
    if flags.max_memory_bytes is not None:
        properties["queue.buffering.max.kbytes"] = str(max(1, flags.max_memory_bytes // 1024))
    if flags.compression_codec is not None:
        properties["compression.type"] = flags.compression_codec
    properties.setdefault("client.id", "console-producer")
    return engine.settings(session, properties)


Change = Callable[[int, bytes | None, bytes | None], tuple[bytes | None, bytes | None]]
"""From the number of a line, its key and its value to those of the record."""


def _by_schemas(session: Session, flags: ProduceFlags, *, keys: bool) -> Change | None:
    """What writes keys and values by the schemas of a registry; None where lines are records as they are."""
    if not (flags.schema_registry or flags.schema or flags.key_schema):
        return None
    if flags.key_schema and not keys:
        raise UsageProblem("--key-schema needs lines with keys: --reader-property parse.key=true")
    from ottla.schemas.client import Registry
    from ottla.schemas.errors import SchemaError
    from ottla.schemas.json_lines import JsonLines, of_topic

    url = flags.schema_registry
    try:
        registry = Registry.of(
            {**session.properties, "schema.registry.url": url} if url else session.properties
        )
        if registry is None:
            raise UsageProblem("--schema needs a registry: give --schema-registry")
        values = JsonLines(registry, flags.topic, Path(flags.schema) if flags.schema else None)
        key_file = Path(flags.key_schema) if flags.key_schema else None
        key_lines = JsonLines(registry, flags.topic, key_file, key=True) if key_file else None
        if keys and key_lines is None:
            # Keys are mostly texts, without a schema.
            key_lines = of_topic(registry, flags.topic)
    except ValueError as error:
        raise UsageProblem(str(error)) from None

    def change(number: int, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
        try:
            if key is not None and key_lines is not None:
                key = key_lines.write(key)
            return key, None if value is None else values.write(value)
        except SchemaError as error:
            raise UsageProblem(f"line {number} does not fit the schemas of {flags.topic}: {error}") from None

    return change


def _send_all(
    session: Session, client: Producer, flags: ProduceFlags, reader: LineReader, change: Change | None
) -> int:
    from confluent_kafka import KafkaException

    sent = 0

    def delivered(error: EngineError | None, message: Message) -> None:
        nonlocal sent
        if error is not None:
            session.error(f"a record was not stored in {flags.topic}: {error.str()}")
        sent += error is None

    try:
        lines = reader.read(sys.stdin.buffer, prompting=sys.stdin.isatty())
        for number, (headers, key, value) in enumerate(lines, 1):
            if change is not None:
                key, value = change(number, key, value)
            if len(client) >= _MAX_QUEUED:
                client.poll(1.0)
            try:
                _enqueue(client, flags, key, value, headers, delivered)
            except KafkaException as error:
                session.error(f"a record was not stored in {flags.topic}: {error.args[0].str()}")
            client.flush() if flags.sync else client.poll(0)
    except KeyboardInterrupt:
        session.exit_code = 130
    finally:
        # What was read before a line that is refused is sent all the same.
        client.flush()
    return sent


def _enqueue(
    client: Producer,
    flags: ProduceFlags,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    delivered: Callable[[EngineError | None, Message], None],
) -> None:
    """Hand a record to the client; while its memory is full, wait as long as --max-block-ms allows."""
    deadline = time.monotonic() + flags.max_block_ms / 1000
    while True:
        try:
            client.produce(flags.topic, value, key, -1, delivered, headers=headers or None)
            return
        except BufferError:
            if time.monotonic() >= deadline:
                raise ApiException(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"the memory for records was full for {flags.max_block_ms} ms; raise --max-memory-bytes or"
                    " --max-block-ms",
                ) from None
            client.poll(_LOOK_EACH_S)


@dataclass(slots=True)
class LineReader:
    """Takes a line apart into headers, key and value."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None

    @classmethod
    def configured(cls, properties: Mapping[str, str]) -> LineReader:
        reader = cls()
        for name in ("parse.key", "parse.headers", "ignore.error"):
            if name in properties:
                setattr(reader, name.replace(".", "_"), properties[name].strip().lower() == "true")
        for name in (
            *("key.separator", "headers.delimiter", "headers.separator", "headers.key.separator"),
            "null.marker",
        ):
            if name in properties:
                setattr(reader, name.replace(".", "_"), properties[name].encode())
        reader._check()
        return reader

    def _check(self) -> None:
        words = ("headers_delimiter", "headers_separator", "headers_key_separator")
        pairs = [(words[0], words[1]), (words[0], words[2]), (words[1], words[2])]
        if self.null_marker is not None:
            pairs += [("null_marker", other) for other in ("key_separator", *words)]
        for one, other in pairs:
            if getattr(self, one) == getattr(self, other):
                names = one.replace("_", "."), other.replace("_", ".")
                raise UsageProblem(f"{names[0]} and {names[1]} must not be the same")

    def read(
        self, stream: BinaryIO, prompting: bool = False
    ) -> Iterator[tuple[Headers, bytes | None, bytes | None]]:
        number = 0
        while True:
            number += 1
            if prompting:
                click.echo(">", nl=False)
            line = stream.readline()
            if not line:
                return
            yield self.take_apart(line.removesuffix(b"\n").removesuffix(b"\r"), number)

    def take_apart(self, line: bytes, number: int) -> tuple[Headers, bytes | None, bytes | None]:
        """Headers, key and value of a line."""
        rest = line
        headers: Headers = []
        key: bytes | None = None
        if self.parse_headers:
            found, rest = self._before(rest, self.headers_delimiter, "headers.delimiter", line, number)
            if found is not None and found != self.null_marker:
                headers = self._headers(found, number)
        if self.parse_key:
            key, rest = self._before(rest, self.key_separator, "key.separator", line, number)
        return headers, self._or_null(key), self._or_null(rest)

    def _or_null(self, field: bytes | None) -> bytes | None:
        return None if field == self.null_marker else field

    def _before(
        self, rest: bytes, separator: bytes, name: str, line: bytes, number: int
    ) -> tuple[bytes | None, bytes]:
        before, found, after = rest.partition(separator)
        if found:
            return before, after
        if self.ignore_error:
            return None, rest
        shown = line.decode(errors="replace")
        raise UsageProblem(f"there is no {name} '{separator.decode()}' in line {number}: '{shown}'")

    def _headers(self, text: bytes, number: int) -> Headers:
        headers: Headers = []
        for pair in re.split(self.headers_separator, text):
            name, found, value = pair.partition(self.headers_key_separator)
            if not found and not self.ignore_error:
                raise UsageProblem(
                    f"there is no headers.key.separator in '{pair.decode(errors='replace')}' in line {number}"
                )
            if found and name == self.null_marker:
                raise UsageProblem(f"the name of a header cannot be null, as it is in line {number}")
            shown = name.decode(errors="replace")
            headers.append((shown, self._or_null(value) if found else None))
        return headers
