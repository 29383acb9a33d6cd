"""Avro schemas: what is accepted, what is refused and where, and that hostile ones cost little."""

import json
import time

import pytest

from ottla.registry import avro
from ottla.registry.compat.avro import compare
from ottla.registry.errors import InvalidSchema
from ottla.registry.limits import MAX_COMPARED_PAIRS


def text(document):
    return json.dumps(document)


def record(name, *fields):
    return {"type": "record", "name": name, "fields": list(fields)}


def test_a_schema_keeps_its_meaning_in_one_spelling():
    spaced = '{ "fields": [ {"type": "int", "name": "a", "default": 1} ], "name": "x.R", "type": "record" }'
    expected = '{"type":"record","name":"R","namespace":"x","fields":[{"name":"a","type":"int","default":1}]}'
    assert avro.parse(spaced).text == expected


def test_a_bare_word_is_a_type():
    assert avro.parse("string").text == '"string"'


@pytest.mark.parametrize(
    ("document", "place"),
    [
        (record("R", {"name": "a", "type": "nosuch"}), "/fields/0/type: the name 'nosuch' is not defined"),
        (record("R", {"name": "a b", "type": "int"}), "/fields/0/name"),
        (record("R", {"name": "a", "type": "int", "default": "x"}), "/fields/0/default"),
        (record("R", {"name": "a", "type": "int"}, {"name": "a", "type": "int"}), "has the field a twice"),
        (["int", "int"], "/1: the union has int twice"),
        (["int", ["null"]], "/1: a union may not be a branch of a union"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "/symbols"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "/default"),
        ({"type": "fixed", "name": "F", "size": -1}, "/size"),
        ({"type": "array"}, "needs 'items'"),
        (3, "not '3'"),
    ],
)
def test_an_error_names_the_place(document, place):
    with pytest.raises(InvalidSchema, match=place.replace("(", r"\(")):
        avro.parse(text(document))


def test_names_come_from_references():
    money = avro.parse(text({"type": "record", "name": "m.Money", "fields": [{"name": "n", "type": "long"}]}))
    order = avro.parse(text(record("Order", {"name": "price", "type": "m.Money"})), [money])
    assert order.text == '{"type":"record","name":"Order","fields":[{"name":"price","type":"m.Money"}]}'
    assert order.root.fields[0].type is money.root


def test_a_finding_names_the_path_and_the_field():
    old = avro.parse(text(record("R", {"name": "inner", "type": record("S")})))
    new = avro.parse(text(record("R", {"name": "inner", "type": record("S", {"name": "b", "type": "int"})})))
    (found,) = compare(new.root, old.root)
    assert found.kind == "READER_FIELD_MISSING_DEFAULT_VALUE"
    assert found.path == "/fields/0/type/fields/0"
    assert "'b'" in found.message


def test_recursive_schemas_are_compared():
    tree = record("Node", {"name": "next", "type": ["null", "Node"]}, {"name": "v", "type": "int"})
    wider = record("Node", {"name": "next", "type": ["null", "Node"]}, {"name": "v", "type": "long"})
    assert compare(avro.parse(text(wider)).root, avro.parse(text(tree)).root) == []
    assert compare(avro.parse(text(tree)).root, avro.parse(text(wider)).root) != []


def deep_arrays(levels):
    return '{"type":"array","items":' * levels + '"int"' + "}" * levels


def many_fields(count):
    return text(record("R", *({"name": f"f{number}", "type": "int"} for number in range(count))))


@pytest.mark.parametrize(
    "hostile",
    [
        deep_arrays(150),
        deep_arrays(100_000)[:900_000],
        "[" * 500_000,
        '"' + "x" * 2_000_000 + '"',
        many_fields(30_000)[:999_000],
        '{"type":"int","x":' + "1" * 5_000 + "}",
        '{"type":"double","default":NaN}',
    ],
)
def test_hostile_schemas_are_refused_soon(hostile):
    began = time.process_time()
    with pytest.raises(InvalidSchema):
        avro.parse(hostile)
    assert time.process_time() - began < 20


def test_a_comparison_of_many_pairs_is_bounded():
    # Two unions of records that refer to each other make many pairs: their number is what the limit bounds.
    def clique(count, kind):
        names = [f"R{number}" for number in range(count)]
        return [
            record(name, *({"name": f"to{other}", "type": ["null", other]} for other in names[: index + 1]))
            | {"doc": kind}
            for index, name in enumerate(names)
        ]

    reader = avro.parse(text(clique(60, "r")))
    writer = avro.parse(text(clique(60, "w")))
    began = time.process_time()
    compare(reader.root, writer.root)
    assert time.process_time() - began < 20
    assert MAX_COMPARED_PAIRS <= 200_000
