"""A registry on a real broker: register, evolve, refuse, look up, delete, configure, as clients do."""

from __future__ import annotations

import json

import pytest

from integration.registry_client import Http, topic_records
from ottla.testing.registry import RegistryProcess

pytest.importorskip("uvicorn")

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {**V1, "fields": [*V1["fields"], {"name": "note", "type": "string", "default": ""}]}
BAD = {**V1, "fields": [*V1["fields"], {"name": "price", "type": "double"}]}


@pytest.fixture(scope="module")
def registry(shared_ottla_broker):
    with RegistryProcess(shared_ottla_broker.bootstrap, "--topic", "_rest", "--group", "rest") as process:
        yield process


@pytest.fixture
def http(registry):
    return Http(registry.url)


def compact(document):
    return json.dumps(document, separators=(",", ":"))


def test_a_schema_evolves_and_a_wrong_change_is_explained(http):
    status, first = http.register("orders-value", V1)
    assert status == 200 and first["version"] == 1
    assert http.register("orders-value", V1)[1]["id"] == first["id"]
    assert http.register("orders-value", V2)[1]["version"] == 2
    status, refused = http.register("orders-value", BAD)
    assert (status, refused["error_code"]) == (409, 409)
    assert "/fields/1" in refused["message"] and "'price'" in refused["message"]
    assert http.get("/subjects/orders-value/versions") == [1, 2]
    assert http.get("/subjects/orders-value/versions/latest")["schema"] == compact(V2)
    assert http.get(f"/schemas/ids/{first['id']}")["schema"] == compact(V1)
    assert http.get("/subjects/orders-value/versions/1/schema") == V1
    found = http.ask("POST", "/subjects/orders-value", {"schema": json.dumps(V1)})[1]
    assert (found["version"], found["id"]) == (1, first["id"])
    other = http.register("other-value", V1)[1]
    assert other["id"] == first["id"]
    users = http.get(f"/schemas/ids/{first['id']}/versions")
    assert {one["subject"] for one in users} == {"orders-value", "other-value"}
    assert http.get(f"/schemas/guids/{first['guid']}")["schema"] == compact(V1)


@pytest.mark.parametrize(
    ("level", "allowed"),
    [
        ("NONE", (True, True)),
        ("BACKWARD", (True, False)),
        ("BACKWARD_TRANSITIVE", (True, False)),
        ("FORWARD", (True, True)),
        ("FORWARD_TRANSITIVE", (True, True)),
        ("FULL", (True, False)),
        ("FULL_TRANSITIVE", (True, False)),
    ],
)
def test_the_seven_levels(http, level, allowed):
    subject = f"level-{level}"
    http.register(subject, V1)
    assert http.ask("PUT", f"/config/{subject}", {"compatibility": level}) == (200, {"compatibility": level})
    assert http.get(f"/config/{subject}") == {"compatibilityLevel": level}
    answers = []
    for schema in (V2, BAD):
        path = f"/compatibility/subjects/{subject}/versions/latest?verbose=true"
        answer = http.ask("POST", path, {"schema": json.dumps(schema)})[1]
        answers.append(answer["is_compatible"])
        assert bool(answer["messages"]) is not answer["is_compatible"]
    assert tuple(answers) == allowed


def test_transitive_levels_look_at_all_versions(http):
    one = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": 0}]}
    two = {**one, "fields": []}
    three = {**one, "fields": [{"name": "a", "type": "string", "default": ""}]}
    for schema in (one, two):
        http.register("transitive", schema)
    assert http.ask("POST", "/compatibility/subjects/transitive/versions", {"schema": json.dumps(three)})[
        1
    ] == {"is_compatible": True}
    http.ask("PUT", "/config/transitive", {"compatibility": "BACKWARD_TRANSITIVE"})
    status, refused = http.register("transitive", three)
    assert status == 409 and "oldSchemaVersion: 1" in refused["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "/subjects/none/versions", None, (404, 40401)),
        ("GET", "/subjects/known/versions/9", None, (404, 40402)),
        ("GET", "/schemas/ids/999999", None, (404, 40403)),
        ("GET", "/subjects/known/versions/x", None, (422, 42202)),
        ("POST", "/subjects/known/versions", {"schema": "{"}, (422, 42201)),
        ("POST", "/subjects/known/versions", {}, (422, 42201)),
        ("PUT", "/config", {"compatibility": "SOME"}, (422, 42203)),
        ("PUT", "/mode", {"mode": "SOME"}, (422, 42204)),
        ("GET", "/config/known", None, (404, 40408)),
        ("GET", "/mode/known", None, (404, 40409)),
        ("DELETE", "/subjects/none", None, (404, 40401)),
        ("DELETE", "/subjects/known?permanent=true", None, (404, 40405)),
        ("DELETE", "/subjects/known/versions/1?permanent=true", None, (404, 40407)),
        ("POST", "/subjects/known", {"schema": '"bytes"'}, (404, 40403)),
        ("POST", "/subjects/a%00b/versions", {"schema": '"int"'}, (422, 42208)),
        ("GET", "/nothing", None, (404, 404)),
        ("PUT", "/subjects", {}, (405, 405)),
        ("POST", "/subjects/known/versions", {"schema": '"int"', "id": 5}, (422, 42205)),
    ],
)
def test_errors_have_confluents_numbers(http, method, path, body, expected):
    http.register("known", '"string"')
    status, answer = http.ask(method, path, body)
    assert (status, answer["error_code"]) == expected
    assert len(answer["message"]) > 5


def test_routes_that_are_not_served_say_what_is_missing(http):
    for method, path, what in (
        ("POST", "/subjects/known/versions/1/tags", "tags of schemas"),
        ("POST", "/associations:batchGet", "associations in batches"),
        ("DELETE", "/contexts/.other", "the deletion of contexts"),
        ("GET", "/v1/metadata/deployment", "its deployment"),
    ):
        status, answer = http.ask(method, path, {} if method == "POST" else None)
        assert status == 404 and f"does not serve {what}" in answer["message"].replace("facts about ", "")


def test_an_empty_schema_is_named_as_confluent_names_it(http):
    assert http.register("empty", "  ") == (422, {"error_code": 42201, "message": "Empty schema"})


def test_soft_and_hard_deletes(http):
    for schema in (V1, V2):
        http.register("gone", schema)
    assert http.ask("DELETE", "/subjects/gone/versions/1") == (200, 1)
    assert http.ask("DELETE", "/subjects/gone/versions/1")[1]["error_code"] == 40406
    assert http.get("/subjects/gone/versions?deleted=true") == [1, 2]
    assert http.ask("DELETE", "/subjects/gone") == (200, [2])
    assert "gone" not in http.get("/subjects") and "gone" in http.get("/subjects?deleted=true")
    assert http.ask("DELETE", "/subjects/gone")[1]["error_code"] == 40404
    assert http.register("gone", V1)[1]["version"] == 3
    assert http.ask("DELETE", "/subjects/gone") == (200, [3])
    assert http.ask("DELETE", "/subjects/gone?permanent=true") == (200, [1, 2, 3])
    assert "gone" not in http.get("/subjects?deleted=true")


def test_references_hold_what_they_refer_to(http):
    http.register("money", {"type": "record", "name": "Money", "fields": [{"name": "n", "type": "long"}]})
    priced = {"type": "record", "name": "Priced", "fields": [{"name": "price", "type": "Money"}]}
    assert http.register("priced", priced)[1]["error_code"] == 42201
    reference = {"name": "Money", "subject": "money", "version": 1}
    status, answer = http.register("priced", priced, references=[reference])
    assert status == 200
    assert http.get("/subjects/priced/versions/1")["references"] == [reference]
    assert http.get("/subjects/money/versions/1/referencedby") == [answer["id"]]
    assert http.ask("DELETE", "/subjects/money")[1]["error_code"] == 42206
    assert http.get("/subjects/priced/versions/1?format=resolved")["schema"].count("Money") == 1
    missing = {"name": "X", "subject": "money", "version": 99}
    assert http.register("priced2", priced, references=[missing])[1]["error_code"] == 42201


def test_modes_and_imports(http):
    http.register("modes", V1)
    assert http.ask("PUT", "/mode/modes", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert http.register("modes", V2)[1]["error_code"] == 42205
    assert http.ask("DELETE", "/subjects/modes")[1]["error_code"] == 42205
    assert http.ask("DELETE", "/mode/modes")[0] == 200
    assert http.ask("PUT", "/mode/modes", {"mode": "IMPORT"})[1]["error_code"] == 42205
    assert http.ask("PUT", "/mode/imported", {"mode": "IMPORT"})[0] == 200
    assert http.register("imported", V2, id=4242, version=7)[1]["id"] == 4242
    assert http.register("imported", BAD, id=4242, version=8)[1]["error_code"] == 42207
    assert http.get("/subjects/imported/versions") == [7]
    assert http.register("after-import", '"float"')[1]["id"] == 4243


def test_contexts_have_ids_of_their_own(http):
    first = http.register(":.lab:things", '"int"')[1]
    assert first["id"] == 1
    assert http.get("/contexts") == [".", ".lab"]
    assert http.get("/contexts/.lab/subjects") == [":.lab:things"]
    assert http.get("/contexts/.lab/subjects/things/versions/1")["schema"] == '"int"'
    assert http.get("/schemas/ids/1?subject=:.lab:things")["schema"] == '"int"'


def test_metadata_and_rules_are_kept(http):
    more = {"metadata": {"properties": {"owner": "shop"}}, "ruleSet": {"domainRules": [{"name": "r"}]}}
    assert http.register("kept", V1, **more)[0] == 200
    found = http.get("/subjects/kept/versions/latest")
    assert {key: found[key] for key in more} == more
    assert http.get("/subjects/kept/metadata?key=owner&value=shop")["version"] == 1
    http.ask("PUT", "/config/kept", {"compatibility": "FULL", "alias": "other", "compatibilityGroup": "g"})
    assert http.get("/config/kept") == {
        "compatibilityLevel": "FULL",
        "alias": "other",
        "compatibilityGroup": "g",
    }


def test_an_alias_stands_for_its_subject(http):
    first = http.register("real-value", V1)[1]
    assert http.ask("PUT", "/config/other-name", {"alias": "real-value"}) == (200, {"alias": "real-value"})
    assert http.get("/subjects/other-name/versions/latest")["subject"] == "real-value"
    assert http.ask("POST", "/subjects/other-name", {"schema": json.dumps(V1)})[1]["id"] == first["id"]
    assert http.register("other-name", V2)[1]["version"] == 2
    assert http.get("/subjects/real-value/versions") == [1, 2]
    check = "/compatibility/subjects/other-name/versions/latest"
    assert http.ask("POST", check, {"schema": json.dumps(BAD)})[1] == {"is_compatible": False}
    assert http.get(f"/schemas/ids/{first['id']}/versions?subject=other-name") == [
        {"subject": "real-value", "version": 1}
    ]
    # Its settings are its own, so that it can be changed, and ended.
    assert http.get("/config/other-name") == {"compatibilityLevel": "BACKWARD", "alias": "real-value"}
    assert http.ask("PUT", "/config/other-name", {"alias": "a\0b"})[1]["error_code"] == 42208
    assert http.ask("DELETE", "/config/other-name")[0] == 200
    assert http.get("/subjects/other-name/versions")["error_code"] == 40401
    # In another context it is a name of that context.
    http.register(":.lab:real-value", '"int"')
    http.ask("PUT", "/contexts/.lab/config/other-name", {"alias": "real-value"})
    assert http.get("/contexts/.lab/subjects/other-name/versions/1")["schema"] == '"int"'
    assert http.get("/subjects/other-name/versions")["error_code"] == 40401


def test_media_types(http):
    assert http.ask("GET", "/subjects", Accept="text/html")[0] == 406
    assert http.ask("GET", "/subjects", Accept="application/json")[0] == 200
    assert http.ask("GET", "/subjects", Accept="application/vnd.schemaregistry+json; q=0.9, */*")[0] == 200
    assert http.ask("POST", "/subjects/s", {"schema": "1"}, Content_Type="text/plain")[0] == 415


def test_weights_and_stars_of_accept_and_character_sets(registry, http):
    def kind(accept):
        import urllib.request

        request = urllib.request.Request(registry.url + "/subjects", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.headers["Content-Type"]

    first = "application/vnd.schemaregistry.v1+json"
    assert kind("application/json; q=0.2, application/vnd.schemaregistry+json; q=0.9") == (
        "application/vnd.schemaregistry+json"
    )
    assert [kind(one) for one in ("*", "*/any", "application/*", "text/html, */*; q=.2")] == [first] * 4
    assert http.ask("GET", "/subjects", Accept="application/json; q=0")[0] == 406

    def put(body, content_type):
        import urllib.error
        import urllib.request

        headers = {"Content-Type": f"{first}; charset={content_type}"}
        request = urllib.request.Request(registry.url + "/config/set", body, headers, method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    text = '{"compatibility": "NONE"}'
    assert [put(text.encode(one), one) for one in ("utf-8", "utf-16", "utf-32")] == [200] * 3
    assert put(b"\xff", "utf-16") == 400
    assert put(text.encode(), "ebcdic") == 415


def test_the_same_schema_in_another_text_is_found(http):
    one = http.register("same-json", '{"type": "string", "title": "a"}', schemaType="JSON")[1]
    other = {"schema": '{"title": "a", "type": "string"}', "schemaType": "JSON"}
    assert http.ask("POST", "/subjects/same-json", other)[1]["id"] == one["id"]
    assert http.register("same-json", other["schema"], schemaType="JSON")[1]["version"] == 1
    # Java's parser ignores the name of a primitive type.
    named = http.register("same-avro", '{"type": "int", "name": "n"}')[1]
    assert http.ask("POST", "/subjects/same-avro", {"schema": '{"type": "int"}'})[1]["id"] == named["id"]
    found = http.get(f"/schemas/ids/{named['id']}?includeSubjects=true")
    assert found["subjects"] == ["same-avro"]


def test_a_body_without_end_is_refused(http):
    status, answer = http.ask("POST", "/subjects/s/versions", {"schema": "x" * 5_000_000})
    assert (status, answer["error_code"]) == (413, 413)
    status, answer = http.ask("POST", "/subjects/s/versions", {"schema": '"' + "x" * 2_000_000 + '"'})
    assert (status, answer["error_code"]) == (422, 42201)


def test_records_are_written_as_confluent_writes_them(http, shared_ottla_broker):
    answer = http.register("bytes", V1)[1]
    pairs = topic_records(shared_ottla_broker.bootstrap, "_rest")
    assert pairs[0] == (b'{"keytype":"NOOP","magic":0}', None)
    text = json.dumps(compact(V1))
    value = f'{{"subject":"bytes","version":1,"id":{answer["id"]},"schema":{text},"deleted":false}}'
    assert (b'{"keytype":"SCHEMA","subject":"bytes","version":1,"magic":1}', value.encode()) in pairs


def test_json_schemas_and_protobuf(http):
    assert sorted(http.get("/schemas/types")) == ["AVRO", "JSON", "PROTOBUF"]
    closed = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    wider = {**closed, "properties": {**closed["properties"], "b": {"type": "string"}}}
    assert http.register("json", closed, schemaType="JSON")[0] == 200
    assert http.register("json", wider, schemaType="JSON")[1]["version"] == 2
    status, refused = http.register("json", closed | {"properties": {}}, schemaType="JSON")
    assert status == 409 and "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL" in refused["message"]
    assert "#/properties/b" in refused["message"]
    pytest.importorskip("grpc_tools")
    item = 'syntax = "proto3";\npackage shop;\nmessage Item { int32 n = 1; }\n'
    order = 'syntax = "proto3";\npackage shop;\nimport "item.proto";\nmessage Order { Item item = 1; }\n'
    assert http.register("item", item, schemaType="PROTOBUF")[0] == 200
    reference = {"name": "item.proto", "subject": "item", "version": 1}
    status, first = http.register("order", order, schemaType="PROTOBUF", references=[reference])
    assert status == 200
    spaced = order.replace(" Item item", "\n   Item   item")
    again = http.register("order", spaced, schemaType="PROTOBUF", references=[reference])[1]
    assert (again["id"], again["version"]) == (first["id"], 1)
    assert http.get("/subjects/order/versions/1")["schema"] == order
    by_id = http.get(f"/schemas/ids/{first['id']}?format=serialized")["schema"]
    assert by_id == http.get("/subjects/order/versions/1?format=serialized")["schema"] != order
    status, refused = http.register("item", item.replace("int32", "string"), schemaType="PROTOBUF")
    assert status == 409 and "FIELD_SCALAR_KIND_CHANGED" in refused["message"]
    assert http.register("json", '"string"')[0] == 409
