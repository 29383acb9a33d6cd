"""JSON by columns has the bytes of JSON value by value."""

import datetime
import decimal

import pyarrow as pa
import pytest

from ottla.connect.converters.json_converter import JsonConverter
from ottla.connect.data.arrow import column_values, schema_of_field
from ottla.connect.data.columns import NotByColumns, Side
from ottla.connect.data.schema import INT64, array, struct

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
    columns = Side(schema, tuple(COLUMNS[name] for name in names))
    assert converter.side_to_bytes("t", columns).to_pylist() == expected


def test_lists_in_a_column_are_written_one_by_one():
    schema = struct([("a", array(INT64))])
    columns = Side(schema, (pa.array([[1], [2, 3]], pa.list_(pa.int64())),))
    found = JsonConverter({"schemas.enable": "false"}).side_to_bytes("t", columns)
    assert found.to_pylist() == [b'{"a":[1]}', b'{"a":[2,3]}']


def test_a_null_that_may_not_be_is_left_to_the_reference():
    columns = Side(struct([("a", INT64)]), (pa.array([None], pa.int64()),))
    with pytest.raises(NotByColumns):
        JsonConverter().side_to_bytes("t", columns)
