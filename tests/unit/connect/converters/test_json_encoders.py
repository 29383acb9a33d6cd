"""Prepared encoders give the bytes, and the errors, of the converter's own way."""

import datetime
import decimal

import pytest

from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.data import schema as schemas
from ottla.connect.data.java_text import to_json
from ottla.connect.data.schema import Schema, Struct, Type
from ottla.connect.failures import DataError

INNER = schemas.struct([("x", schemas.INT8)], optional=True, name="inner")
FIELDS = {
    "whole": (schemas.INT64, [-(2**63), 0, 2**63 - 1]),
    "small": (schemas.optional(schemas.INT8), [None, -128, 127]),
    'te%s"xt': (schemas.STRING, ["", 'é"\\\x01', "%s"]),
    "flag": (schemas.optional(schemas.BOOLEAN), [None, True, False]),
    "float": (schemas.FLOAT32, [0.1, 1e10, 1]),
    "double": (schemas.optional(schemas.FLOAT64), [None, 0.1, -0.0]),
    "raw": (schemas.optional(schemas.BYTES), [None, b"\0\xff", bytearray(b"a")]),
    "fee": (schemas.decimal_schema(2), [decimal.Decimal("1.20"), decimal.Decimal("-3.00")]),
    "day": (schemas.DATE_SCHEMA, [datetime.date(2026, 1, 2)]),
    "at": (schemas.TIMESTAMP_SCHEMA, [datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)]),
    "inner": (INNER, [None, Struct(INNER, {"x": 1})]),
    "list": (schemas.array(schemas.INT32), [[], [1, 2]]),
    "map": (schemas.map_of(schemas.STRING, schemas.INT32), [{}, {"b": 1, "a": 2}]),
    "both": (Schema(Type.INT32, optional=True, default=3), [None, 4]),
}


@pytest.mark.parametrize("replace", ["true", "false"])
def test_encoders_give_the_bytes_of_the_slow_way(replace):
    schema = schemas.struct([(name, one) for name, (one, _) in FIELDS.items()], name="row")
    converter = JsonConverter({"schemas.enable": "false", "replace.null.with.default": replace})
    for at in range(3):
        row = Struct(schema)
        for name, (_, values) in FIELDS.items():
            row.put(name, values[at % len(values)])
        assert converter.from_connect("t", schema, row) == to_json(converter._json(schema, row)).encode()


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (schemas.struct([("a", schemas.INT8)]), [128]),
        (schemas.struct([("a", schemas.INT8)]), [True]),
        (schemas.struct([("a", schemas.STRING)]), [None]),
        (schemas.struct([("a", schemas.STRING)]), [b"bytes"]),
        (schemas.struct([("a", schemas.BOOLEAN)]), [1]),
    ],
)
def test_values_that_do_not_fit_have_the_error_of_the_slow_way(schema, value):
    converter = JsonConverter()
    row = Struct.of_values(schema, value)
    with pytest.raises(DataError) as slow:
        converter._json(schema, row)
    with pytest.raises(DataError) as fast:
        converter.from_connect("t", schema, row)
    assert str(fast.value) == str(slow.value)


def test_a_null_without_default_replacement_is_refused_where_it_is_required():
    schema = schemas.struct([("a", Schema(Type.STRING, default="d"))])
    row = Struct(schema)
    assert JsonConverter({"schemas.enable": "false"}).from_connect("t", schema, row) == b'{"a":"d"}'
    with pytest.raises(DataError):
        JsonConverter({"replace.null.with.default": "false"}).from_connect("t", schema, row)
