"""CBOR values as the console shows them; the examples are those of RFC 8949, appendix A."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.reader import cbor
from ottla.console.reader.decode import show


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0),
        ("1818", 24),
        ("1bffffffffffffffff", 18446744073709551615),
        ("c249010000000000000000", 18446744073709551616),
        ("3bffffffffffffffff", -18446744073709551616),
        ("3903e7", -1000),
        ("f93c00", 1.0),
        ("fb3ff199999999999a", 1.1),
        ("f5", True),
        ("f6", None),
        ("62c3bc", "ü"),
        ("4401020304", "01020304"),
        ("83010203", [1, 2, 3]),
        ("a26161016162820203", {"a": 1, "b": [2, 3]}),
        ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
        ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
        ("7f657374726561646d696e67ff", "streaming"),
        ("c11a514b67b0", 1363896240),
    ],
)
def test_an_item_is_read(data, value):
    assert cbor.decode(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    "data",
    ["", "ff", "1c", "8301", "6261", "0000", "81" * 200 + "00", "9b7fffffffffffffff00", "c2e0", "c20a"],
)
def test_what_is_no_item_is_refused(data):
    with pytest.raises(cbor.NotCbor):
        cbor.decode(bytes.fromhex(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_item_or_refused(data):
    with contextlib.suppress(cbor.NotCbor):
        cbor.decode(data)


def test_a_record_is_recognised_and_keeps_its_digits():
    data = bytes.fromhex("a2626964" + "1b0020000000000001" + "646e616d65" + "63" + "416461")
    shown = show(data)
    assert (shown.kind, json.loads(shown.text)) == ("json", {"id": 9007199254740993, "name": "Ada"})
