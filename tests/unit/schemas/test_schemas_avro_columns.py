"""Batches read field by field: the same columns as record by record, for random schemas, readers and damage."""

import json
import random

import pytest

from oracle.avro_schemas import SchemaMaker
from ottla.registry import avro
from ottla.registry.compat.avro import AmbiguousField, compare
from ottla.registry.errors import InvalidSchema
from ottla.schemas import RegisteredSchema, Registry
from ottla.schemas.avro_encode import compile_encoder
from ottla.schemas.errors import InvalidData, SchemaError, UnknownSchema
from unit.schemas.test_schemas_avro_codec import value_of

pa = pytest.importorskip("pyarrow")
from ottla.schemas import avro_columns, spark  # noqa: E402

RECORDS = 80


def writers(monkeypatch, *texts):
    known = {at: RegisteredSchema(at, text) for at, text in enumerate(texts, 1)}

    def by_id(self, number, subject=""):
        if number not in known:
            raise UnknownSchema(f"there is no schema {number}", number)
        return known[number]

    monkeypatch.setattr(Registry, "by_id", by_id)
    monkeypatch.setattr("ottla.schemas.spark_columns._CACHED", {})
    return Registry("http://localhost:1")


def both(registry, records, reader_text):
    """The column by fields, or None if that way leaves it to the other; and by records, or its error."""
    values = pa.array(records, pa.binary())
    reader = avro.parse(reader_text).root
    kind, _ = spark._types(reader)
    fields = spark._read_by_columns(values, registry, reader_text, reader, kind)
    try:
        rows = spark._read_by_rows(values, registry, reader_text, reader, kind, permissive=False)
    except (InvalidData, UnknownSchema, pa.ArrowInvalid) as error:
        rows = error
    if fields is not None:
        fields.validate(full=True)
    return fields, rows


def frame(number, data):
    return b"\0" + number.to_bytes(4, "big") + data


def pairs(count, seed):
    """Writers and readers that agree and have a type in Spark, with values of the writer."""
    draw = random.Random(seed)
    maker = SchemaMaker(draw)
    while count:
        fields = [{"name": "a", "type": maker.schema()}, {"name": "b", "type": "long"}]
        written = {"type": "record", "name": "Top", "fields": fields}
        changed = written if draw.random() < 0.4 else maker.changed(written)
        try:
            writer, reader = avro.parse(json.dumps(written)).root, avro.parse(json.dumps(changed)).root
            if compare(reader, writer):
                continue
            spark._types(reader)
            encode = compile_encoder(writer)
            records = [encode(value_of(writer, draw)) for _ in range(RECORDS)]
        except (InvalidSchema, AmbiguousField, SchemaError, RecursionError):
            continue
        count -= 1
        yield json.dumps(written), json.dumps(changed), records, draw


def test_columns_are_those_of_single_records(monkeypatch):
    by_fields = 0
    for written, changed, records, draw in pairs(150, 5):
        registry = writers(monkeypatch, written)
        framed = [None if draw.random() < 0.05 else frame(1, data) for data in records]
        fields, rows = both(registry, framed, changed)
        if fields is not None:
            assert fields.equals(rows), (written, changed)
            by_fields += 1
    # Records with a union of several types are read one by one.
    assert by_fields > 60


def test_damage_is_never_read_as_something_else(monkeypatch):
    refused = 0
    for written, changed, records, draw in pairs(60, 6):
        registry = writers(monkeypatch, written)
        for _ in range(6):
            framed = [frame(1, data) for data in records]
            at = draw.randrange(RECORDS)
            harmed = bytearray(framed[at])
            if draw.random() < 0.3:
                del harmed[draw.randrange(1, len(harmed)) :]
            for _ in range(draw.randint(0, 3)):
                harmed[draw.randrange(min(5, len(harmed) - 1), len(harmed))] = draw.choice(
                    [0, 1, 127, 128, 255]
                )
            framed[at] = bytes(harmed)
            fields, rows = both(registry, framed, changed)
            if isinstance(rows, Exception):
                refused += 1
                assert fields is None, (written, changed, framed[at])
            elif fields is not None:
                assert fields.equals(rows), (written, changed, framed[at])
    assert refused > 60


def schema(*fields):
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


ID = {"name": "id", "type": "long"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
RICH = schema(
    ID,
    {"name": "price", "type": ["null", PRICE]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "M", "L"]}},
    {"name": "lines", "type": {"type": "array", "items": json.loads(schema(ID).replace("Order", "Line"))}},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
)


def test_orders_of_two_writers_are_read_field_by_field(monkeypatch):
    draw = random.Random(3)
    registry = writers(monkeypatch, RICH, schema(ID))
    reader = RICH.replace('"day", ', '"day", "default": 3, ').replace(
        '"price", ', '"price", "default": null, '
    )
    for name, value in (("at", "4"), ("size", '"M"'), ("lines", "[]"), ("counts", '{"a": 1}')):
        reader = reader.replace(f'"{name}", ', f'"{name}", "default": {value}, ')
    rich, plain = (compile_encoder(avro.parse(text).root) for text in (RICH, schema(ID)))

    def order():
        return {
            "id": draw.randrange(-(2**63), 2**63),
            "price": draw.choice([None, b"\0", b"\xff", draw.randbytes(8)]),
            "at": draw.randrange(2**42),
            "day": draw.randrange(-800_000, 800_000),
            "size": draw.choice("SML"),
            "lines": [{"id": draw.randrange(2**20)} for _ in range(draw.randrange(4))],
            "counts": {f"k{draw.randrange(9)}": draw.randrange(-99, 99) for _ in range(draw.randrange(4))},
        }

    records = [
        frame(1, rich(order())) if draw.random() < 0.5 else frame(2, plain({"id": draw.randrange(300)}))
        for _ in range(400)
    ]
    fields, rows = both(registry, records, reader)
    assert fields is not None and fields.equals(rows)
    # A part of a batch, as Arrow hands it on.
    part = pa.array(records, pa.binary()).slice(100, 200)
    found = spark.read_column(part, registry, reader, permissive=False)
    assert found.equals(fields.slice(100, 200).cast(found.type))


@pytest.mark.parametrize(
    "data",
    [
        b"\3\2\2\4\0",  # a block with its size
        b"\2\2\2\4\0",  # two blocks
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x03\0",  # a count of more than 64 bits
        b"\xfe\xff\xff\xff\x0f\2\0",  # more items than bytes
        b"\1\0",  # a count of -1
        bytes([200, 1]) + b"\2" * 100 + b"\0",  # one long array among short ones
    ],
)
def test_what_is_rare_is_left_to_single_records(monkeypatch, data):
    text = schema({"name": "n", "type": {"type": "array", "items": "int"}})
    registry = writers(monkeypatch, text)
    assert both(registry, [frame(1, b"\2\2\0")] * 50, text)[0] is not None
    fields, rows = both(registry, [frame(1, b"\2\2\0")] * 50 + [frame(1, data)], text)
    assert fields is None
    assert isinstance(rows, InvalidData) or rows[50].as_py()["n"] in ([1, 2], [1] * 100)


def test_a_few_records_are_read_one_by_one(monkeypatch):
    text = schema(ID)
    registry = writers(monkeypatch, text)
    assert both(registry, [frame(1, b"\2")] * (avro_columns.MIN_BATCH - 1), text)[0] is None
    assert both(registry, [frame(1, b"\2")] * avro_columns.MIN_BATCH, text)[0] is not None
