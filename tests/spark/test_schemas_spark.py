"""`from_avro` and `to_avro` on real Spark, with a real registry: evolution, poison records, several writers."""

from __future__ import annotations

import datetime as dt

import pytest

from ottla.registry.rest.auth import hash_password
from ottla.schemas import Registry
from ottla.testing.ports import free_ports
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


def test_unknown_ids_and_a_registry_that_is_down_are_named(spark, registry):
    from ottla.schemas.spark import from_avro

    frame = spark.createDataFrame([(b"\0\0\1\x2f\xd1data",)], "value binary")
    with pytest.raises(Exception, match="does not know the schema id 77777"):
        frame.select(from_avro("value", registry, schema=OLD)).collect()
    (port,) = free_ports(1)
    down = Registry(f"http://127.0.0.1:{port}")
    with pytest.raises(Exception, match="no schema registry answers about the schema id 77777"):
        frame.select(from_avro("value", down, schema=OLD)).collect()


def test_a_password_reaches_the_workers_by_its_place_only(spark, ottla_kafka, tmp_path):
    from ottla.schemas.spark import from_avro

    users, secret = tmp_path / "users.toml", tmp_path / "password"
    users.write_text(
        f'[roles.all]\nverbs = ["read", "write"]\n[users.ann]\npassword = "{hash_password("topsecret")}"\n'
        'roles = ["all"]\n'
    )
    secret.write_text("topsecret\n")
    arguments = ("--users", str(users), "--topic", "_secured", "--group", "secured")
    with RegistryProcess(ottla_kafka.bootstrap, *arguments) as process:
        registry = Registry(process.url, "ann", password_file=str(secret))
        value = registry.avro("s", OLD).serialize("t", [], {"id": 1, "at": NOON, "tags": []})
        frame = spark.createDataFrame([(value,)], "value binary")
        with pytest.raises(Exception, match="password_env"):
            open_ = Registry(process.url, "ann", "topsecret")
            frame.select(from_avro("value", open_, schema=OLD)).collect()
        order = frame.select(from_avro("value", registry, schema=OLD).alias("o"))
        assert order.collect()[0].o.id == 1
        assert "topsecret" not in order._jdf.queryExecution().toString()
        registry.close()


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


def test_a_union_of_several_types_is_a_struct_as_in_sparks_own_reader(spark, registry):
    from pyspark.sql.functions import expr

    from ottla.schemas.spark import from_avro, to_avro

    paid = {"name": "paid", "type": ["null", "string", "long"], "default": None}
    schema = {"type": "record", "name": "P", "fields": [paid, {"name": "n", "type": ["int", "long"]}]}
    serde = registry.avro("unions-value", schema)
    values = [{"paid": "later", "n": 1}, {"paid": 5, "n": 2}, {"paid": None, "n": 3}]
    written = [serde.serialize("t", [], value) for value in values]
    frame = spark.createDataFrame([(one,) for one in written], "value binary")
    read = frame.select(from_avro("value", registry, "unions-value").alias("p"))
    assert read.schema["p"].dataType.simpleString() == (
        "struct<paid:struct<member0:string,member1:bigint>,n:bigint>"
    )
    rows = read.orderBy("p.n").collect()
    assert [row.p.paid and tuple(row.p.paid) for row in rows] == [("later", None), (None, 5), None]
    again = read.select(to_avro("p", registry, "unions-value").alias("value"), expr("p.n as n"))
    assert [bytes(row.value) for row in again.orderBy("n").collect()] == written


CART = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "prices": {"type": "array", "items": {"type": "number"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "required": ["id"],
}


def test_json_with_a_schema_becomes_columns_and_back(spark, registry):
    from ottla.schemas.spark import from_json_schema, to_json_schema

    serde = registry.json("spark-json", CART)
    full = serde.serialize("t", [], {"id": 1, "note": "x", "prices": [1.5], "counts": {"a": 2}})
    least = serde.serialize("t", [], {"id": 2})
    frame = spark.createDataFrame([(full,), (least,), (None,)], "value binary")
    carts = frame.select(from_json_schema("value", registry, "spark-json").alias("c"))
    assert carts.schema["c"].dataType.simpleString() == (
        "struct<id:bigint,note:string,prices:array<double>,counts:map<string,bigint>>"
    )
    rows = carts.select("c.*").collect()
    assert [tuple(row) for row in rows] == [(1, "x", [1.5], {"a": 2}), (2, None, None, None), (None,) * 4]
    written = carts.where("c is not null").select(
        to_json_schema("c", registry, "spark-json", CART).alias("v")
    )
    assert [bytes(row.v) for row in written.collect()] == [full, least]

    bad = spark.createDataFrame([(full[:5] + b'{"id":"x"}',), (full,)], "value binary")
    with pytest.raises(Exception, match=r"schema id \d+ cannot be read"):
        bad.select(from_json_schema("value", registry, "spark-json")).collect()
    passed = bad.select(from_json_schema("value", registry, "spark-json", mode="permissive").alias("c"))
    assert [row.c and row.c.id for row in passed.collect()] == [None, 1]


PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  int64 id = 1;
  optional string note = 2;
  google.protobuf.Timestamp at = 3;
  repeated Item items = 4;
  map<string, uint64> counts = 5;
  Size size = 6;
  google.protobuf.Int32Value rest = 7;
  message Item { double price = 1; }
}
enum Size { SMALL = 0; LARGE = 1; }
"""


def test_protobuf_becomes_columns_and_back(spark, registry):
    from ottla.schemas.spark import from_protobuf, to_protobuf

    registry.register("spark-proto", PROTO, "PROTOBUF")
    frame = spark.sql(
        "select named_struct('id', 7L, 'note', '', 'at', timestamp'2026-11-17 12:00:00Z', 'items',"
        " array(named_struct('price', 1.5D)), 'counts', map('a', 18446744073709551615), 'size', 'LARGE',"
        " 'rest', null) as o"
    )
    written = frame.select(to_protobuf("o", registry, "spark-proto").alias("value"))
    data = bytes(written.collect()[0].value)
    orders = written.select(from_protobuf("value", registry, "spark-proto", "Order").alias("o"))
    assert orders.schema["o"].dataType.simpleString() == (
        "struct<id:bigint,note:string,at:timestamp,items:array<struct<price:double>>,"
        "counts:map<string,decimal(20,0)>,size:string,rest:int>"
    )
    row = orders.select("o.*", orders.o.at.cast("long").alias("s")).collect()[0]
    assert (row["id"], row["note"], row["s"], row["items"][0].price) == (7, "", int(NOON.timestamp()), 1.5)
    assert (row["counts"], row["size"], row["rest"]) == ({"a": 2**64 - 1}, "LARGE", None)

    bad = spark.createDataFrame([(data[:9],), (data,)], "value binary")
    with pytest.raises(Exception, match=r"schema id \d+ cannot be read"):
        bad.select(from_protobuf("value", registry, "spark-proto")).collect()
    passed = bad.select(from_protobuf("value", registry, "spark-proto", mode="permissive").alias("o"))
    assert [row.o and row.o.id for row in passed.collect()] == [None, 7]
