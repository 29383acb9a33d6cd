"""The three formats behind one interface: parse a schema with its references, and compare two of one format.

Libraries of JSON Schema and Protobuf are loaded with the first schema of their format.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from ottla.registry import avro
from ottla.registry.avro_types import to_text
from ottla.registry.compat import avro as avro_compat
from ottla.registry.compat.budget import Budget
from ottla.registry.errors import InvalidSchema
from ottla.registry.limits import MAX_SCHEMA_BYTES

if TYPE_CHECKING:
    from ottla.registry.json_schema import JsonSchema
    from ottla.registry.protobuf.compiler import Compiler, ProtoSchema

Model: TypeAlias = "avro.AvroSchema | JsonSchema | ProtoSchema"

TYPES: Final = ("JSON", "PROTOBUF", "AVRO")
_MANY: Final = 1 << 40
_CACHED: Final = 1_000
_CACHED_CHARS: Final = 4 * MAX_SCHEMA_BYTES
"""Of all texts together: what is parsed of a text may be twenty times as large."""


class Source:
    """A schema's text with those of its references, each under its name, dependencies first.

    Two are equal by a digest: schemas that refer to the same one twice, level by level, are not walked through again.
    """

    __slots__ = ("chars", "digest", "references", "text", "type")

    def __init__(self, kind: str, text: str, references: tuple[tuple[str, Source], ...] = ()) -> None:
        self.type = kind
        self.text = text
        self.references = references
        self.chars: int = min(_MANY, len(text) + sum(each.chars for _, each in references))
        """The length of its text, and of those that it refers to."""
        found = hashlib.sha256(f"{kind}\0{len(text)}\0{text}".encode("utf-8", "surrogatepass"))
        for name, each in references:
            found.update(f"\0{len(name)}\0{name}".encode("utf-8", "surrogatepass") + each.digest)
        self.digest: bytes = found.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A schema that its format accepts: the text to keep, the normalized text, and the format's own object."""

    type: str
    text: str
    normalized: str
    model: Model

    def meaning(self) -> bytes:
        """Equal for schemas whose texts differ in spelling only."""
        return hashlib.sha256(self.normalized.encode("utf-8", "surrogatepass")).digest()


class Formats:
    """Parses and compares, and remembers what it has parsed lately. Several threads may use it."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Source, bool], Parsed] = OrderedDict()
        self._chars = 0
        self._lock = threading.Lock()
        self._compiler: Compiler | None = None

    def parse(self, source: Source, *, lenient: bool = False) -> Parsed:
        """The parsed schema; InvalidSchema if it is not one."""
        with self._lock:
            # What is valid by the strict rules is so by the lenient ones.
            for key in ((source, False), (source, True)) if lenient else ((source, False),):
                found = self._known.get(key)
                if found is not None:
                    self._known.move_to_end(key)
                    return found
        found = self._parse(source, lenient=lenient)
        with self._lock:
            if (source, lenient) not in self._known:
                self._known[source, lenient] = found
                self._chars += len(source.text)
            while len(self._known) > _CACHED or self._chars > _CACHED_CHARS:
                (oldest, _), _ = self._known.popitem(last=False)
                self._chars -= len(oldest.text)
        return found

    def knows(self, source: Source) -> bool:
        """Whether a schema is parsed already."""
        with self._lock:
            return (source, False) in self._known or (source, True) in self._known

    def _parse(self, source: Source, *, lenient: bool) -> Parsed:
        references = [(name, self.parse(each, lenient=True)) for name, each in source.references]
        for name, each in references:
            if each.type != source.type:
                raise InvalidSchema(f"the reference {name} is {each.type}, and the schema is {source.type}")
        if source.type == "AVRO":
            used = [_avro(each) for _, each in references]
            schema = avro.parse(source.text, used, lenient=lenient)
            borrowed = frozenset(name for each in used for name in each.names)
            plain = to_text(schema.root, known=borrowed, sort_props=True)
            return Parsed("AVRO", schema.text, plain, schema)
        if source.type == "JSON":
            from ottla.registry import json_schema

            document = json_schema.parse(source.text, {name: _json(each) for name, each in references})
            sorted_ = json.dumps(document.document, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
            return Parsed("JSON", document.text, sorted_, document)
        if source.type == "PROTOBUF":
            return self._protobuf(source, references)
        raise InvalidSchema(f"there is no schema type {source.type}: the types are {', '.join(TYPES)}")

    def _protobuf(self, source: Source, references: list[tuple[str, Parsed]]) -> Parsed:
        if self._compiler is None:
            from ottla.registry.protobuf.compiler import Compiler

            self._compiler = Compiler()
        files: dict[str, str] = {}
        for name, each in references:
            files.update(_proto(each).files)
            files[name] = _proto(each).text
        found = self._compiler.compile(source.text, files)
        return Parsed("PROTOBUF", found.text, found.canonical, found)

    def close(self) -> None:
        """End the process that compiles Protobuf, if there is one."""
        if self._compiler is not None:
            self._compiler.close()

    def compare(self, reader: Parsed, writer: Parsed, budget: Budget) -> list[str]:
        """Why the reader cannot read the writer's data, as sentences; nothing if it can."""
        if reader.type != writer.type:
            return [f"The schema's type {reader.type} differs from the type {writer.type} of the other one"]
        if reader.type == "AVRO":
            return [str(one) for one in avro_compat.compare(_avro(reader).root, _avro(writer).root, budget)]
        if reader.type == "JSON":
            from ottla.registry.compat import json_schema as json_compat

            return [str(one) for one in json_compat.compare(_json(reader), _json(writer), budget)]
        from ottla.registry.compat import protobuf as protobuf_compat

        return [str(one) for one in protobuf_compat.compare(_proto(reader).model, _proto(writer).model)]

    def compare_by(self, level: str, new: Parsed, old: Parsed, budget: Budget) -> list[str]:
        """The incompatibilities of a new schema with an old one by a level that is not transitive."""
        found: list[str] = []
        if level in ("BACKWARD", "FULL"):
            found += self.compare(new, old, budget)
        if level in ("FORWARD", "FULL"):
            found += self.compare(old, new, budget)
        return found

    def formatted(self, parsed: Parsed, wanted: str) -> str:
        """The text in the form `serialized` or `resolved`, where the format has one; else the plain text."""
        if parsed.type == "AVRO" and wanted == "resolved":
            return to_text(_avro(parsed).root)
        if parsed.type == "PROTOBUF" and wanted == "serialized":
            return _proto(parsed).serialized
        return parsed.text


# The modules of two formats are loaded with their first schema, so their classes cannot be asked for here.


def _avro(parsed: Parsed) -> avro.AvroSchema:
    return cast("avro.AvroSchema", parsed.model)


def _json(parsed: Parsed) -> JsonSchema:
    return cast("JsonSchema", parsed.model)


def _proto(parsed: Parsed) -> ProtoSchema:
    return cast("ProtoSchema", parsed.model)
