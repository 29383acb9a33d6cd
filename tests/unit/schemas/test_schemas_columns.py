"""Columns of Avro records, without Spark: batches of one writer and of several, nulls, and texts that are not UTF-8."""

import json

import pytest

from ottla.schemas import RegisteredSchema, Registry, RegistryUnavailable, UnsupportedRules
from ottla.schemas.errors import InvalidData

pa = pytest.importorskip("pyarrow")
from ottla.schemas.spark import read_column  # noqa: E402
from ottla.schemas.spark_columns import read_rows  # noqa: E402

NAME = {"name": "name", "type": "string"}
NOTE = {"name": "note", "type": ["null", "string"], "default": "none"}
TAGS = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["x"]}


def schema(*fields):
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


OLD, NEW = schema(NAME), schema(NAME, NOTE, TAGS)


@pytest.fixture
def registry(monkeypatch):
    known = {1: RegisteredSchema(1, OLD), 2: RegisteredSchema(2, NEW)}
    monkeypatch.setattr(Registry, "by_id", lambda self, number, subject="": known[number])
    monkeypatch.setattr("ottla.schemas.spark_columns._CACHED", {})
    return Registry("http://localhost:1")


def old(name: bytes) -> bytes:
    return b"\0\0\0\0\1" + bytes([len(name) * 2]) + name


FULL = b"\0\0\0\0\2" + b"\2z" + b"\2\4ok" + b"\4\2a\2b\0"
FULL_ROW = {"name": "z", "note": "ok", "tags": ["a", "b"]}


def column(registry, *records, permissive=False):
    found = read_column(pa.array(records, pa.binary()), registry, NEW, permissive=permissive)
    assert found.type.field("name").type == pa.string()
    return found.to_pylist()


def test_a_batch_of_one_writer(registry):
    rows = [{"name": name, "note": "none", "tags": ["x"]} for name in ("ann", "zoë", "")]
    for _ in range(2):
        assert column(registry, *(old(row["name"].encode()) for row in rows)) == rows
        assert column(registry, FULL, FULL) == [FULL_ROW, FULL_ROW]


def test_a_batch_of_two_writers_with_nulls(registry):
    rows = column(registry, old(b"ann"), None, FULL)
    assert rows == [{"name": "ann", "note": "none", "tags": ["x"]}, None, FULL_ROW]
    assert column(registry) == []


@pytest.mark.parametrize("damaged", [old(b"\xff\xfe"), old(b"ann")[:-1], b"\0\0\0\0\1", b"\0"])
def test_a_damaged_record_is_named_or_null(registry, damaged):
    good = old(b"ann")
    column(registry, good)
    with pytest.raises(InvalidData, match="schema id"):
        column(registry, good, damaged)
    assert [row and row["name"] for row in column(registry, good, damaged, good, permissive=True)] == [
        "ann",
        None,
        "ann",
    ]


@pytest.mark.parametrize("number", [b"\x80\x80\x80\x80\x10", b"\xff" * 9 + b"\x7f"])
def test_a_number_that_no_column_holds_is_named_or_null(monkeypatch, registry, number):
    text = schema({"name": "count", "type": "int"})
    monkeypatch.setattr(Registry, "by_id", lambda self, number, subject="": RegisteredSchema(1, text))
    records = pa.array([b"\0\0\0\0\1" + one for one in (b"\x02", number, b"\x04")], pa.binary())
    with pytest.raises(InvalidData, match="the schema id 1 cannot be read"):
        read_column(records, registry, text, permissive=False)
    found = read_column(records, registry, text, permissive=True)
    assert found.to_pylist() == [{"count": 1}, None, {"count": 2}]


@pytest.mark.parametrize("permissive", [False, True])
def test_rules_and_a_registry_that_is_down_are_no_fault_of_the_record(monkeypatch, registry, permissive):
    ruled = RegisteredSchema(1, OLD, rules=(("encrypt", "WRITEREAD"),))
    monkeypatch.setattr(Registry, "by_id", lambda self, number, subject="": ruled)
    with pytest.raises(UnsupportedRules, match="encrypt"):
        column(registry, old(b"ann"), None, permissive=permissive)

    def down(self, number, subject=""):
        raise RegistryUnavailable("no schema registry answers")

    monkeypatch.setattr(Registry, "by_id", down)
    with pytest.raises(RegistryUnavailable):
        column(registry, old(b"ann"), None, permissive=permissive)
    with pytest.raises(RegistryUnavailable):
        read_rows(pa.array([old(b"ann")]), {}, lambda number: down(registry, number), permissive=permissive)
