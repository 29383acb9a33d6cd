"""JSON by columns has the bytes of JSON value by value."""

import datetime
import decimal

import pyarrow as pa
import pytest

from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.data.arrow import column_values, schema_of_field

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=datetime.UTC)
COLUMNS = {
    "whole": pa.array([1, -(2**63), None], pa.int64()),
    "small": pa.array([None, 127, -128], pa.int8()),
    "text": pa.array(["né", None, ""], pa.string()),
    "quotes": pa.array(['a"b', "\\", "\x01\n"], pa.string()),
    "flag": pa.array([True, None, False], pa.bool_()),
    "double": pa.array([0.1, 1e10, None], pa.float64()),
    "float": pa.array([0.5, None, 1e-5], pa.float32()),
    "fee": pa.array([decimal.Decimal("1.20"), None, decimal.Decimal("-3.00")], pa.decimal128(10, 2)),
    "bytes": pa.array([b"\x00\xff", None, b""], pa.binary()),
    "at": pa.array([NOW, None, NOW], pa.timestamp("us", "UTC")),
    "day": pa.array([NOW.date(), None, NOW.date()], pa.date32()),
    "clock": pa.array([NOW.time(), None, NOW.time()], pa.time32("ms")),
}


@pytest.mark.parametrize("schemas", ["true", "false"])
@pytest.mark.parametrize("names", [tuple(COLUMNS), ("whole", "text"), ("quotes",)])
def test_columns_and_values_give_the_same_bytes(names, schemas):
    fields = [pa.field(name, COLUMNS[name].type) for name in names]
    value = pa.StructArray.from_arrays([COLUMNS[name] for name in names], fields=fields)
    field = pa.field("value", value.type, nullable=False, metadata={"connect.name": "row"})
    converter = JsonConverter({"schemas.enable": schemas})
    schema = schema_of_field(field)
    expected = [converter.from_connect("t", schema, one) for one in column_values(schema, value)]
    assert converter.from_column(field, value).to_pylist() == expected


def test_nested_values_and_nulls_that_may_not_be_are_left_to_the_reference():
    converter = JsonConverter()
    nested = pa.array([{"a": [1]}], pa.struct([("a", pa.list_(pa.int64()))]))
    assert converter.from_column(pa.field("value", nested.type, nullable=False), nested) is None
    required = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    missing = pa.StructArray.from_arrays([pa.array([None], pa.int64())], fields=list(required))
    assert converter.from_column(pa.field("value", missing.type, nullable=False), missing) is None
