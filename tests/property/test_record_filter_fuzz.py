"""The filter language takes any text from the network and any record: it refuses in words, or answers yes or no."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.admin.record_filter import FilterError, parse_filter

WORDS = [
    *("key", "value", "headers", "topic", "partition", "offset", "timestamp", "true", "null", "nobody"),
    *("value.total", "value.a.b", "value['a']", "value[0]", "headers['trace']", "value.__class__"),
    *("==", "!=", "<", ">=", "in", "not in", "is", "and", "or", "not", "+", "-", "*", "%", "**", "<<"),
    *("(", ")", "[", "]", ",", ".", ":", "{", "}", "lambda", "if", "else", "for", "await", ":="),
    *(".startswith(", ".matches(", ".lower()", ".upper()", ".format(", "__import__("),
    *("1", "-1", "1e999", "9" * 5000, "'a'", "''", '"(a+)+$"', "'['", "b'x'", "f'{key}'", "\\", "\n", "\0"),
]
expressions = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join),
    st.lists(st.sampled_from(WORDS), max_size=12).map("".join),
    st.text(max_size=60),
)
plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
documents = st.recursive(
    plain,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab"), inner)),
    max_leaves=6,
)
values = st.one_of(
    documents.map(lambda document: json.dumps(document).encode()), st.binary(max_size=20), st.none()
)


class Message:
    """A record as clients see it."""

    def __init__(self, value: bytes | None) -> None:
        self._value = value

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 17

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def key(self) -> bytes | None:
        return self._value

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [("trace", self._value), ("none", None)]


@given(expressions, values)
def test_any_text_is_refused_in_words_or_decides(expression, value):
    try:
        fits = parse_filter(expression)
    except FilterError as error:
        assert error.message
        return
    assert fits(Message(value)) in (True, False)


@pytest.mark.parametrize("value", [b"[" * 200_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b"9" * 5000])
def test_a_value_that_no_parser_likes_does_not_fit(value):
    assert parse_filter("value.a == 1")(Message(value)) is False
