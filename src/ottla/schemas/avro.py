"""Avro serializers: dataclasses, dicts or files on one side, records with a schema id on the other."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from ottla.registry import avro
from ottla.registry.errors import InvalidSchema
from ottla.schemas import frames
from ottla.schemas.avro_decode import Decoder, compile_decoder
from ottla.schemas.avro_encode import compile_encoder
from ottla.schemas.client import Reference, RegisteredSchema, Registry
from ottla.schemas.dataclass_schemas import Classes, schema_of
from ottla.schemas.errors import InvalidData, SchemaError
from ottla.schemas.serde import RegistrySerde

Schema = type | dict[str, Any] | list[Any] | str | Path | None


class AvroSerde(RegistrySerde):
    """Writes and reads Avro with schema ids. Give it to a producer, a consumer or a stream.

    `schema` is a dataclass, a schema as a dict or as JSON text, or the path of an .avsc file. Without one, values are
    read with their writers' schemas, and written with the subject's latest version.

    `subject` is its name; without one it is `topic-value` or `topic-key`, or by `strategy` the record's name
    ("record") or both ("topic-record"). `ids` puts the schema id before the data ("prefix") or into a header
    ("header"). Without `auto_register` a schema must have been registered before.
    """

    format = "AVRO"

    def __init__(
        self,
        registry: Registry,
        subject: str | None = None,
        schema: Schema = None,
        *,
        key: bool = False,
        strategy: Literal["topic", "record", "topic-record"] = "topic",
        ids: Literal["prefix", "header"] = "prefix",
        auto_register: bool = True,
        normalize: bool = False,
        namespace: str = "",
        references: tuple[Reference, ...] = (),
        dead_letters: Any = None,
    ) -> None:
        super().__init__(registry, subject, key=key, strategy=strategy, ids=ids, dead_letters=dead_letters)
        self._options = (auto_register, normalize, namespace, references)
        self._schema = schema
        self._classes: Classes = {}
        self._attributes = False
        self._text: str | None = None
        self._own: avro.AvroSchema | None = None
        if schema is not None:
            self._text = self._text_of(schema, namespace)
            self._own = self._parse(self._text, references)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (
            (self.registry, self.subject, self._schema),
            {
                "key": self._key,
                "strategy": self._strategy,
                "ids": self._ids,
                "auto_register": self._options[0],
                "normalize": self._options[1],
                "namespace": self._options[2],
                "references": self._options[3],
            },
        )

    def _text_of(self, schema: Any, namespace: str) -> str:
        if isinstance(schema, type) and dataclasses.is_dataclass(schema):
            document, self._classes = schema_of(schema, namespace)
            self._attributes = True
            return json.dumps(document)
        if isinstance(schema, dict | list):
            return json.dumps(schema)
        if isinstance(schema, Path) or (isinstance(schema, str) and schema.endswith((".avsc", ".json"))):
            try:
                return Path(schema).read_text()
            except OSError as error:
                raise SchemaError(f"the schema file {schema} cannot be read: {error.strerror}") from None
        if isinstance(schema, str):
            return schema
        raise SchemaError(f"{schema!r} is not a schema: give a dataclass, a dict, JSON text or a path")

    def _parse(self, text: str, references: tuple[Reference, ...]) -> avro.AvroSchema:
        try:
            return avro.parse(text, self._resolve(references), lenient=True)
        except InvalidSchema as error:
            raise SchemaError(f"the Avro schema is invalid: {error}") from None

    def _resolve(self, references: tuple[Reference, ...], depth: int = 0) -> list[avro.AvroSchema]:
        if depth > 20:
            raise SchemaError("the references of a schema are nested deeper than 20 levels")
        found = []
        for one in references:
            held = self.registry.version(one.subject, one.version)
            found.append(avro.parse(held.text, self._resolve(held.references, depth + 1), lenient=True))
        return found

    # -- writing

    def record_name(self) -> str:
        """The full name of the record, for subjects by record name."""
        if self._own is None or not self._own.root.name:
            raise SchemaError("the strategy by record name needs a schema of a named type")
        return self._own.root.name

    def _encoder(self, subject: str) -> tuple[Callable[[Any], bytes], RegisteredSchema]:
        auto_register, normalize, _, references = self._options
        if self._own is None:
            held = self.registry.latest(subject)
            own = self._parse(held.text, held.references)
        else:
            assert self._text is not None
            submit = self.registry.register if auto_register else self.registry.lookup
            held = submit(subject, self._own.text, "AVRO", references, normalize=normalize)
            own = self._own
        prefix = frames.prefix(held.id) if self._ids == "prefix" else b""
        return compile_encoder(own.root, attributes=self._attributes, prefix=prefix), held

    # -- reading

    def _decoder(self, held: RegisteredSchema) -> Decoder:
        if held.type != "AVRO":
            raise InvalidData(
                f"the schema {held.id} is {held.type}, and this deserializer reads AVRO", held.id
            )
        writer = self._parse(held.text, held.references)
        reader = None if self._own is None else self._own.root
        return compile_decoder(writer.root, reader, self._classes, checked=False)


def _rebuild(positional: tuple[Any, ...], named: dict[str, Any]) -> AvroSerde:
    return AvroSerde(*positional, **named)
