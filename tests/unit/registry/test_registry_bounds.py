"""Schemas that are valid, or nearly, and meant to keep the registry busy: each has a limit on what it costs."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from ottla.registry import avro, json_schema
from ottla.registry.ahead import Job, Workbench
from ottla.registry.compat import avro as avro_compat
from ottla.registry.compat import json_schema as json_compat
from ottla.registry.errors import InvalidSchema
from ottla.registry.formats import Formats, Source


def record(name, *fields):
    return {"type": "record", "name": name, "fields": list(fields)}


def compared_json(reader, writer):
    def parsed(document):
        return json_schema.parse(json.dumps(document), {})

    return json_compat.compare(parsed(reader), parsed(writer))


def test_long_lists_of_values_are_compared_at_once():
    # Value by value these would be thousands of millions of comparisons.
    ours, theirs = ({"enum": [[name, at] for at in range(60_000)]} for name in "ab")
    assert "ENUM" in str(compared_json(ours, theirs)[0])
    assert compared_json(ours, ours) == []


def test_numbers_of_enums_are_equal_as_in_json_schema():
    assert compared_json({"enum": [1, [2.0]]}, {"enum": [1.0, [2]]}) == []
    assert compared_json({"enum": [True]}, {"enum": [1]}) != []
    assert compared_json({"enum": [{"a": False}]}, {"enum": [{"a": 0}]}) != []


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        pytest.param(
            {"patternProperties": {f"^x{at}$": {"type": "string"} for at in range(3_000)}},
            {"properties": {f"p{at}": {} for at in range(3_000)}},
            id="patterns",
        ),
        pytest.param(
            {"required": ["a"]},
            {"oneOf": [{"title": str(at)} for at in range(9_000)], **{f"x{at}": 0 for at in range(30_000)}},
            id="merged keywords",
        ),
        pytest.param(
            {"required": [f"p{at}" for at in range(40_000)]},
            {"anyOf": [{"title": str(at)} for at in range(5_000)]},
            id="required",
        ),
    ],
)
def test_work_that_each_pair_repeats_is_counted(reader, writer):
    with pytest.raises(InvalidSchema, match="more than 1000000 symbols, values and keywords"):
        compared_json(reader, writer)


def test_symbols_of_enums_in_unions_are_counted():
    def union(space):
        symbols = [f"s{at}" for at in range(200)]
        return [{"type": "enum", "name": f"{space}{at}.E", "symbols": symbols} for at in range(150)]

    ours, theirs = (avro.parse(json.dumps(union(space))) for space in "ab")
    wrong = avro.parse(json.dumps([{**one, "symbols": ["x"]} for one in union("c")]))
    assert avro_compat.compare(ours.root, theirs.root) == []
    with pytest.raises(InvalidSchema, match="more than 1000000 symbols"):
        avro_compat.compare(wrong.root, theirs.root)


def test_a_default_is_checked_once_for_each_branch():
    # Two branches at each level: branch by branch it would be two to the power of sixty checks.
    value = 5
    for _ in range(60):
        value = {"a": value}
    twins = [
        record("R1", {"name": "a", "type": ["R1", record("R2", {"name": "a", "type": ["R1", "R2"]})]}),
        "R2",
    ]
    with pytest.raises(InvalidSchema, match="is not a value"):
        avro.parse(json.dumps(record("T", {"name": "x", "type": twins, "default": value})))
    many = [{"type": "fixed", "name": f"F{at}", "size": 1} for at in range(2_000)]
    items = {"type": "array", "items": [*many, "int"]}
    with pytest.raises(InvalidSchema, match="checks"):
        avro.parse(json.dumps(record("T", {"name": "x", "type": items, "default": [0] * 1_000})))


def test_names_that_all_types_repeat_are_bounded():
    types = [{"type": "fixed", "name": f"F{at}", "size": 1} for at in range(2_000)]
    fields = [{"name": f"f{at}", "type": each} for at, each in enumerate(types)]
    with pytest.raises(InvalidSchema, match="full name has more than"):
        avro.parse(json.dumps({**record("R", *fields), "namespace": "n" * 100_000}))
    refs = {f"p{at}": {"$ref": "#"} for at in range(10_000)}
    long = json_schema.parse(json.dumps({"properties": {"x" * 300_000: {"properties": refs}}}), {})
    assert json_compat.compare(long, long) == []
    with pytest.raises(InvalidSchema, match="address has more than"):
        json_schema.parse(json.dumps({"$id": "http://a/" + "x" * 300_000, "properties": refs}), {})


def test_an_answer_shows_the_beginning_of_long_names():
    found = compared_json({"required": ["x" * 200_000]}, {"type": "object"})
    assert len(str(found[0])) < 3_000


def test_references_that_meet_again_and_again_are_walked_once():
    source = Source("AVRO", json.dumps(record("R0")))
    for level in range(1, 100):
        source = Source("AVRO", json.dumps(record(f"R{level}")), (("a", source), ("b", source)))
    assert hash(source) == hash(Source("AVRO", source.text, source.references))
    formats = Formats()
    assert formats.parse(source) is formats.parse(source)


def test_what_is_remembered_of_large_schemas_is_bounded():
    formats = Formats()
    for at in range(12):
        formats.parse(Source("JSON", json.dumps({"title": str(at), "description": "x" * 900_000})))
    assert len(formats._known) == 4
    assert formats._chars < 4_000_000


def test_the_loop_goes_on_while_a_schema_is_parsed(monkeypatch):
    began, goes_on = threading.Event(), threading.Event()
    parse = Formats.parse

    def slow(self, source, *, lenient=False):
        began.set()
        assert goes_on.wait(60)
        return parse(self, source, lenient=lenient)

    monkeypatch.setattr(Formats, "parse", slow)

    async def scene():
        bench = Workbench(Formats())
        large = Source("AVRO", json.dumps({**record("R"), "doc": "x" * 50_000}))
        job = asyncio.ensure_future(bench.run(Job(large, lenient=False)))
        await asyncio.to_thread(began.wait, 60)
        # A small schema waits for nobody.
        await bench.run(Job(Source("AVRO", '"int"'), lenient=False))
        assert not job.done()
        goes_on.set()
        await job
        bench.close()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('message A { string a = 1 [json_name="\\ud800"]; }', "UTF-8"),
        ("message A { " + " ".join(f"string f{at} = {at};" for at in range(1, 9_000)) + "}", "maximum size"),
    ],
)
def test_what_protobufs_python_does_not_take_is_refused_with_a_reason(text, reason):
    pytest.importorskip("grpc_tools")
    formats = Formats()
    try:
        with pytest.raises(InvalidSchema, match=reason):
            formats.parse(Source("PROTOBUF", f'syntax = "proto3"; {text}'))
    finally:
        formats.close()
