"""Serializers on a real broker with a real registry: producers, consumers, evolution, and everything that fails."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import dataclass

import pytest

from integration.registry_client import Http
from ottla import KafkaConsumer, KafkaProducer
from ottla.schemas import (
    DeadLetters,
    IncompatibleSchema,
    InvalidData,
    Poison,
    Registry,
    RegistryUnavailable,
    UnknownSchema,
)
from ottla.schemas.errors import SchemaError
from ottla.schemas.frames import VALUE_HEADER
from ottla.testing.ports import free_ports
from ottla.testing.registry import RegistryProcess

pytest.importorskip("uvicorn")


@dataclass
class Order:
    id: int
    customer: str
    note: str | None = None


@pytest.fixture(scope="module")
def process(shared_ottla_broker):
    with RegistryProcess(shared_ottla_broker.bootstrap, "--topic", "_serdes", "--group", "serdes") as running:
        yield running


@pytest.fixture
def registry(process):
    found = Registry(process.url)
    yield found
    found.close()


def read_all(bootstrap, topic, count, **settings):
    with KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
        **settings,
    ) as consumer:
        found = []
        for record in consumer:
            found.append(record)
            if len(found) == count:
                return found
    return found


def test_dataclasses_from_a_producer_to_a_consumer(shared_ottla_broker, registry, process):
    bootstrap = shared_ottla_broker.bootstrap
    orders = [Order(number, f"customer {number}") for number in range(5)]
    with KafkaProducer(
        bootstrap_servers=bootstrap,
        key_serializer=registry.avro(schema='"string"', key=True),
        value_serializer=registry.avro("orders-value", Order),
    ) as producer:
        for order in orders:
            producer.send("orders", order, key=order.customer)
    other = Registry(process.url)
    found = read_all(
        bootstrap,
        "orders",
        5,
        key_deserializer=other.avro(key=True),
        value_deserializer=other.avro("orders-value", Order),
    )
    other.close()
    assert [one.value for one in found] == orders
    assert found[0].key == "customer 0"
    assert sorted(Http(process.url).get("/subjects")) == ["orders-key", "orders-value"]
    # Without a schema of its own a consumer gets dicts, by the writer's schema.
    plain = read_all(bootstrap, "orders", 1, value_deserializer=registry.avro())
    assert plain[0].value == {"id": 0, "customer": "customer 0", "note": None}


def test_schemas_are_read_from_files(registry, tmp_path):
    avsc, cart = tmp_path / "order.avsc", tmp_path / "cart.json"
    avsc.write_text(json.dumps({"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}))
    cart.write_text(json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}}))
    for serde, value in (
        (registry.avro("file-value", str(avsc)), {"id": 1}),
        (registry.avro("file-value", avsc), {"id": 2}),
        (registry.json("file-json-value", cart), {"n": 3}),
    ):
        assert serde.deserialize("file", [], serde.serialize("file", [], value)) == value
    with pytest.raises(SchemaError, match=r"none\.avsc cannot be read: No such file"):
        registry.avro("file-value", str(tmp_path / "none.avsc")).serialize("file", [], {"id": 1})


def test_ids_in_headers(shared_ottla_broker, registry):
    serde = registry.avro("headers-value", Order, ids="header")
    with KafkaProducer(bootstrap_servers=shared_ottla_broker.bootstrap, value_serializer=serde) as producer:
        mine = [("mine", b"1")]
        producer.send("headers", Order(1, "ann"), headers=mine).get(timeout=30)
        assert mine == [("mine", b"1")]
    (record,) = read_all(shared_ottla_broker.bootstrap, "headers", 1, value_deserializer=serde)
    assert record.value == Order(1, "ann")
    names = [name for name, _ in record.headers]
    assert names == ["mine", VALUE_HEADER]


def test_readers_and_writers_evolve_apart(registry):
    old = {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"}]}
    new = {**old, "fields": [*old["fields"], {"name": "b", "type": "string", "default": "none"}]}
    data = registry.avro("evolve", old).serialize("t", [], {"a": 1})
    assert registry.avro("evolve", new).deserialize("t", [], data) == {"a": 1, "b": "none"}
    newer = registry.avro("evolve", new).serialize("t", [], {"a": 1, "b": "x"})
    assert registry.avro("evolve", old).deserialize("t", [], newer) == {"a": 1}
    # Without a schema the latest version writes.
    assert registry.avro("evolve").serialize("t", [], {"a": 1, "b": "x"}) == newer


def test_an_incompatible_change_is_explained(registry):
    registry.avro("strict", '"string"').serialize("t", [], "x")
    with pytest.raises(IncompatibleSchema, match=r"the subject strict .*TYPE_MISMATCH"):
        registry.avro("strict", '"int"').serialize("t", [], 1)


def test_a_schema_must_be_registered_without_auto_register(registry):
    with pytest.raises(UnknownSchema, match="register it first"):
        registry.avro("never", '"int"', auto_register=False).serialize("t", [], 1)


def test_an_unknown_id_is_asked_for_once(registry, monkeypatch):
    asked = []
    ask = Registry._ask

    def counting(*given):
        asked.append(given)
        return ask(*given)

    monkeypatch.setattr(Registry, "_ask", counting)
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="does not know the schema id 77777") as failed:
            registry.avro().deserialize("t", [], b"\0\0\1\x2f\xd1data")
        assert failed.value.schema_id == 77777
    assert len(asked) == 1


def test_a_registry_that_is_down_is_named_with_the_id():
    (port,) = free_ports(1)
    registry = Registry(f"http://127.0.0.1:{port}")
    with pytest.raises(RegistryUnavailable, match=f"the schema id 5 .*{port}.*check its address") as failed:
        registry.avro().deserialize("t", [], b"\0\0\0\0\5data")
    assert failed.value.schema_id == 5


def test_bytes_without_a_schema_id_are_refused(registry):
    with pytest.raises(InvalidData, match="begin with the byte 123"):
        registry.avro().deserialize("t", [], b'{"a": 1}')


def test_poison_goes_to_the_dead_letter_topic_with_its_schema_id(shared_ottla_broker, registry):
    bootstrap = shared_ottla_broker.bootstrap
    serde = registry.avro("poison-value", Order)
    good = serde.serialize("poison", [], Order(1, "ann"))
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for value in (good, good[:7], good):
            producer.send("poison", value).get(timeout=30)
        careful = registry.avro("poison-value", Order, dead_letters=DeadLetters(producer, "poison-dead"))
        found = read_all(bootstrap, "poison", 3, value_deserializer=careful)
    assert [one.value for one in found if one.value] == [Order(1, "ann")] * 2
    schema_id = int.from_bytes(good[1:5], "big")
    poison = found[1].value
    assert isinstance(poison, Poison) and poison.schema_id == schema_id
    (dead,) = read_all(bootstrap, "poison-dead", 1)
    headers = dict(dead.headers)
    assert dead.value == good[:7]
    assert headers["__errors.schema.id"] == str(schema_id).encode()
    assert headers["__errors.topic"] == b"poison"
    assert f"schema id {schema_id}" in headers["__errors.message"].decode()


def test_serdes_are_pickled_for_workers(registry):
    serde = pickle.loads(pickle.dumps(registry.avro("pickled", Order)))
    assert serde.deserialize("t", [], serde.serialize("t", [], Order(1, "a"))) == Order(1, "a")
    serde.registry.close()
    assert "secret" not in repr(Registry("http://h:1", "ann", "secret"))


@pytest.mark.filterwarnings("ignore")
def test_confluents_serializers_read_ours_and_we_read_theirs(registry, process):
    confluent = pytest.importorskip("confluent_kafka.schema_registry")
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = confluent.SchemaRegistryClient({"url": process.url})
    context = SerializationContext("both", MessageField.VALUE)
    ours = registry.avro("both-value", Order)
    data = ours.serialize("both", [], Order(7, "ann", "x"))
    assert AvroDeserializer(client)(data, context) == {"id": 7, "customer": "ann", "note": "x"}
    text = client.get_latest_version("both-value").schema.schema_str
    theirs = AvroSerializer(client, text)({"id": 8, "customer": "bob", "note": None}, context)
    assert ours.deserialize("both", [], theirs) == Order(8, "bob")


def test_streams_read_and_write_avro(registry):
    from ottla.streams import StreamsBuilder, TopologyTestDriver

    builder = StreamsBuilder()
    orders = builder.stream(
        "in",
        key_serde=str,
        value_serde=registry.avro("s-in", Order),
        on_error="dead-letter",
        dead_letter_topic="dead",
    )
    orders.map_values(lambda order: Order(order.id + 1, order.customer)).to(
        "out", value_serde=registry.avro("s-out", Order)
    )
    data = registry.avro("s-in", Order).serialize("in", [], Order(1, "ann"))
    with TopologyTestDriver(builder) as driver:
        driver.pipe_input("in", data, key="k")
        driver.pipe_input("in", data[:6], key="k")
        assert driver.read_output("out").value == Order(2, "ann")
        dead = driver.read_output("dead", value_serde=bytes)
    assert dead.value == data[:6]
    assert dict(dead.headers)["__streams.errors.schema.id"] == str(int.from_bytes(data[1:5], "big")).encode()


@pytest.mark.parametrize("rule", ["skip", "dead-letter"])
def test_streams_explain_unknown_ids_and_lose_nothing_when_the_registry_is_down(registry, rule):
    from ottla.streams import StreamsBuilder, TopologyTestDriver
    from ottla.streams.errors import StreamsError

    (port,) = free_ports(1)
    for server, number in ((registry, 77), (Registry(f"http://127.0.0.1:{port}"), 5)):
        builder = StreamsBuilder()
        serde = server.avro("s-lost")
        orders = builder.stream(
            "in",
            value_serde=serde,
            on_error=rule,
            dead_letter_topic="dead" if rule == "dead-letter" else None,
        )
        orders.to("out", value_serde=bytes)
        with TopologyTestDriver(builder) as driver:
            record = b"\0" + number.to_bytes(4, "big") + b"data"
            if server is not registry:
                with pytest.raises(StreamsError, match="no schema registry answers about the schema id 5"):
                    driver.pipe_input("in", record)
                continue
            driver.pipe_input("in", record)
            if rule == "dead-letter":
                headers = dict(driver.read_output("dead", value_serde=bytes).headers)
                assert headers["__streams.errors.schema.id"] == b"77"
                assert b"does not know the schema id 77" in headers["__streams.errors.message"]


def test_connect_explains_errors_and_names_the_schema_id(registry, process):
    from ottla.connect.converters.avro_converter import AvroConverter
    from ottla.connect.data import schema as data
    from ottla.connect.data.record import SinkRecord
    from ottla.connect.errors.dead_letters import _described
    from ottla.connect.errors.tolerance import Stage, Tolerance
    from ottla.connect.failures import DataError, Retriable

    converter = AvroConverter({"schema.registry.url": process.url})
    unknown = b"\0\0\0\0\x4ddata"
    tolerance = Tolerance("sink", tolerate=True, keep_failures=True)
    record = SinkRecord("shop", offset=9, original_topic="shop", original_value=unknown)
    done, _ = tolerance.call(
        Stage.VALUE_CONVERTER, "AvroConverter", record, lambda: converter.to_connect("shop", unknown)
    )
    (failure,) = tolerance.take_failures()
    assert not done and "does not know the schema id 77" in failure.message
    assert {"key": "__connect.errors.schema.id", "value": b"77"} in _described(failure, "sink")
    number = data.struct([("n", data.INT64)], name="N")
    converter.from_connect("narrow", number, data.Struct(number, {"n": 1}))
    text = data.struct([("n", data.STRING)], name="N")
    with pytest.raises(DataError, match=r"incompatible.*/fields/0/type"):
        converter.from_connect("narrow", text, data.Struct(text, {"n": "x"}))
    converter.registry.close()
    (port,) = free_ports(1)
    down = AvroConverter({"schema.registry.url": f"http://127.0.0.1:{port}"})
    with pytest.raises(Retriable, match="no schema registry answers about the schema id 5"):
        down.to_connect("shop", b"\0\0\0\0\5data")


def test_json_with_a_schema(registry):
    schema = {"title": "Cart", "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    serde = registry.json("carts-value", schema)
    data = serde.serialize("carts", [], {"n": 3})
    assert data[5:] == b'{"n":3}'
    assert serde.deserialize("carts", [], data) == {"n": 3}
    with pytest.raises(InvalidData, match="'n' is a required property"):
        serde.serialize("carts", [], {})
    with pytest.raises(InvalidData, match=r"schema id \d+ cannot be read: .*n: 'x' is not of type 'integer'"):
        serde.deserialize("carts", [], data[:5] + b'{"n":"x"}')
    objects = registry.json("json-orders", Order)
    assert objects.deserialize("o", [], objects.serialize("o", [], Order(1, "ann"))) == Order(1, "ann")


def test_protobuf_messages(registry, process):
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf.struct_pb2 import ListValue, Struct

    serde = registry.protobuf("proto-value", Struct)
    message = Struct()
    message["a"] = 1
    data = serde.serialize("proto", [], message)
    # The first message of its file.
    assert data[5] == 0
    assert serde.deserialize("proto", [], data) == message
    held = Http(process.url).get("/subjects/proto-value/versions/1?format=serialized")
    assert held["schemaType"] == "PROTOBUF"
    import base64

    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(held["schema"]))
    assert file.message_type[0].name == "Struct"
    third = registry.protobuf("proto-list", ListValue)
    written = third.serialize("proto", [], ListValue())
    assert written[5:] == b"\2\4"
    assert third.deserialize("proto", [], written) == ListValue()
    with pytest.raises(InvalidData, match="a Struct is wanted"):
        serde.serialize("proto", [], ListValue())
    with pytest.raises(InvalidData, match="cannot be read"):
        serde.deserialize("proto", [], data[:7])


def test_consume_shows_records_as_json(shared_ottla_broker, registry, process):
    struct_pb2 = pytest.importorskip("google.protobuf.struct_pb2")
    bootstrap = shared_ottla_broker.bootstrap
    message = struct_pb2.Struct()
    message["a"] = True
    written = [
        registry.avro("shown-value", Order).serialize("shown", [], Order(1, "ann")),
        registry.json("shown-json", {"type": "object"}).serialize("shown", [], {"n": 1}),
        registry.protobuf("shown-proto", struct_pb2.Struct).serialize("shown", [], message),
        b"plain",
        b"\0\0\0\0\1damaged",
    ]
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for value in written:
            producer.send("shown", value).get(timeout=30)
    command = [sys.executable, "-m", "ottla", "consume", "--bootstrap-server", bootstrap, "--topic", "shown"]
    command += ["--from-beginning", "--max-messages", "5", "--schema-registry", process.url]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    assert done.stdout.splitlines() == [
        b'{"id":1,"customer":"ann","note":null}',
        b'{"n":1}',
        b'{"a": true}',
        b"plain",
        b"\0\0\0\0\1damaged",
    ]
    command += ["--filter", "value.id > 0", "--timeout-ms", "3000"]
    filtered = subprocess.run(command, capture_output=True, timeout=60)
    assert filtered.stdout.splitlines() == [b'{"id":1,"customer":"ann","note":null}']


def test_connects_avro_converter(registry, process):
    import datetime as dt
    from decimal import Decimal

    from ottla.connect.converters.avro_converter import AvroConverter
    from ottla.connect.data import schema as data

    converter = AvroConverter({"schema.registry.url": process.url})
    schema = data.struct(
        [
            ("id", data.INT64),
            ("note", data.optional(data.STRING)),
            ("price", data.decimal_schema(2)),
            ("day", data.DATE_SCHEMA),
            ("tags", data.array(data.STRING)),
            ("inner", data.struct([("n", data.Schema(data.Type.INT16))], name="shop.Inner")),
        ],
        name="shop.Order",
    )
    value = data.Struct(
        schema,
        {
            "id": 1,
            "price": Decimal("1.50"),
            "day": dt.date(2026, 11, 17),
            "tags": ["a"],
            "inner": data.Struct(schema.field("inner").schema, {"n": 3}),
        },
    )
    written = converter.from_connect("connect", schema, value)
    read_schema, read = converter.to_connect("connect", written)
    assert read == value and read_schema == schema
    assert registry.avro().deserialize("connect", [], written)["price"] == Decimal("1.50")
    with pytest.raises(Exception, match="schema id"):
        converter.to_connect("connect", written[:7])
    converter.registry.close()


def test_connects_avro_converter_has_a_struct_for_a_union_as_confluents(registry, process):
    from ottla.connect.converters.avro_converter import UNION, AvroConverter
    from ottla.connect.data import schema as data

    card = {"type": "record", "name": "shop.Card", "fields": [{"name": "number", "type": "string"}]}
    paid = {"name": "paid", "type": ["null", card, "string", "long"], "default": None}
    order = {
        "type": "record",
        "name": "shop.Paid",
        "fields": [paid, {"name": "id", "type": ["string", "int"]}],
    }
    serde = registry.avro("unions-value", order)
    converter = AvroConverter({"schema.registry.url": process.url})
    for value in (
        {"paid": {"number": "7"}, "id": 1},
        {"paid": "later", "id": "one"},
        {"paid": 5, "id": 2},
        {"paid": None, "id": 3},
    ):
        data_of = serde.serialize("unions", [], value)
        schema, read = converter.to_connect("unions", data_of)
        union = schema.field("paid").schema
        assert (union.name, union.optional) == (UNION, True)
        assert [one.name for one in union.fields] == ["Card", "string", "long"]
        assert schema.field("id").schema.name == UNION and not schema.field("id").schema.optional
        kind = {dict: "Card", str: "string", int: "long"}.get(type(value["paid"]))
        if kind is None:
            assert read.get("paid") is None
        else:
            found = read.get("paid").get(kind)
            assert (found.get("number") if kind == "Card" else found) == (
                value["paid"]["number"] if kind == "Card" else value["paid"]
            )
        # It is written back as it was: the same schema, the same bytes.
        assert converter.from_connect("unions", schema, read) == data_of
    loop = {"name": "next", "type": ["null", "shop.Link"]}
    link = registry.avro("links-value", {"type": "record", "name": "shop.Link", "fields": [loop]})
    with pytest.raises(Exception, match=r"the record shop\.Link contains itself"):
        converter.to_connect("links", link.serialize("links", [], {"next": None}))
    empty = data.Struct(schema, {"id": data.Struct(schema.field("id").schema, {})})
    with pytest.raises(Exception, match="none of its fields string, int set"):
        converter.from_connect("unions", schema, empty)
    converter.registry.close()


def test_connects_json_schema_converter(registry, process):
    import datetime as dt
    from decimal import Decimal

    from ottla.connect.converters.json_schema_converter import JsonSchemaConverter
    from ottla.connect.data import schema as data
    from ottla.connect.failures import DataError

    converter = JsonSchemaConverter({"schema.registry.url": process.url, "json.fail.invalid.schema": "true"})
    inner = data.struct([("n", data.Schema(data.Type.INT16, default=7))], name="shop.Inner", optional=True)
    schema = data.struct(
        [
            ("zip", data.INT64),
            ("note", data.optional(data.STRING)),
            ("price", data.decimal_schema(2)),
            ("day", data.DATE_SCHEMA),
            ("at", data.TIMESTAMP_SCHEMA),
            ("raw", data.BYTES),
            ("tags", data.array(data.STRING)),
            ("by_name", data.map_of(data.STRING, data.FLOAT64)),
            ("by_number", data.map_of(data.INT32, data.BOOLEAN)),
            ("inner", inner),
        ],
        name="shop.Order",
    )
    value = data.Struct(
        schema,
        {
            "zip": 1,
            "price": Decimal("12345678901234567890.50"),
            "day": dt.date(2026, 11, 17),
            "at": dt.datetime(2026, 11, 17, 1, 2, 3, 4000, tzinfo=dt.UTC),
            "raw": b"\0\xff",
            "tags": ["a"],
            "by_name": {"x": 0.5},
            "by_number": {4: True},
            "inner": data.Struct(inner, {"n": 3}),
        },
    )
    written = converter.from_connect("connect-json", schema, value)
    read_schema, read = converter.to_connect("connect-json", written)
    assert read_schema == schema
    assert read == value
    # Every reader of JSON understands it.
    plain = registry.json().deserialize("connect-json", [], written)
    assert plain["tags"] == ["a"] and plain["inner"] == {"n": 3} and plain["note"] is None
    # What other writers leave out of `required` may be missing.
    carts = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "s": {"type": "string"}},
        "required": ["n"],
    }
    foreign = registry.json("foreign-value", carts).serialize("foreign", [], {"n": 1})
    read_schema, read = converter.to_connect("foreign", foreign)
    assert read.get("n") == 1 and read.get("s") is None and read_schema.field("s").schema.optional
    with pytest.raises(DataError, match="schema id"):
        converter.to_connect("foreign", foreign[:5] + b'{"n":"x"}')
    with pytest.raises(DataError, match="have no schema id"):
        converter.to_connect("foreign", b"{}")
    converter.registry.close()


def test_connects_protobuf_converter(registry, process):
    import datetime as dt

    from ottla.connect.converters.protobuf_converter import ProtobufConverter
    from ottla.connect.data import schema as data
    from ottla.connect.failures import DataError

    converter = ProtobufConverter({"schema.registry.url": process.url})
    inner = data.struct([("n", data.INT32)], name="shop.Order.Inner", optional=True)
    schema = data.struct(
        [
            ("id", data.INT64),
            ("note", data.optional(data.STRING)),
            ("empty", data.optional(data.INT32)),
            ("at", data.optional(data.TIMESTAMP_SCHEMA)),
            ("raw", data.BYTES),
            ("tags", data.array(data.STRING)),
            ("counts", data.map_of(data.STRING, data.INT64)),
            ("inner", inner),
        ],
        name="shop.Order",
    )
    value = data.Struct(
        schema,
        {
            "id": 1,
            "note": "",
            "at": dt.datetime(2026, 11, 17, 1, 2, 3, 4000, tzinfo=dt.UTC),
            "raw": b"\0\xff",
            "tags": ["a", "b"],
            "counts": {"x": 4},
            "inner": data.Struct(inner, {"n": 3}),
        },
    )
    written = converter.from_connect("connect-proto", schema, value)
    read_schema, read = converter.to_connect("connect-proto", written)
    assert read_schema == schema
    assert read == value
    assert converter.to_connect("connect-proto", None) == (None, None)
    text = Http(process.url).get("/subjects/connect-proto-value/versions/1")["schema"]
    assert "package shop;" in text and "optional string note" in text
    with pytest.raises(DataError, match="schema id"):
        converter.to_connect("connect-proto", written[:9])
    converter.registry.close()


def test_connect_knows_confluents_names_of_converters():
    from ottla.connect.plugins import Plugins

    for name in ("avro.AvroConverter", "json.JsonSchemaConverter", "protobuf.ProtobufConverter"):
        found = Plugins().find(f"io.confluent.connect.{name}", "converter")
        assert found.load().__name__ == name.rpartition(".")[2]
