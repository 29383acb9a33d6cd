"""Unions of several types: structs in Spark and Connect, and the same bytes when they are written back."""

from __future__ import annotations

import json

import pytest

from ottla.registry import avro
from ottla.schemas import RegisteredSchema, Registry
from ottla.schemas.avro_decode import compile_decoder
from ottla.schemas.avro_encode import compile_encoder
from ottla.schemas.avro_unions import Branch, branches_of, connect_members, has_structs, spark_members
from ottla.schemas.errors import InvalidData, SchemaError

pa = pytest.importorskip("pyarrow")
from ottla.schemas.spark import arrow_type, read_column  # noqa: E402

CARD = {"type": "record", "name": "shop.Card", "fields": [{"name": "number", "type": "string"}]}
CASH = {"type": "record", "name": "shop.Cash", "fields": [{"name": "number", "type": "string"}]}
PAID = {"name": "paid", "type": ["null", CARD, CASH, "string"], "default": None}
IDS = {"name": "ids", "type": {"type": "array", "items": ["string", "long"]}}
SIZE = {"name": "size", "type": ["int", "long"]}
BONUS = {"name": "bonus", "type": ["string", "null", "long"], "default": "none"}


def schema(*fields):
    return {"type": "record", "name": "Order", "fields": list(fields)}


def root(document):
    return avro.parse(json.dumps(document)).root


ORDER = root(schema(PAID, IDS, SIZE))
ROWS = [
    {"paid": {"member1": {"number": "7"}}, "ids": [{"member0": "a"}, {"member1": 2}], "size": 1},
    {"paid": {"member2": "later"}, "ids": [], "size": 2**40},
    {"paid": None, "ids": [{"member1": -1}], "size": 3},
    {"paid": {"member0": {"number": "8"}}, "ids": [], "size": 0},
]


def written(one, value, members=spark_members):
    return compile_encoder(one)(branches_of(one, value, members))


@pytest.mark.parametrize("row", ROWS)
def test_each_type_has_a_field_and_keeps_its_branch(row):
    data = written(ORDER, row)
    assert compile_decoder(ORDER, members=spark_members)(data) == row
    # Without names a union is its value, and two records with the same fields look the same.
    assert compile_decoder(ORDER)(data)["size"] == row["size"]
    # Spark has all fields of a struct in its rows, and null in the others.
    full = {f"member{number}": None for number in range(3)} | row["paid"] if row["paid"] else None
    assert written(ORDER, {**row, "paid": full}) == data


def test_names_are_those_of_spark_and_of_confluents_converter():
    paid, ids, size = (field.type for field in ORDER.fields)
    assert spark_members(paid) == (None, "member0", "member1", "member2")
    assert connect_members(paid) == (None, "Card", "Cash", "string")
    assert connect_members(ids.items) == ("string", "long")
    # Two kinds of numbers are one column, and a type that may be null is no union.
    assert spark_members(size) is None and connect_members(size) == ("int", "long")
    assert not has_structs(root(schema(SIZE, {"name": "n", "type": ["null", "string"]})), spark_members)
    twice = root([CARD, {**CASH, "name": "bank.Card"}])
    with pytest.raises(SchemaError, match="two types of the name Card"):
        connect_members(twice)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"member0": None, "member2": None}, "none of its fields member0, member1 set"),
        ({"member0": "a", "member1": 1}, "2 of its fields member0, member1 set"),
    ],
)
def test_one_field_of_a_struct_is_set(value, sentence):
    with pytest.raises(InvalidData, match=sentence):
        written(root(["string", "long"]), value)


def test_a_branch_with_a_wrong_value_is_explained():
    with pytest.raises(InvalidData, match="'a' is not a value of the type long"):
        compile_encoder(root(["string", "long"]))(Branch(1, "a"))


def test_columns_of_several_writers(monkeypatch):
    old, new = json.dumps(schema(IDS)), json.dumps(schema(PAID, IDS, SIZE, BONUS))
    plain = {**schema({**IDS, "type": {"type": "array", "items": "long"}})}
    older = json.dumps(plain)
    known = {number: RegisteredSchema(number, text) for number, text in ((1, old), (2, new), (3, older))}
    monkeypatch.setattr(Registry, "by_id", lambda self, number, subject="": known[number])
    monkeypatch.setattr("ottla.schemas.spark_columns._CACHED", {})
    reader = root(schema({**PAID}, IDS, {**SIZE, "default": 5}, BONUS))
    text = json.dumps(schema(PAID, IDS, {**SIZE, "default": 5}, BONUS))
    assert str(arrow_type(reader).field("size").type) == "int64"
    records = [
        b"\0\0\0\0\1" + written(root(json.loads(old)), {"ids": [{"member0": "x"}]}),
        b"\0\0\0\0\2" + written(root(json.loads(new)), {**ROWS[0], "bonus": {"member1": 9}}),
        b"\0\0\0\0\3" + written(root(plain), {"ids": [4]}),
    ]
    found = read_column(
        pa.array(records, pa.binary()), Registry("http://localhost:1"), text, permissive=False
    )
    first, second, third = found.to_pylist()
    none = {"member0": None, "member1": None}
    assert first["ids"] == [{**none, "member0": "x"}]
    # What a writer does not have comes from the reader's defaults.
    assert (first["paid"], first["size"], first["bonus"]) == (None, 5, {**none, "member0": "none"})
    assert second["paid"] == {"member0": None, "member1": {"number": "7"}, "member2": None}
    assert second["bonus"] == {**none, "member1": 9}
    assert third["ids"] == [{**none, "member1": 4}]
