"""JSON Schemas: what is refused, references, and compatibility of open, closed and partly open objects."""

import json
import time

import pytest

from ottla.registry import json_schema
from ottla.registry.compat.json_schema import compare
from ottla.registry.errors import InvalidSchema


def schema(document, **references):
    return json_schema.parse(json.dumps(document), references)


def kinds(reader, writer):
    return [one.kind for one in compare(schema(reader), schema(writer))]


def obj(properties=None, **more):
    return {"type": "object", "properties": properties or {}, **more}


INT, STR = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (INT, INT, []),
        ({"type": "number"}, INT, []),
        (INT, {"type": "number"}, ["TYPE_CHANGED"]),
        ({"type": ["string", "null"]}, STR, []),
        (STR, {"type": ["string", "null"]}, ["TYPE_NARROWED"]),
        (True, STR, []),
        (False, STR, ["TYPE_NARROWED"]),
        ({**STR, "maxLength": 5}, {**STR, "maxLength": 9}, ["MAX_LENGTH_DECREASED"]),
        ({**STR, "maxLength": 9}, {**STR, "maxLength": 5}, []),
        ({**STR, "minLength": 2}, STR, ["MIN_LENGTH_INCREASED"]),
        ({**INT, "minimum": 1}, {**INT, "minimum": 2}, []),
        ({**INT, "exclusiveMinimum": 1}, {**INT, "minimum": 1}, ["MINIMUM_INCREASED"]),
        ({**INT, "multipleOf": 2}, {**INT, "multipleOf": 4}, []),
        ({**INT, "multipleOf": 4}, {**INT, "multipleOf": 2}, ["MULTIPLE_OF_CHANGED"]),
        ({**STR, "pattern": "a"}, STR, ["PATTERN_CHANGED"]),
        ({"enum": [1, 2, 3]}, {"enum": [1, 2]}, []),
        ({"enum": [1]}, {"enum": [1, 2]}, ["ENUM_ARRAY_NARROWED"]),
        (INT, {"enum": [1, 2]}, []),
        ({"enum": [1]}, INT, ["ENUM_ARRAY_NARROWED"]),
        # open objects
        (obj({"a": INT}), obj(), ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
        (obj(), obj({"a": INT}), []),
        (obj({"a": {}}), obj(), []),
        # closed objects
        (obj({"a": INT}, additionalProperties=False), obj(additionalProperties=False), []),
        (
            obj(additionalProperties=False),
            obj({"a": INT}, additionalProperties=False),
            ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
        ),
        (obj(additionalProperties=False), obj(), ["ADDITIONAL_PROPERTIES_REMOVED"]),
        # partly open objects
        (
            obj(additionalProperties=STR),
            obj({"a": INT}, additionalProperties=STR),
            ["PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"],
        ),
        (obj({"a": STR}, additionalProperties=STR), obj(additionalProperties=STR), []),
        (obj({"a": INT}, required=["a"]), obj({"a": INT}), ["REQUIRED_ATTRIBUTE_ADDED"]),
        (obj({"a": {**INT, "default": 1}}, required=["a"]), obj({"a": {**INT, "default": 1}}), []),
        # combinations
        ({"oneOf": [INT, STR]}, INT, []),
        (INT, {"oneOf": [INT, STR]}, ["TYPE_CHANGED"]),
        ({"oneOf": [INT]}, STR, ["SUM_TYPE_NARROWED"]),
        ({"allOf": [{"minimum": 1}]}, {**INT, "minimum": 2}, []),
        ({**INT, "minimum": 3}, {"allOf": [INT, {"minimum": 4}]}, []),
        ({"not": STR}, {}, ["NOT_TYPE_NARROWED"]),
        ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": INT}, []),
        ({"type": "array", "items": INT}, {"type": "array", "items": STR}, ["TYPE_CHANGED"]),
        ({"type": "array", "items": [INT, STR]}, {"type": "array", "items": [INT, STR]}, []),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}, ["UNIQUE_ITEMS_ADDED"]),
    ],
)
def test_compatibility(reader, writer, expected):
    assert kinds(reader, writer) == expected


def test_a_finding_names_the_path():
    reader = obj({"a": {"$ref": "#/definitions/A"}}, definitions={"A": obj({"b": INT})})
    writer = obj({"a": {"$ref": "#/definitions/A"}}, definitions={"A": obj({"b": STR})})
    (found,) = compare(schema(reader), schema(writer))
    assert found.path == "#/properties/a/properties/b/type"


def test_recursive_schemas_are_compared():
    tree = {
        "$ref": "#/definitions/T",
        "definitions": {"T": obj({"next": {"$ref": "#/definitions/T"}, "v": INT})},
    }
    wider = json.loads(json.dumps(tree).replace('"integer"', '"number"'))
    assert kinds(wider, tree) == []
    assert kinds(tree, wider) == ["TYPE_CHANGED"]


def test_references_are_found_by_name_and_nothing_is_fetched():
    money = schema(INT)
    priced = schema(obj({"price": {"$ref": "money.json"}}), **{"money.json": money})
    assert priced.resolve("money.json")[0] == INT
    with pytest.raises(InvalidSchema, match="nothing is fetched"):
        schema(obj({"price": {"$ref": "http://169.254.169.254/secret"}}))


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"type": "text"},
        {"properties": []},
        {"properties": {"a": 1}},
        {"required": "a"},
        {"minimum": "1"},
        {"maxLength": -1},
        {"anyOf": []},
        {"$ref": "#/nowhere"},
        {"multipleOf": 0},
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(document):
    with pytest.raises(InvalidSchema):
        schema(document)


def laughs():
    """Each level names the one below twice: as text it would be two to the power of sixty schemas."""
    definitions = {"l0": STR}
    for level in range(1, 60):
        below = {"$ref": f"#/definitions/l{level - 1}"}
        definitions[f"l{level}"] = obj({"a": below, "b": below})
    return {"definitions": definitions, "$ref": "#/definitions/l59"}


def test_billion_laughs_and_loops_cost_little():
    began = time.process_time()
    one = schema(laughs())
    assert compare(one, one) == []
    other = json.loads(json.dumps(laughs()).replace('"string"', '"integer"'))
    assert compare(schema(other), one) != []
    loop = schema({"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}})
    with pytest.raises(InvalidSchema, match="chain"):
        compare(loop, loop)
    for hostile in ('{"not":' * 20_000, '{"not":' * 150 + "{}" + "}" * 150):
        with pytest.raises(InvalidSchema):
            json_schema.parse(hostile, {})
    wide = {"anyOf": [obj({f"p{at}": INT}) for at in range(300)]}
    more = {"anyOf": [obj({f"q{at}": INT}) for at in range(300)]}
    with pytest.raises(InvalidSchema, match="pairs"):
        compare(schema(wide), schema(more))
    assert time.process_time() - began < 30
