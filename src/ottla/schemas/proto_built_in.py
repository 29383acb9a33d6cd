"""Descriptors of the files that schemas import without a reference, for programs without protoc."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from ottla.registry.protobuf.imports import META_NUMBER

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

GOOGLE: Final = "google/protobuf/"
DECIMAL: Final = "confluent.type.Decimal"
DATE: Final = "google.type.Date"
TIME: Final = "google.type.TimeOfDay"
_META: Final = "confluent/meta.proto"
_DESCRIPTOR: Final = "google/protobuf/descriptor.proto"
_DECIMAL_FIELDS: Final = {"value": "BYTES", "precision": "UINT32", "scale": "INT32"}
_MESSAGES: Final = {
    "confluent/type/decimal.proto": (DECIMAL, _DECIMAL_FIELDS),
    "confluent/types/decimal.proto": (DECIMAL, _DECIMAL_FIELDS),
    "google/type/date.proto": (DATE, dict.fromkeys(("year", "month", "day"), "INT32")),
    "google/type/timeofday.proto": (TIME, dict.fromkeys(("hours", "minutes", "seconds", "nanos"), "INT32")),
}
_EXTENSIONS: Final = {
    "FileOptions": "file_meta",
    "MessageOptions": "message_meta",
    "FieldOptions": "field_meta",
    "EnumOptions": "enum_meta",
    "EnumValueOptions": "enum_value_meta",
}


def add_to(pool: DescriptorPool, name: str) -> bool:
    """Add a file to a pool, with what it imports; False where the file needs a reference."""
    if name.startswith(GOOGLE):
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    elif name == _META:
        add_to(pool, _DESCRIPTOR)
        pool.AddSerializedFile(_meta().SerializeToString())
    elif name in _MESSAGES:
        pool.AddSerializedFile(_message(name).SerializeToString())
    else:
        return False
    return True


def field_params(field: FieldDescriptor) -> dict[str, str]:
    """The parameters of a field's `confluent.field_meta`."""
    from google.protobuf import descriptor_pool, message_factory, unknown_fields

    for one in unknown_fields.UnknownFieldSet(field.GetOptions()):
        if one.field_number == META_NUMBER:
            pool = descriptor_pool.DescriptorPool()
            add_to(pool, _META)
            kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("confluent.Meta"))
            return dict(kind.FromString(one.data).params)
    return {}


def _file(name: str, package: str) -> FileDescriptorProto:
    from google.protobuf import descriptor_pb2

    return descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")


def _message(name: str) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    full, fields = _MESSAGES[name]
    package, _, short = full.rpartition(".")
    file = _file(name, package)
    message = file.message_type.add(name=short)
    for number, (field, kind) in enumerate(fields.items(), 1):
        message.field.add(name=field, number=number, type=f"TYPE_{kind}", label=Field.LABEL_OPTIONAL)
    return file


def _meta() -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    file = _file(_META, "confluent")
    file.dependency.append(_DESCRIPTOR)
    meta = file.message_type.add(name="Meta")
    one, many = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED
    meta.field.add(name="doc", number=1, type=Field.TYPE_STRING, label=one)
    entry_name = ".confluent.Meta.ParamsEntry"
    meta.field.add(name="params", number=2, type=Field.TYPE_MESSAGE, type_name=entry_name, label=many)
    meta.field.add(name="tags", number=3, type=Field.TYPE_STRING, label=many)
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=Field.TYPE_STRING, label=one)
    for options, name in _EXTENSIONS.items():
        file.extension.add(
            name=name,
            number=META_NUMBER,
            extendee=f".google.protobuf.{options}",
            type=Field.TYPE_MESSAGE,
            type_name=".confluent.Meta",
            label=one,
        )
    return file
