"""Hostile schemas, sent to a registry that runs: each is answered, memory stays bounded, and others are served."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest

from integration.registry_client import Http
from ottla.testing.registry import RegistryProcess

pytest.importorskip("uvicorn")
pytest.importorskip("grpc_tools")

MAX_GROWTH_KB = 100 << 10


@pytest.fixture(scope="module")
def registry(shared_ottla_broker):
    with RegistryProcess(
        shared_ottla_broker.bootstrap, "--topic", "_hostile", "--group", "hostile"
    ) as process:
        yield process


def peak_kb(pid: int) -> int:
    """The most memory that a process has ever had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def avro_laughs(leaf):
    """Each record has three fields of the one below: written out it would be three to the power of sixty fields."""
    one = {"type": "record", "name": "L0", "fields": [{"name": "f", "type": leaf}]}
    for level in range(1, 60):
        below = f"L{level - 1}"
        types = [one, below, ["null", below]]
        fields = [{"name": f"f{at}", "type": each} for at, each in enumerate(types)]
        one = {"type": "record", "name": f"L{level}", "fields": fields}
    return json.dumps(one)


def json_laughs(leaf):
    """Each definition allows three of the one below, one after the other."""
    definitions = {"l0": {"type": leaf}}
    for level in range(1, 60):
        below = {"$ref": f"#/definitions/l{level - 1}"}
        definitions[f"l{level}"] = {"type": "object", "properties": dict.fromkeys("abc", below)}
    return json.dumps({"$ref": "#/definitions/l59", "definitions": definitions})


def proto(text):
    return f'syntax = "proto3"; {text}'


REFUSED = {
    "avro-deep": ("AVRO", '{"type":"array","items":' * 40_000),
    "avro-lists": ("AVRO", "[" * 900_000),
    "avro-huge": ("AVRO", '"' + "x" * 3_000_000 + '"'),
    "avro-fields": (
        "AVRO",
        json.dumps(
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": f"f{at}", "type": "int"} for at in range(25_000)],
            }
        ),
    ),
    "json-deep": ("JSON", '{"items":' * 90_000),
    "json-properties": ("JSON", json.dumps({"properties": {f"p{at}": {} for at in range(30_000)}})),
    "proto-deep": ("PROTOBUF", proto("message A { " * 5_000 + "}" * 5_000)),
    "proto-fields": (
        "PROTOBUF",
        proto("message A { " + " ".join(f"int32 f{at} = {at};" for at in range(1, 40_000)) + " }"),
    ),
    "proto-nowhere": ("PROTOBUF", proto('import "/etc/passwd"; message A {}')),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_too_deep_or_too_large_is_refused(registry, name):
    http, before = Http(registry.url), peak_kb(registry.pid)
    kind, text = REFUSED[name]
    for path in (f"/subjects/{name}/versions", f"/compatibility/subjects/{name}/versions"):
        status, answer = http.ask("POST", path, {"schema": text, "schemaType": kind})
        assert (status, answer["error_code"]) == (422, 42201), answer
    assert http.get(f"/subjects/{name}/versions")["error_code"] == 40401
    assert peak_kb(registry.pid) - before < MAX_GROWTH_KB


@pytest.mark.parametrize(
    ("kind", "laughs", "leaves"),
    [("AVRO", avro_laughs, ("int", "long")), ("JSON", json_laughs, ("integer", "number"))],
)
def test_billion_laughs_are_compared_by_their_names(registry, kind, laughs, leaves):
    http, before = Http(registry.url), peak_kb(registry.pid)
    for leaf in leaves:
        status, answer = http.register(f"laughs-{kind}", laughs(leaf), schemaType=kind)
        assert status == 200, answer
    assert peak_kb(registry.pid) - before < MAX_GROWTH_KB


def test_a_schema_that_is_only_itself_is_refused_and_loops_of_imports_too(registry):
    http, before = Http(registry.url), peak_kb(registry.pid)
    itself = {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}
    http.register("itself", itself, schemaType="JSON")
    other = {**itself, "title": "another"}
    assert http.register("itself", other, schemaType="JSON")[1]["error_code"] == 42201

    def reference(name, version):
        return {"name": name, "subject": name, "version": version}

    def send(name, text, *references):
        return http.register(name, proto(text), schemaType="PROTOBUF", references=list(references))

    # No reference can be to what is not there yet, so a loop needs a second version of one of its files.
    assert send("b.proto", "message B {}")[0] == 200
    assert send("a.proto", 'import "b.proto"; message A { B b = 1; }', reference("b.proto", 1))[0] == 200
    text = 'import "a.proto"; message B { A a = 1; }'
    assert send("b.proto", text, reference("a.proto", 1))[1]["error_code"] == 42201
    own = 'import "self.proto"; message S {}'
    assert send("self.proto", own)[1]["error_code"] == 42201
    assert send("self.proto", own, reference("self.proto", 1))[1]["error_code"] == 42201
    assert http.register("plain", '"int"')[0] == 200
    assert peak_kb(registry.pid) - before < MAX_GROWTH_KB


def test_others_are_served_while_protoc_works(registry):
    http = Http(registry.url)
    assert http.register("known", '"int"')[0] == 200
    numbers = ", ".join(str(at) for at in range(1, 100_000, 2))
    slow = proto(f"message A {{ reserved {numbers}; }}")
    answered = threading.Event()

    def send():
        http.register("slow", slow, schemaType="PROTOBUF")
        answered.set()

    thread = threading.Thread(target=send)
    thread.start()
    served = 0
    while not answered.is_set() and served < 50:
        assert http.get("/subjects/known/versions") == [1]
        assert http.register("known", '"int"')[0] == 200
        served += 1
    thread.join()
    # protoc takes seconds; without a thread for it the first question would wait as long.
    assert served > 2
