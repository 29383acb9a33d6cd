"""`from_avro` and `to_avro` on real Spark, with a real registry: evolution, poison records, several writers."""

from __future__ import annotations

import datetime as dt

import pytest

from ottla.schemas import Registry
from ottla.testing.registry import RegistryProcess

pytest.importorskip("uvicorn")

OLD = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
NOON = dt.datetime(2026, 11, 17, 12, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def registry(ottla_kafka):
    with RegistryProcess(ottla_kafka.bootstrap) as process:
        found = Registry(process.url)
        yield found
        found.close()


def test_records_of_two_writers_become_columns(spark, registry):
    from ottla.schemas.spark import from_avro

    old = registry.avro("spark-value", OLD).serialize("t", [], {"id": 1, "at": NOON, "tags": ["a"]})
    new = registry.avro("spark-value", NEW).serialize("t", [], {"id": 2, "at": NOON, "tags": [], "note": "x"})
    frame = spark.createDataFrame([(old,), (new,), (None,)], "value binary")
    order = frame.select(from_avro("value", registry, "spark-value").alias("o"))
    assert order.schema["o"].dataType.simpleString() == (
        "struct<id:bigint,at:timestamp,tags:array<string>,note:string>"
    )
    rows = order.select("o.id", "o.tags", "o.note", order.o.at.cast("long").alias("at")).collect()
    assert [tuple(row) for row in rows] == [
        (1, ["a"], None, int(NOON.timestamp())),
        (2, [], "x", int(NOON.timestamp())),
        (None, None, None, None),
    ]


def test_a_record_that_cannot_be_read_fails_with_its_id_or_is_null(spark, registry):
    from ottla.schemas.spark import from_avro

    good = registry.avro("spark-value", OLD).serialize("t", [], {"id": 1, "at": NOON, "tags": ["a"]})
    frame = spark.createDataFrame([(good[:7],), (good,)], "value binary")
    schema_id = int.from_bytes(good[1:5], "big")
    with pytest.raises(Exception, match=f"schema id {schema_id} cannot be read"):
        frame.select(from_avro("value", registry, schema=OLD)).collect()
    kept = frame.select(from_avro("value", registry, schema=OLD, mode="permissive").alias("o")).collect()
    assert [row.o and row.o.id for row in kept] == [None, 1]


def test_structs_become_records(spark, registry):
    from pyspark.sql.functions import struct

    from ottla.schemas.spark import from_avro, to_avro

    frame = spark.range(3).select(struct("id").alias("s"))
    schema = {"type": "record", "name": "N", "fields": [{"name": "id", "type": "long"}]}
    written = frame.select(to_avro("s", registry, "numbers-value", schema).alias("value"))
    data = [row.value for row in written.collect()]
    serde = registry.avro("numbers-value")
    assert [serde.deserialize("t", [], bytes(one)) for one in data] == [{"id": 0}, {"id": 1}, {"id": 2}]
    again = written.select(from_avro("value", registry, "numbers-value").alias("n")).select("n.id").collect()
    assert sorted(row.id for row in again) == [0, 1, 2]
