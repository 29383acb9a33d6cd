"""What serializers of all formats share: subjects, schema ids in records, caches by id, and dead letters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, TypedDict

import msgspec

from ottla.client.serializers import Deserializer, Serializer
from ottla.client.structs import Headers
from ottla.schemas import frames
from ottla.schemas.avro_decode import DAMAGED, reason
from ottla.schemas.avro_unions import Members
from ottla.schemas.client import Reference, RegisteredSchema, Registry
from ottla.schemas.errors import InvalidData, SchemaError
from ottla.schemas.rules import check_rules
from ottla.schemas.values import Decode, Encode, Value

if TYPE_CHECKING:
    from ottla.streams.serdes import AnySerde

Schema: TypeAlias = type | Mapping[str, object] | Sequence[object] | str | bool | Path | None
"""A dataclass, a schema as a document or as JSON text, or the path of a file."""
Strategy: TypeAlias = Literal["topic", "record", "topic-record"]
Ids: TypeAlias = Literal["prefix", "header"]

_STRATEGIES: Final = ("topic", "record", "topic-record")
_MAX_DECODERS: Final = 10_000
_MAX_REFERENCES_DEPTH: Final = 20
_MAX_REFERENCES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Poison:
    """In place of the value of a record that could not be read and went to the dead-letter topic. It is false."""

    reason: str
    schema_id: int | None

    def __bool__(self) -> bool:
        return False


class Written(Protocol):
    """A record on its way."""

    def get(self, timeout: float | None = None) -> object:
        """Wait until it is written."""


class Sender(Protocol):
    """What dead letters need of a producer."""

    def send(self, topic: str, *, value: bytes, headers: Headers) -> Written:
        """Queue a record."""


class DeadLetters:
    """Sends records that cannot be read to a topic, as they were, with the reason and the schema id in headers."""

    def __init__(self, producer: Sender, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    def send(self, topic: str, headers: Headers, data: bytes, error: SchemaError, *, key: bool) -> None:
        """Queue a record, and wait until it is written: it must not get lost."""
        more: list[tuple[str, bytes]] = [
            ("__errors.topic", topic.encode()),
            ("__errors.exception", type(error).__name__.encode()),
            ("__errors.message", str(error).encode()),
            ("__errors.field", b"key" if key else b"value"),
        ]
        if error.schema_id is not None:
            more.append(("__errors.schema.id", str(error.schema_id).encode()))
        self._producer.send(self._topic, value=data, headers=[*(headers or []), *more]).get(timeout=60)


class Options(TypedDict, total=False):
    """The options of the serdes of all formats."""

    key: bool
    strategy: Strategy
    ids: Ids
    auto_register: bool
    normalize: bool
    references: tuple[Reference, ...]
    dead_letters: DeadLetters | None


class AvroOptions(Options, total=False):
    """The options of an Avro serde."""

    namespace: str
    unions: Members | None


class JsonOptions(Options, total=False):
    """The options of a JSON serde."""

    validate: bool


class RegistrySerde(Serializer, Deserializer):
    """The base of the serdes of a format: `_encoder` and `_decoder` are theirs."""

    format = ""

    def __init__(
        self,
        registry: Registry,
        subject: str | None,
        *,
        key: bool = False,
        strategy: Strategy = "topic",
        ids: Ids = "prefix",
        auto_register: bool = True,
        normalize: bool = False,
        references: tuple[Reference, ...] = (),
        dead_letters: DeadLetters | None = None,
    ) -> None:
        if strategy not in _STRATEGIES:
            raise SchemaError(f"there is no strategy {strategy!r}: use {', '.join(_STRATEGIES)}")
        if ids not in ("prefix", "header"):
            raise SchemaError(f"ids={ids!r} is not a place for schema ids: use 'prefix' or 'header'")
        self.registry = registry
        self.subject = subject
        self._key = key
        self._strategy = strategy
        self._ids = ids
        self._auto_register = auto_register
        self._normalize = normalize
        self._references = references
        self._dead_letters = dead_letters
        self._header = frames.KEY_HEADER if key else frames.VALUE_HEADER
        self._encoders: dict[str, tuple[Encode, RegisteredSchema]] = {}
        self._decoders: dict[int | str, Decode] = {}
        self._by_prefix: dict[bytes, Decode] = {}
        """The same by the first five bytes of a record."""

    def __reduce__(self) -> tuple[object, ...]:
        options: Options = {
            "key": self._key,
            "strategy": self._strategy,
            "ids": self._ids,
            "auto_register": self._auto_register,
            "normalize": self._normalize,
            "references": self._references,
        }
        # Dead letters stay in the process that has their producer.
        return _rebuild, (type(self), self.registry, self.subject, {**options, **self._more_options()})

    @abstractmethod
    def _more_options(self) -> Mapping[str, object]:
        """The arguments of a format to build its serde again in another process."""

    def _held(
        self, subject: str, text: str, references: tuple[Reference, ...] | None = None
    ) -> RegisteredSchema:
        """A schema as the registry holds it: registered now, or before if that is asked for."""
        submit = self.registry.register if self._auto_register else self.registry.lookup
        used = self._references if references is None else references
        return submit(subject, text, self.format, used, normalize=self._normalize)

    def _prefix(self, held: RegisteredSchema) -> bytes:
        return frames.prefix(held.id) if self._ids == "prefix" else b""

    def _check_type(self, held: RegisteredSchema) -> None:
        if held.type != self.format:
            text = f"the schema {held.id} is {held.type}, and this deserializer reads {self.format}"
            raise InvalidData(text, held.id)

    @abstractmethod
    def _encoder(self, subject: str) -> tuple[Encode, RegisteredSchema]:
        """The function that writes values under a subject, and the schema that it writes them with."""

    @abstractmethod
    def _decoder(self, held: RegisteredSchema) -> Decode:
        """The function that reads what was written with a schema."""

    @abstractmethod
    def record_name(self) -> str:
        """The full name of the type, for subjects by record name."""

    def subject_for(self, topic: str) -> str:
        """The subject of a topic's keys or values."""
        if self.subject is not None:
            return self.subject
        if self._strategy == "topic":
            return f"{topic}-{'key' if self._key else 'value'}"
        name = self.record_name()
        return name if self._strategy == "record" else f"{topic}-{name}"

    def serialize(self, topic: str, headers: Headers, data: object) -> bytes | None:
        """The bytes of a value, with its schema id in front of them or in a header; None stays None."""
        if data is None:
            return None
        found = self._encoders.get(topic)
        if found is None:
            found = self._encoder(self.subject_for(topic))
            check_rules(found[1], "WRITE")
            self._encoders[topic] = found
        if self._ids == "header":
            self._add_header(headers, found[1])
        return found[0](data)

    def _add_header(self, headers: Headers, held: RegisteredSchema) -> None:
        if not held.guid:
            raise SchemaError("the registry gives no guids, which ids in headers need; use ids='prefix'")
        headers.append((self._header, frames.guid_header(held.guid)))

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Value:
        """The value of a record's bytes, read with the schema that the record names; None stays None."""
        if data is None:
            return None
        if not headers and self._dead_letters is None:
            decode = self._by_prefix.get(data[:5])
            if decode is not None:
                try:
                    return decode(data, 5)
                except DAMAGED as error:
                    raise _unreadable(error, frames.check_prefix(data)) from None
        try:
            return self._read(headers, data)
        except SchemaError as error:
            if error.says_nothing_about_the_record:
                # The record may be sound.
                raise
            if error.schema_id is None:
                error.schema_id = frames.schema_id_of(data)
            if self._dead_letters is None:
                raise
            self._dead_letters.send(topic, headers, data, error, key=self._key)
            return Poison(str(error), error.schema_id)

    def _read(self, headers: Headers, data: bytes) -> Value:
        header = frames.header_of(headers, self._header) if headers else None
        if header is not None:
            name, start = frames.read_header(header), 0
        else:
            name, start = frames.check_prefix(data), frames.PREFIX_BYTES
        decode = self._decoders.get(name)
        if decode is None:
            held = (
                self.registry.by_guid(name)
                if isinstance(name, str)
                else self.registry.by_id(name, self.subject or "")
            )
            check_rules(held, "READ")
            decode = self._decoder(held)
            if len(self._decoders) >= _MAX_DECODERS:
                self._decoders.clear()
                self._by_prefix.clear()
            self._decoders[name] = decode
            if isinstance(name, int):
                self._by_prefix[frames.prefix(name)] = decode
        try:
            return decode(data, start)
        except DAMAGED as error:
            raise _unreadable(error, name) from None

    def streams_serde(self) -> AnySerde:
        """This serde for `StreamsBuilder`, which knows no topic when it writes: it needs a subject for that."""
        from ottla.streams.serdes import Serde

        def encode(value: Value) -> bytes:
            if self.subject is None:
                raise SchemaError(
                    "a serde of Streams needs a subject to write: registry.avro('orders-value', ...)"
                )
            written = self.serialize("", [], value)
            assert written is not None
            return written

        def decode(data: bytes) -> Value:
            return self.deserialize("", [], data)

        return Serde(
            f"{self.format.lower()} {self.subject or ''}".strip(), encode, decode, (_streams, (self,))
        )


def _unreadable(error: Exception, name: int | str) -> InvalidData:
    """An error that names the schema id."""
    text = f"a record with the schema id {name} cannot be read: {reason(error)}"
    return InvalidData(text, name if isinstance(name, int) else None)


def _streams(serde: RegistrySerde) -> AnySerde:
    return serde.streams_serde()


def _rebuild(
    kind: type[RegistrySerde], registry: Registry, subject: str | None, options: Mapping[str, Value]
) -> RegistrySerde:
    return kind(registry, subject, **options)


def schema_text(schema: object, suffixes: tuple[str, ...]) -> str:
    """The text of a schema that is given as a document, as text or as the path of a file."""
    if isinstance(schema, dict | list | bool):
        return msgspec.json.encode(schema).decode()
    if isinstance(schema, Path) or (isinstance(schema, str) and schema.endswith(suffixes)):
        try:
            return Path(schema).read_text()
        except OSError as error:
            raise SchemaError(f"the schema file {schema} cannot be read: {error.strerror}") from None
    if isinstance(schema, str):
        return schema
    raise SchemaError(f"{schema!r} is not a schema: give a dataclass, a dict, JSON text or a path")


def resolve(registry: Registry, references: tuple[Reference, ...]) -> dict[tuple[str, int], RegisteredSchema]:
    """The schemas that others use, by subject and version: each once, and after those that it uses itself."""
    found: dict[tuple[str, int], RegisteredSchema] = {}

    def visit(each: tuple[Reference, ...], depth: int) -> None:
        if depth > _MAX_REFERENCES_DEPTH or len(found) > _MAX_REFERENCES:
            raise SchemaError(
                f"a schema has references deeper than {_MAX_REFERENCES_DEPTH} levels or to more than"
                f" {_MAX_REFERENCES} schemas"
            )
        for one in each:
            place = (one.subject, one.version)
            if place not in found:
                held = registry.version(*place)
                visit(held.references, depth + 1)
                found[place] = held

    visit(references, 1)
    return found
