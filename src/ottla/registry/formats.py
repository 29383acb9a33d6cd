"""The three formats behind one interface: parse a schema with its references, and compare two of one format.

Libraries of JSON Schema and Protobuf are loaded with the first schema of their format.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from ottla.registry import avro
from ottla.registry.avro_types import to_text
from ottla.registry.compat import avro as avro_compat
from ottla.registry.errors import InvalidSchema

if TYPE_CHECKING:
    from ottla.registry.json_schema import JsonSchema
    from ottla.registry.protobuf.compiler import Compiler, ProtoSchema

Model: TypeAlias = "avro.AvroSchema | JsonSchema | ProtoSchema"

TYPES: Final = ("JSON", "PROTOBUF", "AVRO")
_CACHED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Source:
    """A schema's text with those of its references, each under its name, dependencies first."""

    type: str
    text: str
    references: tuple[tuple[str, Source], ...] = ()


@dataclass(frozen=True, slots=True)
class Parsed:
    """A schema that its format accepts: the text to keep, the normalized text, and the format's own object."""

    type: str
    text: str
    normalized: str
    model: Model


class Formats:
    """Parses and compares, and remembers what it has parsed lately."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Source, bool], Parsed] = OrderedDict()
        self._compiler: Compiler | None = None

    def parse(self, source: Source, *, lenient: bool = False) -> Parsed:
        """The parsed schema; InvalidSchema if it is not one."""
        key = (source, lenient)
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
            return found
        found = self._parse(source, lenient=lenient)
        self._known[key] = found
        if len(self._known) > _CACHED:
            self._known.popitem(last=False)
        return found

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

    def compare(self, reader: Parsed, writer: Parsed) -> list[str]:
        """Why the reader cannot read the writer's data, as sentences; nothing if it can."""
        if reader.type != writer.type:
            return [f"The schema's type {reader.type} differs from the type {writer.type} of the other one"]
        if reader.type == "AVRO":
            return [str(one) for one in avro_compat.compare(_avro(reader).root, _avro(writer).root)]
        if reader.type == "JSON":
            from ottla.registry.compat import json_schema as json_compat

            return [str(one) for one in json_compat.compare(_json(reader), _json(writer))]
        from ottla.registry.compat import protobuf as protobuf_compat

        return [str(one) for one in protobuf_compat.compare(_proto(reader).model, _proto(writer).model)]

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


def check_levels(formats: Formats, level: str, new: Parsed, old: Sequence[tuple[int, Parsed]]) -> list[str]:
    """The incompatibilities of a new schema by a level; `old` are versions with their schemas, oldest first."""
    if level == "NONE":
        return []
    compared = list(old) if level.endswith("_TRANSITIVE") else list(old[-1:])
    plain = level.removesuffix("_TRANSITIVE")
    messages: list[str] = []
    for version, each in reversed(compared):
        found: list[str] = []
        if plain in ("BACKWARD", "FULL"):
            found += formats.compare(new, each)
        if plain in ("FORWARD", "FULL"):
            found += formats.compare(each, new)
        if found:
            messages += [*found, f"{{oldSchemaVersion: {version}}}", f"{{compatibility: '{level}'}}"]
            break
    return messages
