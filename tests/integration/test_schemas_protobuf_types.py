"""Protobuf's files that need no reference: Connect's decimals, dates and times, and programs without protoc."""

from __future__ import annotations

import base64
import json

import pytest

from integration.registry_client import Http
from ottla.schemas import Registry
from ottla.testing.registry import RegistryProcess

pytest.importorskip("uvicorn")
pytest.importorskip("grpc_tools")


@pytest.fixture(scope="module")
def process(shared_ottla_broker):
    with RegistryProcess(
        shared_ottla_broker.bootstrap, "--topic", "_built_in", "--group", "built-in"
    ) as running:
        yield running


@pytest.fixture
def registry(process):
    found = Registry(process.url)
    yield found
    found.close()


def test_connects_protobuf_has_decimals_dates_and_times(registry, process):
    import datetime as dt
    import decimal

    from ottla.connect.converters.protobuf_converter import ProtobufConverter
    from ottla.connect.data import schema as data
    from ottla.connect.failures import DataError

    converter = ProtobufConverter({"schema.registry.url": process.url})
    schema = data.struct(
        [
            ("price", data.decimal_schema(2)),
            ("whole", data.optional(data.decimal_schema(0))),
            ("none", data.optional(data.decimal_schema(3))),
            ("prices", data.array(data.decimal_schema(4))),
            ("by_day", data.map_of(data.STRING, data.DATE_SCHEMA)),
            ("day", data.optional(data.DATE_SCHEMA)),
            ("time", data.optional(data.TIME_SCHEMA)),
        ],
        name="shop.Priced",
    )
    value = data.Struct(
        schema,
        {
            "price": decimal.Decimal("-12.30"),
            "whole": decimal.Decimal("1e3"),
            "prices": [decimal.Decimal("0.0001"), decimal.Decimal(0)],
            "by_day": {"x": dt.date(1, 1, 1)},
            "day": dt.date(2026, 11, 18),
            "time": dt.time(23, 59, 59, 999_000),
        },
    )
    written = converter.from_connect("connect-priced", schema, value)
    read_schema, read = converter.to_connect("connect-priced", written)
    # Protobuf's messages may always be absent.
    fields = [(one.name, one.schema) for one in schema.fields]
    absent = [(name, data.optional(each) if name == "price" else each) for name, each in fields]
    assert read_schema == data.struct(absent, name="shop.Priced")
    assert {one.name: read.get(one.name) for one in read_schema.fields} == {
        one.name: value.get(one.name) for one in schema.fields
    }
    assert str(read.get("price")) == "-12.30"
    # Other tools find the same types by their imports, which need no reference, and the scale in the field's options.
    text = Http(process.url).get("/subjects/connect-priced-value/versions/1")["schema"]
    assert "google.type.TimeOfDay time" in text
    from ottla.schemas.show import Shower

    shown = json.loads(Shower(converter.registry).show(written) or b"")
    assert shown["day"] == {"year": 2026, "month": 11, "day": 18}
    wrong = data.Struct(schema, {"price": decimal.Decimal("1.234"), "prices": [], "by_day": {}})
    with pytest.raises(DataError, match="3 digits after the point, and its schema says 2"):
        converter.to_connect("connect-priced", converter.from_connect("connect-priced", schema, wrong))
    converter.registry.close()


def test_the_files_without_references_are_those_of_the_registry(registry):
    """A schema that imports them all is read by a program without protoc."""
    from ottla.registry.protobuf.imports import BUILT_IN
    from ottla.schemas.proto_messages import MessageTypes

    files = [name for name in BUILT_IN if not name.startswith("confluent/types/")]
    imports = "".join(f'import "{name}";\n' for name in files)
    text = (
        f'syntax = "proto3";\n{imports}message All {{ confluent.type.Decimal a = 1 [(confluent.field_meta).doc = "x"];'
        " google.type.Date b = 2; google.type.TimeOfDay c = 3; }\n"
    )
    held = registry.register("all-value", text, "PROTOBUF")
    types = MessageTypes(registry, held)
    kind = types.named("All")
    assert [one.message_type.full_name for one in kind.DESCRIPTOR.fields] == [
        "confluent.type.Decimal",
        "google.type.Date",
        "google.type.TimeOfDay",
    ]
    # What protoc makes of the registry's texts has the same fields and extensions.
    for name in files:
        own = registry.register(f"built-in-{files.index(name)}", BUILT_IN[name], "PROTOBUF")
        answer = registry.ask_object("GET", f"/schemas/ids/{own.id}?format=serialized", about=name)
        mine, theirs = types._pool.FindFileByName(name), descriptor_of(answer["schema"])
        assert fields_of(mine) == fields_of(theirs), name


def descriptor_of(encoded):
    from google.protobuf import descriptor_pb2

    return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(encoded))


def fields_of(file):
    """The names, numbers and types of all fields and extensions of a file."""
    from google.protobuf import descriptor_pb2

    if not isinstance(file, descriptor_pb2.FileDescriptorProto):
        copy = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(copy)
        file = copy
    messages = [*file.message_type, *(each for one in file.message_type for each in one.nested_type)]
    found = [(one.name, each.name, each.number, each.type) for one in messages for each in one.field]
    return found, [(one.extendee, one.name, one.number, one.type_name) for one in file.extension]
