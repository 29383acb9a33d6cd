"""The process of Debezium's engine, and what goes over its pipes.

To it: a mode (`run` or `validate`) and the properties; then one byte, `C` when a batch is stored, `Q` to end. From it,
a letter and what follows: `S` a schema and its number, `R` a record, `B` the end of a batch, `V` the result of a check,
`E` why the engine ended. Texts and bytes have their length in front, -1 for null.
"""

from __future__ import annotations

import json
import logging
import queue
import struct
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Final

from ottla.connect.converters.json_converter import JsonConverter, JsonNode, parse_json
from ottla.connect.data.record import Headers, SourceRecord
from ottla.connect.data.schema import ConnectValue, Schema, Type
from ottla.connect.failures import ConnectError, Retriable, TaskFailed
from ottla.connect.spi import partition_key
from ottla.json_types import JsonObject

_logger = logging.getLogger(__name__)

_NO_TIME: Final = -(2**63)
_MOST_SCHEMAS: Final = 2000
_LAST_LINES: Final = 20
_MOST_WAITING: Final = 4
"""The engine waits after each batch, so a batch, a failure and the end of the process are the most there can be."""
_FRAMES: Final = ("\tat ", "\t... ")
"""Lines of a trace; its messages are enough."""
_END_S: Final = 30.0
_PASSING_CLASSES: Final = (
    "java.net.",
    "java.io.",
    "java.sql.SQLTransient",
    "java.sql.SQLRecoverable",
    "java.sql.SQLNonTransientConnection",
    "java.util.concurrent.TimeoutException",
    "com.mongodb.MongoSocket",
    "com.mongodb.MongoTimeout",
    "com.mongodb.MongoNotPrimary",
    "org.apache.kafka.connect.errors.RetriableException",
    "org.apache.kafka.common.errors.Timeout",
)
_PASSING_STATES: Final = ("08", "57P")
"""SQL's classes of lost connections, and PostgreSQL's of a server that starts or stops."""
_PASSING_WORDS: Final = ("Unable to connect", "Connection refused", "connection attempt failed", "timed out")


@dataclass(slots=True)
class Batch:
    """What the engine read, up to a place where it can go on."""

    records: list[SourceRecord] = field(default_factory=list)
    offsets: dict[str, JsonObject] = field(default_factory=dict)
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What Debezium's own check of a configuration says."""

    version: str
    errors: tuple[str, ...]


class EngineJson(JsonConverter):
    """The engine's values: JSON with the numbers that JSON does not have as texts, as Java writes them."""

    def __init__(self) -> None:
        super().__init__({"schemas.enable": "false", "replace.null.with.default": "false"})

    def value_of(self, schema: Schema | None, data: bytes | None) -> ConnectValue:
        """A value as it was in the engine."""
        return None if data is None else self._value(schema, parse_json(data))

    def _typed(self, schema: Schema, found: JsonNode) -> ConnectValue:
        if schema.type in (Type.FLOAT32, Type.FLOAT64) and isinstance(found, str):
            return float(found)
        return super()._typed(schema, found)


class EngineHost:
    """One process. `next_batch` is for one thread; the process may end at any time."""

    def __init__(self, command: Sequence[str], mode: str, properties: Mapping[str, str]) -> None:
        self._json = EngineJson()
        self._schemas: dict[int, Schema] = {}
        self._found: queue.Queue[Batch | Verdict | ConnectError] = queue.Queue(_MOST_WAITING)
        self._said: deque[str] = deque(maxlen=_LAST_LINES)
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise TaskFailed(f"Debezium's engine cannot start {command[0]}: {error.strerror}") from None
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._out, self._in = self._process.stdin, self._process.stdout
        self._log = threading.Thread(target=self._listen, args=(self._process.stderr,), daemon=True)
        self._log.start()
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()
        parts = [_packed(mode), struct.pack(">i", len(properties))]
        parts += [_packed(word) for entry in properties.items() for word in entry]
        self._send(b"".join(parts))

    # -- to the engine

    def _send(self, data: bytes) -> None:
        try:
            self._out.write(data)
            self._out.flush()
        except OSError as error:
            _logger.debug("Debezium's engine does not listen: %s", error)

    def stored(self) -> None:
        """The last batch is in Kafka: the engine may tell the database."""
        self._send(b"C")

    def stop(self) -> None:
        """Ends the process; in order if it can."""
        self._send(b"Q")
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._receiver.join()
        self._log.join()
        for stream in (self._out, self._in, self._process.stderr):
            assert stream is not None
            _close(stream)

    # -- from the engine

    def next_found(self, timeout_s: float) -> Batch | Verdict | None:
        """What the engine sent; None if nothing came in time. ConnectError if it ended."""
        try:
            found = self._found.get(timeout=timeout_s) if timeout_s else self._found.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, ConnectError):
            raise found
        return found

    def _listen(self, stream: IO[bytes]) -> None:
        for line in stream:
            text = line.decode(errors="replace").rstrip()
            if text.startswith(_FRAMES):
                continue
            self._said.append(text)
            _logger.info("Debezium: %s", text)

    def _receive(self) -> None:
        batch = Batch()
        try:
            while letter := self._in.read(1):
                if letter == b"S":
                    self._take_schema()
                elif letter == b"R":
                    self._take_record(batch)
                elif letter == b"B":
                    self._found.put(batch)
                    batch = Batch()
                elif letter == b"V":
                    version = self._text()
                    errors = tuple(self._text() for _ in range(self._number()))
                    self._found.put(Verdict(version, errors))
                elif letter == b"E":
                    message = self._text()
                    chain = [(self._text(), self._text(), self._text()) for _ in range(self._number())]
                    self._found.put(failure(message, chain))
        except EOFError:
            pass
        except Exception as error:  # noqa: BLE001 - the run says it
            self._found.put(TaskFailed(f"a record of Debezium's engine cannot be read: {error}"))
            self._process.kill()
            return
        code = self._process.wait()
        self._log.join()
        said = f": {self._said[-1]}" if self._said else ""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        self._found.put(Retriable(f"the process of Debezium's engine {how}{said}"))

    def _take_schema(self) -> None:
        if len(self._schemas) >= _MOST_SCHEMAS:
            # The engine forgets them in the same order, and sooner.
            for number in sorted(self._schemas)[: _MOST_SCHEMAS // 2]:
                del self._schemas[number]
        number = self._number()
        found = self._json.parse_schema(parse_json(self._bytes() or b""))
        assert found is not None
        self._schemas[number] = found

    def _take_record(self, batch: Batch) -> None:
        topic = self._text()
        partition, time = self._number(), struct.unpack(">q", self._exactly(8))[0]
        key_schema, key = self._value(batch)
        value_schema, value = self._value(batch)
        headers = Headers()
        for _ in range(self._number()):
            name = self._text()
            schema, one = self._value(batch)
            headers = headers.add(name, one, schema)
        source: JsonObject = json.loads(self._bytes() or b"{}")
        offset: JsonObject = json.loads(self._bytes() or b"{}")
        batch.offsets[partition_key(source)] = offset
        batch.records.append(
            SourceRecord(
                topic,
                value,
                value_schema,
                key,
                key_schema,
                None if partition < 0 else partition,
                None if time == _NO_TIME else time,
                headers,
                source,
                offset,
            )
        )

    def _value(self, batch: Batch) -> tuple[Schema | None, ConnectValue]:
        number = self._number()
        schema = self._schemas[number] if number >= 0 else None
        data = self._bytes()
        batch.bytes += len(data or b"")
        return schema, self._json.value_of(schema, data)

    def _exactly(self, count: int) -> bytes:
        data = self._in.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def _number(self) -> int:
        found: int = struct.unpack(">i", self._exactly(4))[0]
        return found

    def _bytes(self) -> bytes | None:
        size = self._number()
        return None if size < 0 else self._exactly(size)

    def _text(self) -> str:
        return (self._bytes() or b"").decode()


def failure(message: str, chain: Sequence[tuple[str, str, str]]) -> ConnectError:
    """The error that a run raises, from classes, SQL states and messages of a chain of causes."""
    texts = list(dict.fromkeys(one for *_, one in chain if one)) or [message or "it gave no reason"]
    text = f"Debezium's engine ended: {texts[0]}"
    if texts[-1] not in texts[0]:
        text += f" ({texts[-1]})"
    missing = next((one for name, _, one in chain if name in _MISSING_CLASSES), None)
    if missing is not None:
        return TaskFailed(f"{text}. A library is missing: name it in ottla.debezium.jars")
    passing = any(
        name.startswith(_PASSING_CLASSES) or state.startswith(_PASSING_STATES) for name, state, _ in chain
    )
    if passing or any(word in one for word in _PASSING_WORDS for one in (message, *texts)):
        return Retriable(text)
    return TaskFailed(text)


_MISSING_CLASSES: Final = ("java.lang.NoClassDefFoundError", "java.lang.ClassNotFoundException")


def _packed(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data


def _close(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except OSError as error:
        _logger.debug("a pipe of Debezium's engine: %s", error)
