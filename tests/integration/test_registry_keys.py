"""The DEK registry, associations and data contracts on a real broker, as clients use them."""

from __future__ import annotations

import base64
import json

import pytest

from integration.registry_client import Http, topic_records
from ottla.registry.rest.auth import hash_password
from ottla.schemas import Registry
from ottla.schemas.errors import UnsupportedRules
from ottla.testing.registry import RegistryProcess

pytest.importorskip("uvicorn")

V1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {**V1, "fields": [*V1["fields"], {"name": "price", "type": "double"}]}
KEKS = "/dek-registry/v1/keks"
MATERIAL = base64.b64encode(b"an encrypted key").decode()
OTHER = base64.b64encode(b"another encrypted key").decode()


@pytest.fixture(scope="module")
def registry(shared_ottla_broker):
    with RegistryProcess(shared_ottla_broker.bootstrap, "--topic", "_keys", "--group", "keys") as process:
        yield process


@pytest.fixture(scope="module")
def follower(registry, shared_ottla_broker):
    arguments = ("--topic", "_keys", "--group", "keys", "--follower-only")
    with RegistryProcess(shared_ottla_broker.bootstrap, *arguments) as process:
        yield process


@pytest.fixture
def http(registry):
    return Http(registry.url)


def kek(name, **more):
    return {"name": name, "kmsType": "local-kms", "kmsKeyId": "mine", **more}


def dek(**more):
    return {"subject": "orders-value", "encryptedKeyMaterial": MATERIAL, **more}


def test_a_key_lives_dies_and_comes_back(http):
    status, made = http.ask("POST", KEKS, kek("life", doc="of orders", kmsProps={"region": "west"}))
    assert status == 200 and made["shared"] is False and made["ts"] > 0
    for again in (kek("life", doc="of orders", kmsProps={"region": "west"}), kek("life", kmsKeyId="other")):
        assert http.ask("POST", KEKS, again)[1]["error_code"] == 40971
    assert http.get(f"{KEKS}/life") == made
    changed = http.ask("PUT", f"{KEKS}/life", {"doc": "of carts"})[1]
    assert changed["doc"] == "of carts" and changed["kmsProps"] == {"region": "west"}

    status, first = http.ask("POST", f"{KEKS}/life/deks/orders-value", dek())
    assert (status, first["version"], first["algorithm"]) == (200, 1, "AES256_GCM")
    for again in (dek(), dek(encryptedKeyMaterial=OTHER)):
        assert http.ask("POST", f"{KEKS}/life/deks", again)[1]["error_code"] == 40971
    second = http.ask("POST", f"{KEKS}/life/deks/orders-value", dek(version=2, encryptedKeyMaterial=OTHER))[1]
    place = f"{KEKS}/life/deks/orders-value"
    assert http.get(f"{KEKS}/life/deks") == ["orders-value"]
    assert http.get(f"{place}/versions") == [1, 2]
    assert http.get(f"{place}/versions/latest") == http.get(f"{place}/versions/-1") == second
    assert http.get(place) == first
    assert http.get(f"{place}?algorithm=AES256_SIV")["error_code"] == 40470
    assert http.get(f"{KEKS}?subjectPrefix=orders") == ["life"]
    assert http.get(f"{KEKS}?subjectPrefix=carts") == []

    assert http.ask("DELETE", f"{KEKS}/life")[1]["error_code"] == 42272
    assert http.ask("DELETE", f"{place}/versions/2?permanent=true")[1]["error_code"] == 40471
    assert http.ask("DELETE", f"{place}/versions/2") == (204, None)
    assert http.get(f"{place}/versions") == [1]
    assert http.get(f"{place}/versions/2?deleted=true")["deleted"] is True
    assert http.ask("POST", f"{place}/versions/2/undelete") == (204, None)
    assert http.get(f"{place}/versions/2") == second
    assert http.ask("DELETE", place) == (204, None)
    assert http.get(f"{place}/versions")["error_code"] == 40470
    assert http.ask("DELETE", f"{KEKS}/life") == (204, None)
    assert http.get(f"{KEKS}/life")["error_code"] == 40470
    assert "life" in http.get(f"{KEKS}?deleted=true") and "life" not in http.get(KEKS)
    assert http.ask("POST", f"{place}/undelete")[1]["error_code"] == 40472
    assert http.ask("POST", f"{KEKS}/life/undelete") == (204, None)
    assert http.ask("POST", f"{place}/undelete") == (204, None)
    assert http.get(f"{place}/versions") == [1, 2]
    assert http.ask("DELETE", place) == (204, None)
    assert http.ask("DELETE", f"{place}?permanent=true") == (204, None)
    assert http.ask("DELETE", f"{KEKS}/life") == (204, None)
    # The name of a key that is deleted softly stays taken, but for that key itself.
    assert http.ask("POST", KEKS, kek("life"))[1]["error_code"] == 40971
    assert http.ask("DELETE", f"{KEKS}/life?permanent=true") == (204, None)
    assert http.get(f"{KEKS}/life?deleted=true")["error_code"] == 40470


def test_a_deleted_key_that_is_registered_again_comes_back(http):
    assert http.ask("POST", KEKS, kek("back", doc="of orders"))[0] == 200
    place = f"{KEKS}/back/deks/orders-value"
    assert http.ask("POST", place, dek())[0] == 200
    assert http.ask("DELETE", place) == (204, None)
    assert http.ask("DELETE", f"{KEKS}/back") == (204, None)
    assert http.ask("POST", place, dek())[1]["error_code"] == 40470
    assert http.ask("POST", KEKS, kek("back"))[1]["error_code"] == 40971
    status, made = http.ask("POST", KEKS, kek("back", doc="of orders"))
    assert status == 200 and "deleted" not in made and http.get(f"{KEKS}/back") == made
    assert http.ask("POST", place, dek(encryptedKeyMaterial=OTHER))[1]["error_code"] == 40971
    assert http.ask("POST", place, dek())[0] == 200
    assert http.get(f"{place}/versions") == [1]


def test_keys_of_another_registry_are_copied_with_those_that_are_deleted(http):
    assert http.ask("POST", KEKS, kek("copied", deleted=True))[1]["deleted"] is True
    assert http.get(f"{KEKS}/copied")["error_code"] == 40470
    place = f"{KEKS}/copied/deks/orders-value"
    assert http.ask("POST", place, dek(deleted=True))[0] == 200
    assert http.get(f"{place}?deleted=true")["encryptedKeyMaterial"] == MATERIAL
    assert http.ask("POST", KEKS, kek("copied"))[0] == 200
    assert http.ask("POST", place, dek())[0] == 200
    # What is deleted in the source is deleted here in the same order: DEKs first.
    assert http.ask("POST", KEKS, kek("copied", deleted=True))[1]["error_code"] == 42272
    assert http.ask("POST", place, dek(deleted=True))[0] == 200
    assert http.ask("POST", KEKS, kek("copied", deleted=True))[0] == 200


def test_a_dek_that_is_encrypted_again_takes_the_place_of_the_old_one(http):
    assert http.ask("POST", KEKS, kek("rotated"))[0] == 200
    place = f"{KEKS}/rotated/deks/orders-value"
    assert http.ask("POST", place, dek())[0] == 200
    assert http.ask("POST", f"{place}?rewrap=true", dek(encryptedKeyMaterial=OTHER))[0] == 200
    assert http.get(place)["encryptedKeyMaterial"] == OTHER
    assert http.get(f"{place}/versions") == [1]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("", {"kmsType": "t", "kmsKeyId": "k"}, 42271),
        ("", kek("x" * 5_000), 42271),
        ("", kek("line\nbreak"), 42271),
        ("", kek("k", kmsProps={"a": 1}), 42271),
        ("", kek("k", kmsProps={str(number): "x" for number in range(101)}), 42271),
        ("", kek("k", doc=["x"]), 42271),
        ("", kek("k", shared="yes"), 42271),
        ("", kek("k", shared=True), 42271),
        ("", kek("k", deleted="yes"), 42271),
        ("/hostile/test", {}, 42271),
        ("/nowhere/test", {}, 40470),
        ("/hostile/deks", {"encryptedKeyMaterial": MATERIAL}, 42271),
        ("/hostile/deks", dek(subject=""), 42208),
        ("/hostile/deks", dek(subject="x" * 2_000), 42208),
        ("/hostile/deks", dek(algorithm="ROT13"), 42271),
        ("/hostile/deks", dek(version=-3), 42202),
        ("/hostile/deks", dek(version=True), 42202),
        ("/hostile/deks", dek(version=2**40), 42202),
        ("/hostile/deks", dek(encryptedKeyMaterial=None), 42271),
        ("/hostile/deks", dek(encryptedKeyMaterial="not base64!"), 42271),
        ("/hostile/deks", dek(encryptedKeyMaterial="A" * 100_000), 42271),
        ("/nowhere/deks", dek(), 40470),
        ("/hostile/undelete/more", {}, 404),
    ],
)
def test_hostile_keys_are_refused(http, path, body, code):
    assert http.ask("POST", KEKS, kek("hostile"))[0] in (200, 409)
    assert http.ask("POST", KEKS + path, body)[1]["error_code"] == code


def test_followers_forward_keys_and_their_topic_is_read_again(http, follower, shared_ottla_broker):
    other = Http(follower.url)
    for number in range(30):
        # A follower knows what was written through it, keys and schemas.
        assert other.ask("POST", KEKS, kek(f"own-{number}"))[0] == 200
        assert other.get(f"{KEKS}/own-{number}")["name"] == f"own-{number}"
        made = other.register(f"own-{number}", {**V1, "name": f"Own{number}"})[1]
        assert json.loads(other.get(f"/schemas/ids/{made['id']}")["schema"])["name"] == f"Own{number}"
    assert other.ask("POST", KEKS, kek("far"))[0] == 200
    made = other.ask("POST", f"{KEKS}/far/deks", dek())[1]
    assert http.get(f"{KEKS}/far/deks/orders-value/versions/1") == made
    # A registry that starts now knows the keys from their topic alone.
    arguments = ("--topic", "_keys", "--group", "keys", "--follower-only")
    with RegistryProcess(shared_ottla_broker.bootstrap, *arguments) as fresh:
        assert Http(fresh.url).get(f"{KEKS}/far/deks/orders-value") == made
    assert other.ask("DELETE", f"{KEKS}/far/deks/orders-value") == (204, None)
    assert http.get(f"{KEKS}/far/deks") == []
    kinds = {
        json.loads(key)["keytype"] for key, _ in topic_records(shared_ottla_broker.bootstrap, "_keys_extras")
    }
    assert {"NOOP", "KEK", "DEK"} <= kinds
    assert all(
        json.loads(key)["keytype"] not in ("KEK", "DEK", "ASSOC")
        for key, _ in topic_records(shared_ottla_broker.bootstrap, "_keys")
    )


def test_roles_apply_to_keys_by_subject(shared_ottla_broker, tmp_path):
    users = tmp_path / "users.toml"
    users.write_text(
        f"""
        [roles.shop]
        verbs = ["read", "write"]
        subjects = ["shop-*"]
        [roles.all]
        verbs = ["read", "write"]
        [users.ann]
        password = "{hash_password("a")}"
        roles = ["shop"]
        [users.bob]
        password = "{hash_password("b")}"
        roles = ["all"]
        """
    )
    arguments = ("--topic", "_keyroles", "--group", "keyroles", "--users", str(users))
    with RegistryProcess(shared_ottla_broker.bootstrap, *arguments) as process:
        ann, bob = Http(process.url, "ann", "a"), Http(process.url, "bob", "b")
        assert ann.ask("POST", KEKS, kek("k"))[0] == 403
        assert bob.ask("POST", KEKS, kek("k"))[0] == 200
        assert ann.ask("POST", f"{KEKS}/k/deks/shop-orders", dek(subject="shop-orders"))[0] == 200
        assert ann.ask("POST", f"{KEKS}/k/deks/bank", dek(subject="bank"))[0] == 403
        # The subject stands in the body only: that needs the right to all.
        assert ann.ask("POST", f"{KEKS}/k/deks", dek(subject="bank"))[0] == 403
        assert ann.ask("GET", f"{KEKS}/k/deks/bank")[0] == 403
        assert ann.ask("DELETE", f"{KEKS}/k")[0] == 403
        assert ann.ask("POST", "/associations", {})[0] == 403
        assert Http(process.url).ask("GET", KEKS)[0] == 401


def topic(name, *associations):
    resource = {"resourceName": name, "resourceNamespace": "west", "resourceId": f"id-{name}"}
    return {**resource, "resourceType": "topic", "associations": list(associations)}


def to(subject, kind="value", **more):
    return {"subject": subject, "associationType": kind, **more}


def with_schema(document=V1):
    return {"schema": {"schema": json.dumps(document)}}


def test_associations_name_the_subject_of_a_topic(http):
    bare = to("shared-orders", lifecycle="STRONG")
    status, error = http.ask("POST", "/associations", topic("orders", bare))
    assert (status, error["error_code"]) == (409, 40907)
    one = {**bare, **with_schema()}
    assert http.ask("POST", "/associations?dryRun=true", topic("orders", one))[0] == 200
    assert http.get("/associations/resources/id-orders") == []
    status, made = http.ask("POST", "/associations", topic("orders", one))
    assert status == 200 and made["associations"][0] == {**bare, "frozen": False}
    assert http.get("/subjects/shared-orders/versions") == [1]
    # The same again changes nothing.
    assert http.ask("POST", "/associations", topic("orders", one)) == (200, made)
    for namespace in ("west", "-"):
        found = http.get(
            f"/associations/resources/{namespace}/orders?resourceType=topic&associationType=value"
        )
        assert [each["subject"] for each in found] == ["shared-orders"]
    assert http.get("/associations/resources/east/orders") == []
    assert http.get("/associations/resources/-/orders?associationType=key") == []
    assert http.get("/associations/resources/-/orders?lifecycle=WEAK") == []
    assert http.get("/associations/resources/-/orders?lifecycle=NO")["error_code"] == 42212
    assert (
        len(http.get("/associations/subjects/shared-orders"))
        == len(http.get("/associations/resources/id-orders?lifecycle=STRONG"))
        == 1
    )
    deletion = "/associations/resources/id-orders?cascadeLifecycle=true"
    assert http.ask("DELETE", f"{deletion}&dryRun=true") == (204, None)
    assert http.ask("DELETE", deletion) == (204, None)
    assert http.get("/associations/resources/-/orders") == []
    assert http.get("/subjects/shared-orders/versions")["error_code"] == 40401
    assert http.ask("DELETE", deletion)[0] == 404


def test_an_association_changes_its_lifecycle_only(http):
    made = topic("carts", to("all-carts", lifecycle="WEAK", **with_schema()))
    assert http.ask("POST", "/associations", made)[0] == 200
    place = "/associations/resources/id-carts"
    for more, code in (
        (to("other-carts", **with_schema()), 42212),
        (to("all-carts", frozen=True), 42212),
    ):
        assert http.ask("POST", "/associations", topic("carts", more))[1]["error_code"] == 40911
        assert http.ask("PUT", place, topic("carts", more))[1]["error_code"] == code
    # A second schema is no new association, but an update of the one that is there.
    optional = {**V1, "fields": [*V1["fields"], {"name": "note", "type": "string", "default": ""}]}
    evolved = topic("carts", to("all-carts", **with_schema(optional)))
    assert http.ask("POST", "/associations", evolved)[1]["error_code"] == 40911
    assert http.ask("PUT", place, evolved)[0] == 200
    assert http.get("/subjects/all-carts/versions") == [1, 2]
    assert http.ask("PUT", place, topic("carts", to("all-carts", lifecycle="STRONG")))[0] == 200
    assert http.get(place)[0]["lifecycle"] == "STRONG"
    # A strong association has its subject alone.
    for lifecycle, code in (("WEAK", 40905), ("STRONG", 40904)):
        second = topic("baskets", to("all-carts", lifecycle=lifecycle))
        assert http.ask("POST", "/associations", second)[1]["error_code"] == code
    assert http.ask("PUT", place, topic("carts", to("all-carts", lifecycle="WEAK")))[0] == 200
    weak = topic("baskets", to("all-carts"), to("all-carts", "key"))
    assert http.ask("POST", "/associations", weak)[0] == 200
    assert len(http.get("/associations/subjects/all-carts?offset=1&limit=1")) == 1
    assert http.ask("PUT", "/associations/resources/other", weak)[1]["error_code"] == 42212


def test_a_frozen_association_brings_the_only_schema_and_stays(http):
    frozen = to("frozen-orders", lifecycle="STRONG", frozen=True)
    http.register("frozen-orders", V2)
    for bad in (frozen, {**frozen, **with_schema()}):
        assert http.ask("POST", "/associations", topic("ice", bad))[1]["error_code"] == 42212
    # A request whose schema came through, and whose association did not, is sent again.
    again = topic("ice", {**frozen, **with_schema(V2)})
    assert http.ask("POST", "/associations", again)[0] == 200
    place = "/associations/resources/id-ice"
    for refused in (
        http.ask("PUT", place, topic("ice", to("frozen-orders", lifecycle="WEAK"))),
        http.ask("DELETE", place),
    ):
        assert (refused[0], refused[1]["error_code"]) == (409, 40908)
    assert http.ask("DELETE", f"{place}?cascadeLifecycle=true") == (204, None)


@pytest.mark.parametrize(
    "bad",
    [
        [],
        [to("a"), to("b", "key"), to("c", "other")],
        [to("a"), to("b")],
        [to("a", "other")],
        ["x"],
        [to("a", lifecycle="LONG")],
        [to("a", lifecycle="WEAK", frozen=True, **with_schema())],
        [to("a", frozen=True, **with_schema())],
        [to("a", frozen="yes")],
        [to("a", schema="x")],
        [{"subject": 1}],
    ],
)
def test_hostile_associations_are_refused(http, bad):
    assert http.ask("POST", "/associations", topic("hostile", *bad))[1]["error_code"] == 42212
    named = {**topic("hostile", to("a", **with_schema())), "resourceType": "cluster"}
    assert http.ask("POST", "/associations", named)[1]["error_code"] == 42212


def test_a_descriptor_comes_back_as_one_and_a_context_in_the_address_may_end_with_a_slash(http):
    pytest.importorskip("grpc_tools")
    text = 'syntax = "proto3"; import "confluent/meta.proto"; message M { int32 n = 1; }'
    made = http.register("text", text, schemaType="PROTOBUF")[1]
    assert made["schema"] == text
    descriptor = http.get("/subjects/text/versions/1?format=serialized")["schema"]
    # Its sender keeps the answer, and later reads it as the descriptor that it sent.
    again = http.register("text", descriptor, schemaType="PROTOBUF")[1]
    assert (again["id"], again["schema"]) == (made["id"], descriptor)
    body = {"schema": descriptor, "schemaType": "PROTOBUF"}
    assert http.ask("POST", "/subjects/text", body)[1]["schema"] == descriptor
    assert http.get("/subjects/text/versions/1")["schema"] == text
    assert http.ask("POST", f"/contexts/.far/{KEKS}", kek("context"))[0] == 200
    assert (
        http.ask("POST", f"/contexts/.far/{KEKS}/context/deks", dek())[1]["subject"] == ":.far:orders-value"
    )


def rule(name, **more):
    return {"name": name, "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT", **more}


def test_defaults_and_overrides_complete_a_contract(http):
    http.ask(
        "PUT",
        "/config/contract",
        {
            "defaultMetadata": {"properties": {"owner": "shop", "team": "a"}},
            "overrideMetadata": {"properties": {"team": "b"}},
            "defaultRuleSet": {"domainRules": [rule("common", doc="default"), rule("mine", doc="default")]},
            "overrideRuleSet": {"domainRules": [rule("always")]},
        },
    )
    sent = {
        "metadata": {"properties": {"owner": "me"}},
        "ruleSet": {"domainRules": [rule("mine", doc="own")]},
    }
    http.register("contract", V1, **sent)
    found = http.get("/subjects/contract/versions/1")
    assert found["metadata"]["properties"] == {"owner": "me", "team": "b"}
    # Rules run in their order: that of a later layer comes behind, also where it replaces one.
    rules = [(one["name"], one.get("doc")) for one in found["ruleSet"]["domainRules"]]
    assert rules == [("common", "default"), ("mine", "own"), ("always", None)]
    # The same contract again, as it was sent, as it is held, or not at all: no new version.
    assert http.register("contract", V1, **sent)[1]["version"] == 1
    assert http.register("contract", V1, metadata=found["metadata"])[1]["version"] == 1
    assert http.register("contract", V1)[1]["version"] == 1
    assert http.register("contract", V1, metadata={"properties": {"owner": "you"}})[1]["version"] == 2
    # A new schema without a contract of its own keeps that of the version before.
    optional = {**V1, "fields": [*V1["fields"], {"name": "note", "type": "string", "default": ""}]}
    third = http.register("contract", optional)[1]
    assert third["version"] == 3 and third["metadata"]["properties"]["owner"] == "you"
    assert len(third["ruleSet"]["domainRules"]) == 3


def test_a_compatibility_group_is_compared_within_itself(http):
    http.ask("PUT", "/config/grouped", {"compatibilityGroup": "application.version"})

    def group(number):
        return {"metadata": {"properties": {"application.version": number}}}

    assert http.register("grouped", V1, **group("1"))[0] == 200
    body = {"schema": json.dumps(V2), **group("2")}
    assert http.ask("POST", "/compatibility/subjects/grouped/versions", body)[1]["is_compatible"]
    assert http.register("grouped", V2, **group("1"))[0] == 409
    assert http.register("grouped", V2, **group("2"))[1]["version"] == 2


@pytest.mark.parametrize(
    "more",
    [
        {"metadata": []},
        {"metadata": {"properties": {"a": 1}}},
        {"metadata": {"tags": {"a": "PII"}}},
        {"metadata": {"sensitive": [1]}},
        {"ruleSet": "x"},
        {"ruleSet": {"domainRules": {}}},
        {"ruleSet": {"domainRules": [1]}},
        {"ruleSet": {"domainRules": [{"type": "CEL"}]}},
        {"ruleSet": {"domainRules": [rule("a"), rule("a")]}},
        {"ruleSet": {"domainRules": [rule("a", mode="UPGRADE")]}},
        {"ruleSet": {"migrationRules": [rule("a", mode="READ")]}},
        {"ruleSet": {"domainRules": [rule("a", kind="OTHER")]}},
        {"ruleSet": {"domainRules": [rule("a", params={"x": 1})]}},
        {"ruleSet": {"domainRules": [rule("a", tags="PII")]}},
        {"ruleSet": {"domainRules": [rule("a", expr=1)]}},
        {"ruleSet": {"domainRules": [rule("a", disabled="no")]}},
        {"ruleSet": {"domainRules": [rule(str(number)) for number in range(1_001)]}},
    ],
)
def test_hostile_contracts_are_refused(http, more):
    assert http.register("hostile-contract", V1, **more)[1]["error_code"] == 42201
    kind, document = next(iter(more.items()))
    setting = "defaultMetadata" if kind == "metadata" else "overrideRuleSet"
    assert http.ask("PUT", "/config/hostile-contract", {setting: document})[1]["error_code"] == 42201


def test_serializers_refuse_a_schema_whose_rules_would_have_to_run(http, registry):
    http.register("secret-value", V1, ruleSet={"domainRules": [rule("encrypt", tags=["PII"])]})
    writer = Registry(registry.url).avro("secret-value", V1)
    with pytest.raises(UnsupportedRules, match=r"of secret-value has rules .* written \(encrypt\)"):
        writer.serialize("secret", [], {"id": 1})
    number = http.get("/subjects/secret-value/versions/1")["id"]
    with pytest.raises(UnsupportedRules, match="confluent-kafka") as refused:
        writer.deserialize("secret", [], b"\0" + number.to_bytes(4, "big") + b"\x02")
    assert refused.value.schema_id == number
    disabled = {
        "domainRules": [rule("encrypt", disabled=True)],
        "migrationRules": [rule("up", mode="UPGRADE")],
    }
    http.register("open-value", V1, ruleSet=disabled)
    serde = Registry(registry.url).avro("open-value", V1)
    assert serde.deserialize("open", [], serde.serialize("open", [], {"id": 1})) == {"id": 1}


def test_an_alias_for_deks_names_the_subject_of_the_key(http):
    http.ask("POST", KEKS, kek("aliased"))
    assert http.ask("PUT", "/config/short", {"aliasForDeks": "orders-value"})[0] == 200
    status, made = http.ask("POST", f"{KEKS}/aliased/deks", dek(subject="short"))
    assert (status, made["subject"]) == (200, "orders-value")
    assert http.get(f"{KEKS}/aliased/deks/short")["encryptedKeyMaterial"] == MATERIAL
    assert http.get(f"{KEKS}/aliased/deks") == ["orders-value"]
    # It is an alias for keys only.
    assert http.get("/subjects/short/versions")["error_code"] == 40401
