"""Generated Avro codecs: the same bytes and values as fastavro, resolution, and damaged records."""

import datetime as dt
import io
import json
import random
import uuid
from decimal import Decimal

import fastavro
import pytest

from oracle.avro_schemas import SchemaMaker
from ottla.registry import avro
from ottla.registry.compat.avro import AmbiguousField, compare
from ottla.registry.errors import InvalidSchema
from ottla.schemas.avro_decode import compile_decoder
from ottla.schemas.avro_encode import compile_encoder
from ottla.schemas.avro_values import long_bytes
from ottla.schemas.errors import IncompatibleSchema, InvalidData


def root(document):
    return avro.parse(json.dumps(document)).root


def record(*fields, name="R"):
    return {"type": "record", "name": name, "fields": list(fields)}


def value_of(one, draw, depth=0):
    """A random value of a type."""
    match one.kind:
        case "null":
            return None
        case "boolean":
            return draw.random() < 0.5
        case "int":
            return draw.choice([0, -1, 7, 8191, 8192, -(2**31), 2**31 - 1])
        case "long":
            return draw.choice([0, -1, 63, 64, 123456, 1700000000000, -(2**63), 2**63 - 1])
        case "float":
            return draw.choice([0.0, 1.5, -2.25])
        case "double":
            return draw.choice([0.0, 1.1, -1e300])
        case "bytes":
            return draw.randbytes(draw.randint(0, 5))
        case "string":
            return draw.choice(["", "apple", "ä" * 40, "x" * 9000])
        case "fixed":
            return draw.randbytes(one.size)
        case "enum":
            return draw.choice(one.symbols)
        case "array":
            return [
                value_of(one.items, draw, depth + 1) for _ in range(draw.randint(0, 3 if depth < 3 else 0))
            ]
        case "map":
            return {
                f"k{at}": value_of(one.items, draw, depth + 1)
                for at in range(draw.randint(0, 3 if depth < 3 else 0))
            }
        case "union":
            return value_of(draw.choice(one.branches), draw, depth + 1)
    return {field.name: value_of(field.type, draw, depth + 1) for field in one.fields}


def drawn(count, seed):
    maker = SchemaMaker(random.Random(seed))
    while count:
        text = json.dumps(maker.schema())
        try:
            yield text, avro.parse(text).root, maker
        except InvalidSchema:
            continue
        count -= 1


def test_bytes_are_those_of_fastavro():
    draw = random.Random(1)
    compared = 0
    for text, one, _ in drawn(300, 11):
        encode, decode = compile_encoder(one), compile_decoder(one)
        for _ in range(3):
            try:
                value = value_of(one, draw)
            except RecursionError:
                continue
            data, out = encode(value), io.BytesIO()
            assert decode(data) == value
            try:
                theirs = fastavro.parse_schema(json.loads(text))
                assert fastavro.schemaless_reader(io.BytesIO(data), theirs) == value
                fastavro.schemaless_writer(out, theirs, value)
                written = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), theirs)
            except fastavro.schema.SchemaParseException:
                # It refuses some schemas that Apache Avro accepts.
                continue
            # Where it chooses another branch of a union the bytes differ, and we read them all the same.
            assert decode(out.getvalue()) == written
            compared += 1
    assert compared > 300


def test_a_readers_schema_is_resolved_as_in_fastavro():
    draw = random.Random(2)
    compared = 0
    for text, writer, maker in drawn(500, 12):
        changed = json.dumps(maker.changed(json.loads(text)))
        try:
            reader = avro.parse(changed).root
            if compare(reader, writer):
                continue
            value = value_of(writer, draw)
            ours = compile_decoder(writer, reader)(compile_encoder(writer)(value))
            theirs_writer = fastavro.parse_schema(json.loads(text))
            theirs_reader = fastavro.parse_schema(json.loads(changed))
            data = io.BytesIO(compile_encoder(writer)(value))
            theirs = fastavro.schemaless_reader(data, theirs_writer, theirs_reader)
        except (InvalidSchema, AmbiguousField, RecursionError, InvalidData):
            # Bytes that are no text cannot be promoted to a string.
            continue
        except Exception as error:
            # fastavro refuses some pairs that Apache Avro reads, and some names.
            if type(error).__module__.startswith("fastavro") or isinstance(error, KeyError):
                continue
            raise
        assert as_text(ours) == as_text(theirs), (text, changed)
        compared += 1
    assert compared > 50


def as_text(value):
    """Bytes as text: of a union with both, Avro takes the writer's own type and fastavro the first that fits."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {name: as_text(each) for name, each in value.items()}
    return [as_text(each) for each in value] if isinstance(value, list) else value


LOGICAL = record(
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "exact", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "time", "type": {"type": "long", "logicalType": "time-micros"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
)


def test_logical_types_are_pythons_own():
    value = {
        "day": dt.date(2026, 11, 17),
        "at": dt.datetime(2026, 11, 17, 18, 0, 0, 123000, tzinfo=dt.UTC),
        "exact": dt.datetime(1969, 1, 1, 0, 0, 0, 123456, tzinfo=dt.UTC),
        "local": dt.datetime(2026, 1, 1, 1, 1, 1, 1),
        "time": dt.time(23, 59, 59, 999999),
        "price": Decimal("-1234.50"),
        "id": uuid.UUID(int=7),
    }
    one = root(LOGICAL)
    data = compile_encoder(one)(value)
    assert compile_decoder(one)(data) == value
    assert fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(LOGICAL)) == value


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"a": "x"}, "b is missing"),
        ({"a": 3, "b": {"c": [1]}}, "a: 3 is not a value of the type string"),
        ({"a": "x", "b": {"c": [1, "y"]}}, r"b.c\[1\]: 'y' is not a value of the type long"),
        ({"a": "x", "b": {"c": [2**63]}}, r"b.c\[0\]"),
        ({"a": "x", "b": 7}, "b: 7 is not a S"),
        ([], r"the value: \[\] is not a R"),
    ],
)
def test_a_value_that_does_not_fit_is_explained(value, sentence):
    inner = record({"name": "c", "type": {"type": "array", "items": "long"}}, name="S")
    encode = compile_encoder(root(record({"name": "a", "type": "string"}, {"name": "b", "type": inner})))
    with pytest.raises(InvalidData, match=sentence):
        encode(value)


def test_damaged_records_are_refused_and_cost_little():
    inner = {"type": "array", "items": "null"}
    one = root(
        record({"name": "a", "type": "string"}, {"name": "n", "type": inner}, {"name": "d", "type": "double"})
    )
    data = compile_encoder(one)({"a": "apple", "n": [None], "d": 1.0})
    decode = compile_decoder(one)
    for end in range(len(data)):
        with pytest.raises(InvalidData):
            decode(data[:end])
    draw = random.Random(3)
    for _ in range(2_000):
        changed = bytearray(data)
        changed[draw.randrange(len(changed))] = draw.randrange(256)
        try:
            decode(bytes(changed))
        except InvalidData:
            continue
    for hostile in (b"\x02a" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xff" * 40, b"\x01"):
        with pytest.raises(InvalidData):
            decode(hostile)


def test_items_without_bytes_are_bounded_in_all_blocks_together():
    decode = compile_decoder(root({"type": "array", "items": "null"}))
    block = long_bytes(900_000)
    assert len(decode(block + b"\0")) == 900_000
    with pytest.raises(InvalidData):
        decode(block * 1_000 + b"\0")


def test_blocks_with_sizes_and_long_zeros_are_read():
    decode = compile_decoder(root({"type": "array", "items": "int"}))
    assert decode(b"\x03\x04\x02\x04" + b"\x80\x00") == [1, 2]
    assert decode(b"\x04\x02\x04\x02\x06\x00") == [1, 2, 3]


def test_a_deep_record_is_refused_not_a_crash():
    node = record({"name": "next", "type": ["null", "Node"]}, name="Node")
    decode = compile_decoder(root(node))
    with pytest.raises(InvalidData):
        decode(b"\x02" * 100_000 + b"\x00")


def test_an_incompatible_reader_is_refused_before_any_record():
    with pytest.raises(IncompatibleSchema, match="'b'"):
        compile_decoder(root(record()), root(record({"name": "b", "type": "int"})))
