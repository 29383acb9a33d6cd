"""Converters: bytes as Kafka's, and clear errors for what does not fit. The oracle tests compare with Java."""

import datetime
import decimal

import pytest

from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.converters.simple import (
    BooleanConverter,
    ByteArrayConverter,
    IntegerConverter,
    LongConverter,
    StringConverter,
)
from ottla.connect.converters.simple_header import SimpleHeaderConverter
from ottla.connect.data import schema as schemas
from ottla.connect.data.java_text import java_double, java_float, to_json
from ottla.connect.data.schema import Struct, Type
from ottla.connect.failures import DataError

ORDER = schemas.struct(
    [
        ("id", schemas.INT64),
        ("price", schemas.decimal_schema(2)),
        ("day", schemas.optional(schemas.DATE_SCHEMA)),
        ("tags", schemas.optional(schemas.array(schemas.STRING))),
    ],
    name="Order",
)


def order():
    return Struct(ORDER, {"id": 7, "price": decimal.Decimal("12.50"), "day": datetime.date(2024, 2, 29)})


def test_json_with_a_schema_comes_back_as_it_was():
    converter = JsonConverter()
    data = converter.from_connect("t", ORDER, order())
    assert data.startswith(
        b'{"schema":{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"}'
    )
    assert converter.to_connect("t", data) == (ORDER, order())


def test_json_without_schemas_is_plain():
    converter = JsonConverter({"schemas.enable": "false", "decimal.format": "numeric"})
    assert converter.from_connect("t", ORDER, order()) == b'{"id":7,"price":12.50,"day":19782,"tags":null}'
    assert converter.to_connect("t", b'{"b":1.5,"a":[1,null]}') == (None, {"b": 1.5, "a": [1, None]})


def test_json_that_has_no_envelope_says_what_to_do():
    with pytest.raises(DataError, match=r"set schemas\.enable=false"):
        JsonConverter().to_connect("t", b'{"id":1}')


@pytest.mark.parametrize("data", [b"{", b"\xff", b'{"a":NaN}', b"[" * 5000])
def test_damaged_json_is_a_data_error(data):
    with pytest.raises(DataError, match="serialization error"):
        JsonConverter({"schemas.enable": "false"}).to_connect("t", data)


def test_tombstones_stay_tombstones():
    for converter in (JsonConverter(), StringConverter(), ByteArrayConverter(), LongConverter()):
        assert converter.to_connect("t", None)[1] is None
        assert converter.from_connect("t", None, None) is None


def test_numbers_have_a_fixed_size():
    assert IntegerConverter().from_connect("t", None, 258) == b"\0\0\1\2"
    assert LongConverter().to_connect("t", b"\0" * 7 + b"\5")[1] == 5
    with pytest.raises(DataError):
        IntegerConverter().from_connect("t", None, 2**40)
    with pytest.raises(DataError):
        LongConverter().to_connect("t", b"123")
    with pytest.raises(DataError):
        BooleanConverter().to_connect("t", b"\2")


def test_strings_are_what_java_prints():
    converter = StringConverter()
    assert converter.from_connect("t", None, {"b": 1, "a": True}) == b"{a=true, b=1}"
    assert converter.from_connect("t", None, 1e10) == b"1.0E10"


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("12", Type.INT8, 12),
        ("300", Type.INT16, 300),
        ("70000", Type.INT32, 70000),
        ("5000000000", Type.INT64, 5_000_000_000),
        ("1.5", Type.FLOAT32, 1.5),
        ("true", Type.BOOLEAN, True),
        ("abc", Type.STRING, "abc"),
        ("[1,2]", Type.ARRAY, [1, 2]),
        ('{"a":1}', Type.MAP, {"a": 1}),
        ("[1,", Type.STRING, "[1,"),
    ],
)
def test_headers_have_the_type_that_they_look_like(text, kind, value):
    schema, found = SimpleHeaderConverter().to_connect("t", text.encode())
    assert (schema.type, found) == (kind, value)


def test_floats_are_printed_as_java_does():
    assert [java_double(one) for one in (0.001, 1e7, 123456.789, 5e-324)] == [
        "0.001",
        "1.0E7",
        "123456.789",
        "4.9E-324",
    ]
    assert java_float(0.1) == "0.1" and java_float(3.4028234663852886e38) == "3.4028235E38"


def test_control_characters_are_escaped_with_capitals():
    assert to_json("a\x1f\n") == '"a\\u001F\\n"'


def test_values_must_fit_their_schema():
    with pytest.raises(DataError, match='null used for required field: "id"'):
        Struct(ORDER).validate()
    with pytest.raises(DataError, match="with type INT64"):
        Struct(ORDER).put("id", "seven")
    with pytest.raises(DataError, match="is not a valid field name"):
        Struct(ORDER).get("nothing")
