"""How schemas come: as text or as a descriptor, with files that they may import without a reference.

These are Confluent's options for tags, its decimal type, and the types of Google that Connect's dates become. Their
names and numbers are part of the format: serializers of all languages read and write them. `google/protobuf/*` comes
with protoc.
"""

from __future__ import annotations

from typing import Final

META_NUMBER: Final = 1088
"""The number of each of the options in the options of Protobuf."""
_META_OPTIONS: Final = {
    "FileOptions": "file_meta",
    "MessageOptions": "message_meta",
    "FieldOptions": "field_meta",
    "EnumOptions": "enum_meta",
    "EnumValueOptions": "enum_value_meta",
}


def _meta() -> str:
    message = "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }"
    extensions = [
        f"extend google.protobuf.{options} {{ Meta {name} = {META_NUMBER}; }}"
        for options, name in _META_OPTIONS.items()
    ]
    head = ['syntax = "proto3";', "package confluent;", 'import "google/protobuf/descriptor.proto";']
    return "\n".join([*head, message, *extensions]) + "\n"


def _decimal() -> str:
    message = "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    return "\n".join(['syntax = "proto3";', "package confluent.type;", message]) + "\n"


def _google_type(message: str) -> str:
    return "\n".join(['syntax = "proto3";', "package google.type;", message]) + "\n"


BUILT_IN: Final = {
    "confluent/meta.proto": _meta(),
    "confluent/type/decimal.proto": _decimal(),
    # Confluent's package for Python has the same message under this name.
    "confluent/types/decimal.proto": _decimal(),
    "google/type/date.proto": _google_type(
        "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }"
    ),
    "google/type/timeofday.proto": _google_type(
        "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"
    ),
}


def is_text(schema: str) -> bool:
    """Whether a schema is .proto text, and not a descriptor in base64, as Confluent's Python sends it."""
    return any(char in schema.strip() for char in "{;\"'\n")
