"""`from_avro` by Spark's own reader: the same columns as by Python, for random schemas, readers, values and damage."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import pytest

from ottla.registry import avro
from ottla.schemas import Registry
from ottla.schemas.errors import SchemaError
from ottla.schemas.spark_jvm import _check
from ottla.testing.registry import RegistryProcess
from unit.schemas.test_schemas_avro_columns import frame, pairs

pytest.importorskip("uvicorn")

PAIRS = 24
LOGICAL = {
    "type": "record",
    "name": "Logical",
    "fields": [
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "us", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {
            "name": "fee",
            "type": {
                "type": "fixed",
                "name": "Fee",
                "size": 12,
                "logicalType": "decimal",
                "precision": 20,
                "scale": 4,
            },
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "counts", "type": {"type": "map", "values": ["int", "null"]}},
    ],
}


@pytest.fixture(scope="module")
def registry(ottla_kafka):
    with RegistryProcess(
        ottla_kafka.bootstrap, "--topic", "_jvm", "--group", "jvm", "--compatibility", "NONE"
    ) as process:
        found = Registry(process.url)
        yield found
        found.close()


def drawn(seed):
    """Pairs of schemas that both engines take."""
    for written, changed, records, draw in pairs(10 * PAIRS, seed):
        try:
            _check(avro.parse(changed).root, "")
        except SchemaError:
            continue
        yield written, changed, records, draw


def columns(spark, registry, cases, mode="failfast"):
    """Each case by both engines, as lists of values. A case: a subject, its records, and the reader's schema."""
    from ottla.schemas.spark import from_avro

    rows = list(zip(*(records for _, records, _ in cases), strict=True))
    data = spark.createDataFrame(rows, ", ".join(f"v{at} binary" for at in range(len(cases)))).coalesce(1)
    read = [
        from_avro(f"v{at}", registry, subject, schema, mode=mode, engine=engine).alias(f"{engine}{at}")
        for at, (subject, _, schema) in enumerate(cases)
        for engine in ("python", "jvm")
    ]
    found = data.select(read)
    values = found.collect()
    for at in range(len(cases)):
        python, jvm = (found.schema[f"{engine}{at}"].dataType for engine in ("python", "jvm"))
        # Spark's reader says of more fields that they are never null.
        assert python.simpleString() == jvm.simpleString()
        yield [row[f"python{at}"] for row in values], [row[f"jvm{at}"] for row in values]


def same(one, other) -> bool:
    """Maps have no order, and NaN is not equal to itself."""
    return one == other or repr(one) == repr(other)


def test_columns_are_those_of_the_python_engine(spark, registry):
    cases = []
    for (written, changed, records, draw), number in zip(drawn(7), range(PAIRS), strict=False):
        schema_id = registry.register(f"same{number}", written).id
        framed = [None if draw.random() < 0.05 else frame(schema_id, data) for data in records]
        cases.append((f"same{number}", framed, changed))
    for (_, _, changed), (python, jvm) in zip(cases, columns(spark, registry, cases), strict=True):
        assert any(row is not None for row in python)
        assert all(same(one, other) for one, other in zip(python, jvm, strict=True)), changed


def test_records_that_are_cut_off_are_null_and_damage_stops_no_query(spark, registry):
    cut, harmed = [], []
    for (written, changed, records, draw), number in zip(drawn(8), range(PAIRS // 2), strict=False):
        schema_id = registry.register(f"harmed{number}", written).id
        framed = [frame(schema_id, data) for data in records]
        cut.append((f"harmed{number}", [shortened(one, draw) for one in framed], changed))
        harmed.append((f"harmed{number}", [changed_bytes(one, draw) for one in framed], changed))
    for python, jvm in columns(spark, registry, cut, "permissive"):
        assert None in python and None in jvm
        assert all(same(one, other) for one, other in zip(python, jvm, strict=True))
    # Bytes that are changed may still be a record. The engines need not agree on what it is.
    assert len(list(columns(spark, registry, harmed, "permissive"))) == PAIRS // 2


def shortened(record: bytes, draw: random.Random) -> bytes:
    return record[: draw.randrange(5, len(record))] if draw.random() < 0.5 else record


def changed_bytes(record: bytes, draw: random.Random) -> bytes:
    out = bytearray(record)
    for _ in range(draw.randint(0, 3)):
        out[draw.randrange(5, len(out))] = draw.choice([0, 1, 127, 128, 255])
    return bytes(out)


def test_logical_types_are_those_of_the_python_engine(spark, registry):
    serde = registry.avro("logical-value", LOGICAL)
    records = [
        serde.serialize(
            "t",
            [],
            {
                "day": dt.date(year, 2, 3),
                "ms": dt.datetime(year, 7, 8, 9, 10, 11, 12_000, dt.UTC),
                "us": None if year == 1969 else dt.datetime(year, 7, 8, 9, 10, 11, 13, dt.UTC),
                "local": dt.datetime(year, 7, 8, 9, 10, 11, 12_000),
                "price": Decimal(year) / 100 - 18,
                "fee": Decimal("-1234567890123.4567"),
                "kind": "B",
                "counts": {"a": 1, "b": None},
            },
        )
        for year in (1066, 1582, 1969, 2026)
    ]
    [(python, jvm)] = columns(spark, registry, [("logical-value", records, None)])
    assert python == jvm and python[2].us is None


def order(*fields):
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, *fields]}


NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def test_writers_of_a_subject_are_read_and_others_are_named(spark, registry):
    from ottla.schemas.spark import from_avro

    old = registry.avro("evolves", order()).serialize("t", [], {"id": 1})
    new = registry.avro("evolves", order(NOTE)).serialize("t", [], {"id": 2, "note": "x"})
    [(python, jvm)] = columns(spark, registry, [("evolves", [old, None, new], None)])
    assert jvm == python and [row and row.note for row in jvm] == [None, None, "x"]

    read = from_avro("value", registry, "evolves", engine="jvm")
    permissive = from_avro("value", registry, "evolves", mode="permissive", engine="jvm")

    def frame_of(*records):
        return spark.createDataFrame([(one,) for one in records], "value binary")

    with pytest.raises(Exception, match=r"MALFORMED_AVRO_MESSAGE|Malformed Avro|FAILFAST"):
        frame_of(new, old[:5]).select(read).collect()
    with pytest.raises(Exception, match="has no schema id before its data"):
        frame_of(new, b"{}").select(read).collect()
    assert [
        row[0] and row[0].id for row in frame_of(b"{}", b"", old[:5], old).select(permissive).collect()
    ] == [
        None,
        None,
        None,
        1,
    ]
    later = registry.avro("evolves", order(NOTE, {**NOTE, "name": "more"})).serialize("t", [], {"id": 3})
    for column in (read, permissive):
        with pytest.raises(
            Exception, match=f"the schema id {int.from_bytes(later[1:5], 'big')} is none that"
        ):
            frame_of(later).select(column).collect()


def test_what_the_reader_of_spark_does_otherwise_is_refused(spark, registry):
    from ottla.schemas.spark import from_avro

    time = {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}}
    registry.avro("timed", order(time)).serialize("t", [], {"id": 1, "at": dt.time(1)})
    with pytest.raises(SchemaError, match=r"the logical type time-millis \(at /at\)"):
        from_avro("value", registry, "timed", engine="jvm")
    with pytest.raises(SchemaError, match="needs a subject"):
        from_avro("value", registry, schema=order(), engine="jvm")
    with pytest.raises(SchemaError, match="there is no engine 'rust'"):
        from_avro("value", registry, "timed", engine="rust")
