"""Several registries: takeover of a topic, forwarding, kill -9 of the leader, users and roles."""

from __future__ import annotations

import base64
import itertools
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from integration.registry_client import Http, topic_records, write_records
from ottla.registry.rest.auth import hash_password
from ottla.testing.registry import RegistryProcess

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.slow

# As Confluent's registry writes them, with a record of a kind that is unknown here.
CONFLUENT = [
    (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}'),
    (
        b'{"keytype":"SCHEMA","subject":"car-value","version":1,"magic":1}',
        b'{"subject":"car-value","version":1,"id":41,"schema":"{\\"type\\":\\"record\\",\\"name\\":\\"Car\\",'
        b'\\"fields\\":[{\\"name\\":\\"colour\\",\\"type\\":\\"string\\"}]}","deleted":false}',
    ),
    (
        b'{"keytype":"SCHEMA","subject":"old-value","version":1,"magic":1}',
        b'{"subject":"old-value","version":1,"id":42,"schema":"\\"string\\"","deleted":false}',
    ),
    (
        b'{"keytype":"DELETE_SUBJECT","subject":"old-value","magic":0}',
        b'{"subject":"old-value","version":1}',
    ),
    (
        b'{"keytype":"SCHEMA","subject":"odd-value","version":1,"magic":1}',
        b'{"subject":"odd-value","version":1,"id":40,"schema":"{\\"type\\":\\"record\\",\\"name\\":\\"Odd\\",'
        b'\\"namespace\\":\\"not-valid\\",\\"fields\\":[]}","deleted":false}',
    ),
    (b'{"keytype":"MODE","subject":"locked","magic":0}', b'{"mode":"READONLY"}'),
    (b'{"keytype":"ASSOC","x":1,"magic":0}', b'{"any":"thing"}'),
]


def test_a_topic_of_confluents_is_taken_over_and_given_back_unchanged(ottla_broker):
    from ottla import KafkaAdminClient
    from ottla.admin.topics import NewTopic

    with KafkaAdminClient(bootstrap_servers=ottla_broker.bootstrap) as admin:
        admin.create_topics([NewTopic("_schemas", 1, 1, topic_configs={"cleanup.policy": "compact"})])
    write_records(ottla_broker.bootstrap, CONFLUENT)
    with RegistryProcess(ottla_broker.bootstrap) as registry:
        http = Http(registry.url)
        assert http.get("/subjects") == ["car-value", "odd-value"]
        assert http.get("/subjects?deleted=true") == ["car-value", "odd-value", "old-value"]
        assert http.get("/config") == {"compatibilityLevel": "FULL"}
        assert http.get("/schemas/ids/41")["schema"].startswith('{"type":"record","name":"Car"')
        assert http.register("locked", '"int"')[1]["error_code"] == 42205
        assert http.register("new-value", '"int"')[1]["id"] == 43
        # What an older registry took in can be changed, to something that is valid now.
        better = {"type": "record", "name": "Odd", "namespace": "valid", "fields": []}
        check = "/compatibility/subjects/odd-value/versions/latest"
        assert http.ask("POST", check, {"schema": json.dumps(better)})[1] == {"is_compatible": True}
        bad = json.dumps({**better, "namespace": "not-valid", "name": "Other"})
        assert http.register("other-value", bad)[1]["error_code"] == 42201
    pairs = topic_records(ottla_broker.bootstrap)
    assert pairs[: len(CONFLUENT)] == CONFLUENT
    added = [pair for pair in pairs[len(CONFLUENT) :] if b"NOOP" not in pair[0]]
    value = b'{"subject":"new-value","version":1,"id":43,"schema":"\\"int\\"","deleted":false}'
    assert added == [(b'{"keytype":"SCHEMA","subject":"new-value","version":1,"magic":1}', value)]


def schema(number: int) -> str:
    return json.dumps({"type": "record", "name": f"R{number}", "fields": []})


TURNS = range(int(os.environ.get("OTTLA_TEST_REGISTRY_KILLS", "1")))
"""The leader is killed once in the tests; OTTLA_TEST_REGISTRY_KILLS=10 repeats it."""


def until_known(ask):
    """Sends a write again until its fate is known."""
    while True:
        status, answer = ask()
        if status != 500:
            return status, answer
        assert answer["error_code"] in (50001, 50002, 50003, 50004), answer


@contextmanager
def three_registries_whose_leader_dies(bootstrap, write, count):
    """Three threads write through the last registry, which forwards, and then the other two are asked.

    Each thread runs `write(http, thread, done)`, which calls `done()` after each write: `count` times in all. After
    half of them the leader is killed.
    """
    registries = [RegistryProcess(bootstrap, "--session-timeout-ms", "6000").start() for _ in range(3)]
    halfway, left = threading.Event(), itertools.count(count // 2, -1)

    def done():
        if next(left) == 0:
            halfway.set()

    try:
        # The first that has joined leads, and stays leader.
        assert Http(registries[2].url).register("first", schema(999))[0] == 200
        with ThreadPoolExecutor(3) as pool:
            futures = [pool.submit(write, Http(registries[2].url), thread, done) for thread in range(3)]
            for future in futures:
                future.add_done_callback(lambda _: halfway.set())
            assert halfway.wait(120)
            registries[0].kill()
            for future in futures:
                future.result(180)
        yield [Http(registry.url) for registry in registries[1:]]
    finally:
        for registry in registries:
            registry.kill()


@pytest.mark.parametrize("turn", TURNS)
def test_killing_the_leader_loses_no_schema_and_gives_no_id_twice(ottla_broker, turn):
    acknowledged: dict[int, int] = {}
    enough = 120

    def register(http, thread, done):
        for number in range(thread, enough, 3):
            status, answer = until_known(lambda n=number: http.register(f"s{n}", schema(n)))
            assert status == 200, answer
            acknowledged[number] = answer["id"]
            done()

    with three_registries_whose_leader_dies(ottla_broker.bootstrap, register, enough) as survivors:
        assert len(acknowledged) == enough
        assert len(set(acknowledged.values())) == enough
        for http in survivors:
            for number, schema_id in acknowledged.items():
                assert json.loads(http.get(f"/schemas/ids/{schema_id}")["schema"])["name"] == f"R{number}"
    ids: dict[int, str] = {}
    for key, value in topic_records(ottla_broker.bootstrap):
        if b'"SCHEMA"' in key:
            fields = json.loads(value)
            assert ids.setdefault(fields["id"], fields["schema"]) == fields["schema"]


@pytest.mark.parametrize("turn", TURNS)
def test_killing_the_leader_loses_no_encryption_key_and_gives_no_version_twice(ottla_broker, turn):
    """Three producers race for each DEK: one wins, and the others read its key."""
    keks = "/dek-registry/v1/keks"
    won: dict[int, list[str]] = {}
    rounds = 40

    def encrypt(http, thread, done):
        for number in range(rounds):
            kek = {"name": f"k{number}", "kmsType": "local-kms", "kmsKeyId": "mine"}
            status, answer = until_known(lambda body=kek: http.ask("POST", keks, body))
            assert status == 200 or answer["error_code"] == 40971, answer
            material = base64.b64encode(b"%d of %d" % (number, thread)).decode()
            dek = {"subject": "orders-value", "version": 1, "encryptedKeyMaterial": material}
            place = f"{keks}/k{number}/deks"
            status, answer = until_known(lambda place=place, body=dek: http.ask("POST", place, body))
            if status != 200:
                assert answer["error_code"] == 40971, answer
                # A client whose answer was lost reads its own key.
                version = f"{place}/orders-value/versions/1"
                answer = until_known(lambda place=version: http.ask("GET", place))[1]
            if answer["encryptedKeyMaterial"] == material:
                won.setdefault(number, []).append(material)
            done()

    with three_registries_whose_leader_dies(ottla_broker.bootstrap, encrypt, 3 * rounds) as survivors:
        assert sorted(won) == list(range(rounds))
        assert all(len(winners) == 1 for winners in won.values())
        for http in survivors:
            assert http.get(keks) == sorted(f"k{number}" for number in range(rounds))
            for number, (material,) in won.items():
                found = http.get(f"{keks}/k{number}/deks/orders-value/versions/1")
                assert found["encryptedKeyMaterial"] == material
    written: dict[bytes, str] = {}
    for key, value in topic_records(ottla_broker.bootstrap, "_schemas_extras"):
        if b'"DEK"' in key:
            material = json.loads(value)["encryptedKeyMaterial"]
            assert written.setdefault(key, material) == material
    assert len(written) == rounds


def test_users_and_roles(ottla_broker, tmp_path):
    users = tmp_path / "users.toml"
    users.write_text(
        f"""
[roles.viewer]
verbs = ["read"]
[roles.shop]
verbs = ["read", "write"]
subjects = ["shop-*"]
[roles.admin]
verbs = ["read", "write", "admin"]
[users.ann]
password = "{hash_password("a")}"
roles = ["viewer"]
[users.bob]
password = "{hash_password("b")}"
roles = ["shop"]
[users.eve]
password = "{hash_password("e")}"
roles = ["admin"]
"""
    )
    with RegistryProcess(ottla_broker.bootstrap, "--users", str(users)) as registry:
        nobody, ann, bob, eve = (
            Http(registry.url, user, password)
            for user, password in ((None, ""), ("ann", "a"), ("bob", "b"), ("eve", "e"))
        )
        assert nobody.ask("GET", "/subjects")[0] == 401
        assert Http(registry.url, "ann", "wrong").ask("GET", "/subjects")[0] == 401
        assert Http(registry.url, "no", "a").ask("GET", "/subjects")[0] == 401
        assert bob.register("shop-value", '"int"')[0] == 200
        assert bob.register("bank-value", '"int"')[0] == 403
        assert bob.ask("PUT", "/config/shop-value", {"compatibility": "NONE"})[0] == 403
        assert bob.ask("GET", "/subjects/bank-value/versions")[0] == 403
        assert ann.ask("GET", "/subjects/shop-value/versions")[0] == 200
        assert ann.ask("POST", "/subjects/shop-value", {"schema": '"int"'})[0] == 200
        assert ann.register("shop-value", '"long"')[0] == 403
        assert ann.ask("DELETE", "/subjects/shop-value")[0] == 403
        assert eve.ask("PUT", "/config", {"compatibility": "NONE"})[0] == 200
        # An alias opens no subject that its user may not see.
        assert eve.register("bank-value", '"int"')[0] == 200
        assert eve.ask("PUT", "/config/shop-bank", {"alias": "bank-value"})[0] == 200
        assert bob.ask("GET", "/subjects/shop-bank/versions")[0] == 403
        assert bob.register("shop-bank", '"long"')[0] == 403
        assert ann.ask("GET", "/subjects/shop-bank/versions") == (200, [1])
        assert b"scrypt" not in registry.output
