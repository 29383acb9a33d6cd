"""JSON serializers with schema ids: dataclasses or plain data, checked against a JSON Schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias, Unpack

import msgspec

from ottla.json_types import Json
from ottla.schemas.client import Reference, RegisteredSchema, Registry
from ottla.schemas.errors import InvalidData, SchemaError
from ottla.schemas.serde import Options, RegistrySerde, Schema, resolve, schema_text
from ottla.schemas.values import Decode, Encode, Value

Check: TypeAlias = Callable[[Value], None]
"""Raises InvalidData for a document that its schema does not accept."""


class JsonSchemaSerde(RegistrySerde):
    """Writes and reads JSON with schema ids.

    `schema` is a dataclass, a JSON Schema as a dict or as text, or the path of a file. With `validate` values are
    checked against it, which needs the package `jsonschema`; dataclasses are always checked when they are read.
    """

    format = "JSON"

    def __init__(
        self,
        registry: Registry,
        subject: str | None = None,
        schema: Schema = None,
        *,
        validate: bool = True,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(registry, subject, **options)
        self._schema = schema
        self._validate = validate
        self._kind: type | None = None
        self._text = None if schema is None else self._text_of(schema)

    def _more_options(self) -> dict[str, object]:
        return {"schema": self._schema, "validate": self._validate}

    def _text_of(self, schema: Schema) -> str:
        if isinstance(schema, type) and dataclasses.is_dataclass(schema):
            self._kind = schema
            return msgspec.json.encode({"title": schema.__name__, **msgspec.json.schema(schema)}).decode()
        return schema_text(schema, (".json",))

    def record_name(self) -> str:
        """The title of the schema, for subjects by record name."""
        title = msgspec.json.decode(self._text).get("title") if self._text else None
        if not isinstance(title, str):
            raise SchemaError("the strategy by record name needs a schema with a title")
        return title

    def _encoder(self, subject: str) -> tuple[Encode, RegisteredSchema]:
        held = self.registry.latest(subject) if self._text is None else self._held(subject, self._text)
        check = self._validator(held) if self._validate else None
        prefix = self._prefix(held)

        def encode(value: Value) -> bytes:
            try:
                data = msgspec.json.encode(value)
            except (TypeError, ValueError) as error:
                raise InvalidData(f"the value cannot be written as JSON: {error}") from None
            if check is not None:
                check(msgspec.json.decode(data))
            return prefix + data

        return encode, held

    def _decoder(self, held: RegisteredSchema) -> Decode:
        self._check_type(held)
        check = self._validator(held) if self._validate and self._kind is None else None
        decoder: msgspec.json.Decoder[Value] = msgspec.json.Decoder(self._kind or object)

        def decode(data: bytes, start: int) -> Value:
            try:
                value = decoder.decode(memoryview(data)[start:])
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise ValueError(f"the data does not fit: {error}") from None
            if check is not None:
                check(value)
            return value

        return decode

    def _validator(self, held: RegisteredSchema) -> Check:
        try:
            import jsonschema
            from referencing import Registry as Documents
            from referencing import Resource
            from referencing.jsonschema import DRAFT7
        except ImportError:
            raise SchemaError(
                "validation of JSON needs the package jsonschema: pip install 'ottla[registry]', or validate=False"
            ) from None
        documents: Documents[Json] = Documents()
        for name, text in self._texts(held.references).items():
            resource = Resource.from_contents(msgspec.json.decode(text), default_specification=DRAFT7)
            documents = documents.with_resource(name, resource)
        document = msgspec.json.decode(held.text)
        kind = jsonschema.validators.validator_for(document, default=jsonschema.Draft7Validator)
        validator = kind(document, registry=documents)

        def check(value: Value) -> None:
            found = next(validator.iter_errors(value), None)
            if found is not None:
                raise InvalidData(f"{found.json_path}: {found.message[:300]}")

        return check

    def _texts(self, references: tuple[Reference, ...]) -> dict[str, str]:
        """The texts of all schemas that are referenced, by the name that the reference gives them."""
        held = resolve(self.registry, references)
        every = [*references, *(one for each in held.values() for one in each.references)]
        return {one.name: held[one.subject, one.version].text for one in every}
