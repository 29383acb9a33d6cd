"""Schemas that mean harm, in all three formats: what a registry or a program does with them is bounded."""

from __future__ import annotations

import json
import time
import tracemalloc
from contextlib import contextmanager

import pytest

from ottla.registry import avro, json_schema
from ottla.registry.avro_types import to_text
from ottla.registry.compat import avro as avro_compat
from ottla.registry.compat import json_schema as json_compat
from ottla.registry.errors import InvalidSchema
from ottla.schemas.avro_decode import compile_decoder
from ottla.schemas.avro_encode import compile_encoder
from ottla.schemas.errors import SchemaError
from ottla.schemas.json_schema_types import json_type

MAX_BYTES = 64 << 20
MAX_CPU_S = 20


@contextmanager
def bounded():
    """What happens inside takes little time and memory; without its bounds each of these would take all there is."""
    tracemalloc.start()
    began = time.process_time()
    try:
        yield
        assert time.process_time() - began < MAX_CPU_S
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()


def record(number, *types):
    fields = [{"name": f"f{at}", "type": each} for at, each in enumerate(types)]
    return {"type": "record", "name": f"L{number}", "fields": fields}


def avro_laughs(leaf="int", levels=60):
    """Each record has three fields of the one below: written out it would be three to the power of sixty fields."""
    one = record(0, leaf)
    for level in range(1, levels):
        one = record(level, one, f"L{level - 1}", ["null", f"L{level - 1}"])
    return json.dumps(one)


def avro_chain(length=3_000):
    """A union of records, each with a field of the one before: not nested as text, but deep as a type."""
    return json.dumps([record(0, "int"), *(record(at, f"L{at - 1}") for at in range(1, length))])


def test_billion_laughs_in_avro_are_compared_and_compiled_by_their_names():
    with bounded():
        one, other = avro.parse(avro_laughs()), avro.parse(avro_laughs("long"))
        assert avro_compat.compare(other.root, one.root) == []
        assert avro_compat.compare(one.root, other.root) != []
        assert len(to_text(one.root)) < 20_000
        compile_decoder(one.root, other.root)
        compile_decoder(one.root, rows=True, texts=False)
        encode = compile_encoder(one.root)
    with pytest.raises(SchemaError):
        encode({"f0": {}})


def default_laughs():
    """Three fields of the type below at each level, which all are left out of the default."""
    one = {"type": "record", "name": "L0", "fields": [{"name": "f", "type": "int", "default": 0}]}
    for level in range(1, 50):
        types = [one, f"L{level - 1}", f"L{level - 1}"]
        fields = [{"name": f"f{at}", "type": each, "default": {}} for at, each in enumerate(types)]
        one = {"type": "record", "name": f"L{level}", "fields": fields}
    return one


@pytest.mark.parametrize(
    "field",
    [
        {"name": "x", "type": default_laughs(), "default": {}},
        {
            "name": "x",
            "type": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "R", "default": {}}]},
            "default": {},
        },
    ],
    ids=["laughs", "itself"],
)
def test_defaults_that_have_no_end_are_refused(field):
    reader = avro.parse(json.dumps({"type": "record", "name": "T", "fields": [field]})).root
    writer = avro.parse('{"type":"record","name":"T","fields":[]}').root
    with bounded():
        with pytest.raises(SchemaError, match="default of the field"):
            compile_encoder(reader)
        with pytest.raises(SchemaError, match="default of the field"):
            compile_decoder(writer, reader)


def test_a_value_is_asked_once_whether_it_fits_a_branch():
    # Two branches at each level: branch by branch it would be two to the power of forty questions.
    second = {"type": "record", "name": "R2", "fields": [{"name": "a", "type": ["R1", "R2"]}]}
    first = {"type": "record", "name": "R1", "fields": [{"name": "a", "type": ["R1", second]}]}
    root = avro.parse(json.dumps([first, "R2"])).root
    value = 5
    for _ in range(40):
        value = {"a": value}
    with bounded(), pytest.raises(SchemaError, match="fits no branch"):
        compile_encoder(root)(value)


def test_a_decimal_of_a_thousand_million_digits_is_refused():
    logical = {"type": "bytes", "logicalType": "decimal", "precision": 2_000_000_000, "scale": 1_000_000_000}
    with pytest.raises(SchemaError, match="at most 10000"):
        compile_encoder(avro.parse(json.dumps(logical)).root)


def test_a_small_diamond_is_written_and_read():
    root = avro.parse(avro_laughs(levels=3)).root
    inner = {"f0": {"f0": 1}, "f1": {"f0": 2}, "f2": None}
    value = {"f0": inner, "f1": {**inner, "f2": {"f0": 3}}, "f2": None}
    assert compile_decoder(root)(compile_encoder(root)(value)) == value


def test_a_chain_of_names_that_is_too_deep_is_refused():
    with bounded():
        root = avro.parse(avro_chain()).root
        for compiled in (compile_encoder, compile_decoder):
            with pytest.raises(SchemaError, match="too deep"):
                compiled(root.branches[-1])


def test_columns_of_billion_laughs_are_refused():
    pytest.importorskip("pyspark")
    from ottla.schemas.spark import spark_type

    with bounded(), pytest.raises(SchemaError, match="more than 10000 types"):
        spark_type(avro.parse(avro_laughs()).root)
    with bounded(), pytest.raises(SchemaError, match="100 levels"):
        spark_type(avro.parse(avro_chain(500)).root.branches[-1])
    with pytest.raises(SchemaError, match="contains itself"):
        spark_type(avro.parse(json.dumps(record(1, ["null", "L1"]))).root)


def protobuf_laughs(levels):
    """The descriptor of a message whose every level has two fields of the one below."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    file = descriptor_pb2.FileDescriptorProto(name="laughs.proto", syntax="proto3")
    for level in range(levels):
        message = file.message_type.add(name=f"L{level}")
        for number in (1, 2):
            field = message.field.add(name=f"f{number}", number=number, label=1, type=11 if level else 5)
            if level:
                field.type_name = f".L{level - 1}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName(f"L{levels - 1}")


def test_columns_of_protobufs_laughs_are_refused():
    pytest.importorskip("pyspark")
    pytest.importorskip("google.protobuf")
    from ottla.schemas.spark_proto import spark_type

    with bounded(), pytest.raises(SchemaError, match="more than 10000 types"):
        spark_type(protobuf_laughs(60))
    assert (
        spark_type(protobuf_laughs(2)).simpleString()
        == "struct<f1:struct<f1:int,f2:int>,f2:struct<f1:int,f2:int>>"
    )


def test_connects_schemas_of_laughs_are_refused():
    pytest.importorskip("google.protobuf")
    from ottla.connect.converters import avro_converter, protobuf_converter
    from ottla.connect.failures import DataError

    for schema_of, laughs in (
        (avro_converter.schema_of, avro.parse(avro_laughs()).root),
        (protobuf_converter.schema_of, protobuf_laughs(60)),
    ):
        with bounded(), pytest.raises(DataError, match="at most 10000 types and 100 levels"):
            schema_of(laughs)
    with pytest.raises(DataError, match="the record L1 contains itself"):
        avro_converter.schema_of(avro.parse(json.dumps(record(1, ["null", "L1"]))).root)


def json_laughs():
    definitions = {"l0": {"type": "string"}}
    for level in range(1, 60):
        below = {"$ref": f"#/definitions/l{level - 1}"}
        definitions[f"l{level}"] = {"type": "object", "properties": {"a": below, "b": below}}
    return json.dumps({"definitions": definitions, "$ref": "#/definitions/l59"})


def test_billion_laughs_in_json_schema_have_no_type():
    with bounded(), pytest.raises(SchemaError, match="more than"):
        json_type(json_laughs(), {})
    with bounded():
        one = json_schema.parse(json_laughs(), {})
        assert json_compat.compare(one, one) == []


def test_a_json_schema_that_contains_itself_is_compared_and_has_no_type():
    text = json.dumps({"type": "object", "properties": {"next": {"$ref": "#"}}})
    one = json_schema.parse(text, {})
    with bounded():
        assert json_compat.compare(one, one) == []
        with pytest.raises(SchemaError, match="may contain itself"):
            json_type(text, {})


@pytest.mark.parametrize(
    "text",
    [
        "[" * 900_000,
        '{"a":' * 200_000,
        '{"type":"array","items":' * 40_000,
        '["null",' + '"x",' * 200_000 + '"y"]',
        '{"enum":[' + "9" * 900_000 + "]}",
        json.dumps({"type": "enum", "name": "E", "symbols": ["x"] * 200_000}),
        json.dumps({"properties": {f"p{at}": {} for at in range(30_000)}}),
        '"' + "x" * 1_100_000 + '"',
    ],
    ids=["lists", "objects", "arrays", "union", "digits", "symbols", "properties", "text"],
)
def test_huge_and_deep_texts_are_refused_in_both_json_formats(text):
    with bounded():
        for parse in (avro.parse, lambda given: json_schema.parse(given, {})):
            try:
                parse(text)
            except InvalidSchema as error:
                assert len(str(error)) < 1_000
