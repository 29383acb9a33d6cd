"""The checked ways into a JSON document: they give the part, or say what stood there."""

import json

import pytest

from ottla.json_types import JsonTypeError, as_int, as_list, as_number, as_object, as_text

DOCUMENT = json.loads(
    '{"object": {"a": 1}, "list": [1, "b"], "text": "c", "int": 7, "float": 0.5, "yes": true}'
)


@pytest.mark.parametrize(
    ("way", "part"),
    [
        (as_object, "object"),
        (as_list, "list"),
        (as_text, "text"),
        (as_int, "int"),
        (as_number, "int"),
        (as_number, "float"),
    ],
)
def test_a_part_of_the_right_type_is_given_as_it_is(way, part):
    assert way(DOCUMENT[part]) is DOCUMENT[part]


@pytest.mark.parametrize(
    ("way", "part", "wanted", "found"),
    [
        (as_object, "list", "an object", "an array"),
        (as_list, "text", "an array", "a string"),
        (as_text, "missing", "a string", "null"),
        (as_int, "yes", "a whole number", "a boolean"),
        (as_int, "float", "a whole number", "a number"),
        (as_number, "object", "a number", "an object"),
    ],
)
def test_a_part_of_another_type_is_named_without_its_value(way, part, wanted, found):
    with pytest.raises(JsonTypeError, match=f"^the {part} must be {wanted}, and it is {found}$"):
        way(DOCUMENT.get(part), f"the {part}")
