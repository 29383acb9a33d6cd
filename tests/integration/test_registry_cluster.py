"""Several registries: takeover of a topic, forwarding, kill -9 of the leader, users and roles."""

from __future__ import annotations

import json
import os
import threading

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


@pytest.mark.parametrize("turn", range(int(os.environ.get("OTTLA_TEST_REGISTRY_KILLS", "1"))))
def test_killing_the_leader_loses_no_schema_and_gives_no_id_twice(ottla_broker, turn):
    """Once in the tests; OTTLA_TEST_REGISTRY_KILLS=10 repeats it."""
    arguments = ("--session-timeout-ms", "6000")
    registries = [RegistryProcess(ottla_broker.bootstrap, *arguments).start() for _ in range(3)]
    acknowledged: dict[int, int] = {}
    lock = threading.Lock()
    halfway, enough = threading.Event(), 120

    def register(first: int) -> None:
        """Registers through the last registry, which forwards; a failed write is sent again until it is in."""
        http = Http(registries[2].url)
        for number in range(first, enough, 3):
            while True:
                status, answer = http.register(f"s{number}", schema(number))
                if status == 200:
                    break
                assert answer["error_code"] in (50001, 50002, 50003, 50004), answer
            with lock:
                acknowledged[number] = answer["id"]
                if len(acknowledged) == enough // 2:
                    halfway.set()

    try:
        # The first that has joined leads, and stays leader.
        assert Http(registries[2].url).register("first", schema(999))[0] == 200
        threads = [threading.Thread(target=register, args=(first,)) for first in range(3)]
        for thread in threads:
            thread.start()
        assert halfway.wait(120)
        registries[0].kill()
        for thread in threads:
            thread.join(180)
        assert len(acknowledged) == enough
        assert len(set(acknowledged.values())) == enough
        for registry in registries[1:]:
            http = Http(registry.url)
            for number, schema_id in acknowledged.items():
                assert json.loads(http.get(f"/schemas/ids/{schema_id}")["schema"])["name"] == f"R{number}"
    finally:
        for registry in registries:
            registry.kill()
    ids: dict[int, str] = {}
    for key, value in topic_records(ottla_broker.bootstrap):
        if b'"SCHEMA"' in key:
            fields = json.loads(value)
            assert ids.setdefault(fields["id"], fields["schema"]) == fields["schema"]


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
        assert b"scrypt" not in registry.output
