"""Avro serializers: dataclasses, dicts or files on one side, records with a schema id on the other."""

from __future__ import annotations

import dataclasses
import json
from typing import Unpack

from ottla.registry import avro
from ottla.registry.errors import InvalidSchema
from ottla.schemas.avro_decode import Decoder, compile_decoder
from ottla.schemas.avro_encode import compile_encoder
from ottla.schemas.avro_unions import Members, branches_of, has_structs
from ottla.schemas.client import Reference, RegisteredSchema, Registry
from ottla.schemas.dataclass_schemas import Classes, schema_of
from ottla.schemas.errors import SchemaError
from ottla.schemas.serde import Options, RegistrySerde, Schema, resolve, schema_text
from ottla.schemas.values import Encode


class AvroSerde(RegistrySerde):
    """Writes and reads Avro with schema ids. Give it to a producer, a consumer or a stream.

    `schema` is a dataclass, a schema as a dict or as JSON text, or the path of an .avsc file. Without one, values are
    read with their writers' schemas, and written with the subject's latest version.

    `subject` is its name; without one it is `topic-value` or `topic-key`, or by `strategy` the record's name
    ("record") or both ("topic-record"). `ids` puts the schema id before the data ("prefix") or into a header
    ("header"). Without `auto_register` a schema must have been registered before. `unions` names the types of unions
    for callers that have structs in their place.
    """

    format = "AVRO"

    def __init__(
        self,
        registry: Registry,
        subject: str | None = None,
        schema: Schema = None,
        *,
        namespace: str = "",
        unions: Members | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(registry, subject, **options)
        self._namespace = namespace
        self._unions = unions
        self._schema = schema
        self._classes: Classes = {}
        self._attributes = False
        self._text: str | None = None
        self._own: avro.AvroSchema | None = None
        if schema is not None:
            self._text = self._text_of(schema, namespace)
            self._own = self._parse(self._text, self._references)

    def _more_options(self) -> dict[str, object]:
        return {"schema": self._schema, "namespace": self._namespace, "unions": self._unions}

    def _text_of(self, schema: Schema, namespace: str) -> str:
        if isinstance(schema, type) and dataclasses.is_dataclass(schema):
            document, self._classes = schema_of(schema, namespace)
            self._attributes = True
            return json.dumps(document)
        return schema_text(schema, (".avsc", ".json"))

    def _parse(self, text: str, references: tuple[Reference, ...]) -> avro.AvroSchema:
        parsed: dict[tuple[str, int], avro.AvroSchema] = {}

        def used(each: tuple[Reference, ...]) -> list[avro.AvroSchema]:
            return [parsed[one.subject, one.version] for one in each]

        try:
            for place, held in resolve(self.registry, references).items():
                parsed[place] = avro.parse(held.text, used(held.references), lenient=True)
            return avro.parse(text, used(references), lenient=True)
        except InvalidSchema as error:
            raise SchemaError(f"the Avro schema is invalid: {error}") from None

    # -- writing

    def record_name(self) -> str:
        """The full name of the record, for subjects by record name."""
        if self._own is None or not self._own.root.name:
            raise SchemaError("the strategy by record name needs a schema of a named type")
        return self._own.root.name

    def _encoder(self, subject: str) -> tuple[Encode, RegisteredSchema]:
        if self._own is None:
            held = self.registry.latest(subject)
            own = self._parse(held.text, held.references)
        else:
            held, own = self._held(subject, self._own.text), self._own
        encode = compile_encoder(own.root, attributes=self._attributes, prefix=self._prefix(held))
        unions = self._unions
        if unions is None or not has_structs(own.root, unions):
            return encode, held
        return lambda value: encode(branches_of(own.root, value, unions)), held

    # -- reading

    def _decoder(self, held: RegisteredSchema) -> Decoder:
        self._check_type(held)
        writer = self._parse(held.text, held.references)
        reader = None if self._own is None else self._own.root
        return compile_decoder(writer.root, reader, self._classes, checked=False, members=self._unions)
