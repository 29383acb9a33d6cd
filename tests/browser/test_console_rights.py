"""Who may do what: every page and every change against every role, read-only, sign-in, masks and the audit log."""

from __future__ import annotations

import asyncio
import json
import re
from io import BytesIO

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow import parquet

from browser.looks import problems
from integration.connect_rest import running_worker
from integration.share_member import ShareMember
from oracle.streams_member import StreamsMember
from ottla.console import pages
from ottla.console.app import application
from ottla.console.cli import cluster_settings
from ottla.console.plans import CHANGES
from ottla.console.security.roles import VERBS
from ottla.console.security.users import hash_password
from ottla.console.settings import ConsoleSettings, Target
from ottla.console.web import PAGES
from ottla.testing.registry import RegistryProcess

pytestmark = pytest.mark.slow

PASSWORD = "correct horse"
ROLES = {
    "looker": ["see"],
    "reader": ["see", "read"],
    "writer": ["see", "read", "produce"],
    "operator": ["see", "read", "reset", "change"],
    "exporter": ["see", "read", "export"],
    "admin": list(VERBS),
}
PLACES = {"topic": "orders", "partition": "0", "offset": "1", "node": "1"}
FORM = {
    "group.reset": {"group": "billing", "target": "earliest"},
    "group.delete": {"group": "billing"},
    "share.reset": {"group": "billing", "target": "earliest"},
    "topic.create": {"name": "fresh", "partitions": "1", "replicas": "1"},
    "topic.settings": {"topic": "orders", "settings": "retention.ms=1000"},
    "topic.partitions": {"topic": "orders", "partitions": "9"},
    "topic.elect": {"topic": "orders"},
    "topic.elect.unclean": {"topic": "orders"},
    "topic.purge": {"topic": "orders"},
    "topic.delete": {"topic": "orders", "confirm": "orders"},
    "record.produce": {"topic": "orders", "value": "x"},
    "record.resend": {"topic": "orders", "partition": "0", "offset": "1"},
    "transaction.abort": {"id": "nobody"},
    "move.topic": {"topic": "orders"},
    "move.cancel": {"topic": "orders", "partition": "0"},
    "move.empty": {"broker": "1"},
    "move.unthrottle": {"of": "all"},
    "replica.directory": {"node": "1", "replica": "0:orders", "path": "/"},
    "node.unregister": {"node": "1"},
    "quorum.remove": {"node": "1"},
    "quorum.add": {"node": "9", "address": "localhost:9093"},
    "feature.set": {"feature": "group.version", "level": "1"},
    "token.expire": {"token_id": "nobody"},
    "telemetry.set": {"name": "all", "metrics": "org.apache.kafka."},
    "telemetry.delete": {"name": "all"},
    "topics.settings": {"topics": "orders", "settings": "retention.ms=1000"},
    "topics.delete": {"topics": "orders", "confirm": "1"},
    "quarantine.send": {"topic": "orders", "to": "orders"},
    "schema.register": {"subject": "billing", "schema": '"string"'},
    "schema.level": {"level": "FULL"},
    "schema.delete": {"subject": "billing"},
    "connector.act": {"connector": "billing", "action": "pause"},
    "connector.delete": {"connector": "billing"},
    "acl.add": {"principal": "ann", "kind": "topic", "name": "orders", "operation": "read"},
    "acl.remove": {"principal": "ann", "kind": "topic", "name": "orders", "operation": "read"},
    "user.set": {"user": "ann", "mechanism": "SCRAM-SHA-256", "password": "long enough"},
    "user.delete": {"user": "ann", "mechanism": "SCRAM-SHA-256"},
    "replay.begin": {"group": "billing", "new": "billing-v2", "moment": "1h"},
    "quota.set": {"user": "ann", "key": "producer_byte_rate", "value": "1000"},
}
OTHERS = {
    "/metrics": 200,
    "/health/live": 200,
    "/health/ready": 200,
    "/": 303,
    "/design": 303,
    "/static": 200,
    "/signin": 303,
    "/signout": 400,
    "/oidc/start": 404,
    "/oidc/done": 404,
}
"""The routes that are no page of a cluster, and what they answer to a GET of somebody who may see the cluster."""
LOOKED_AT = ["/share?id=shared", "/streams?id=streaming"]
GROUPS = {"/share": "shared", "/streams": "streaming"}
"""The groups of pages that show one kind only."""


@pytest.fixture(scope="module")
def seeded(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic("orders", 1, 1), NewTopic("cards", 1, 1)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(5):
        value = {"id": number, "iban": f"DE0012345678{number}", "customer": {"name": "Ada"}}
        producer.produce("orders", json.dumps(value), f"card-{number}")
    producer.produce("orders", "no JSON, iban DE009999", "plain")
    producer.flush()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    consumer.close()
    ShareMember("127.0.0.1", broker.port, "shared", "orders").join()
    member = StreamsMember(broker.bootstrap, "streaming", "orders").join()
    yield broker
    member.leave()


@pytest.fixture(scope="module")
def services(seeded, folder):
    """The options of a registry, a worker and an application, each with something that is called billing."""
    status = {"application_id": "billing", "pid": 1, "running": False}
    (folder / "applications/billing").mkdir(parents=True)
    (folder / "applications/billing/status.json").write_text(json.dumps(status))
    with RegistryProcess(seeded.bootstrap) as registry, running_worker(seeded.bootstrap) as worker:
        httpx.post(f"{registry.url}/subjects/billing/versions", json={"schema": '"string"'})
        worker.create("billing", connector_class="FileStreamSource", file="missing.txt", topic="lines")
        options = ("--registry", registry.url, "--connect", worker.url)
        yield (*options, "--applications", str(folder / "applications"))


@pytest.fixture(scope="module")
def users_file(tmp_path_factory):
    lines = []
    for role, verbs in ROLES.items():
        lines += [f"[roles.{role}]", f"verbs = {json.dumps(verbs)}"]
        lines += [
            f"[users.{role}]",
            f"password = {json.dumps(hash_password(PASSWORD))}",
            f'roles = ["{role}"]',
        ]
    lines += ["[roles.narrow]", 'resources = ["cluster", "topic:other-*"]', 'verbs = ["see", "read"]']
    lines += ["[users.narrow]", f"password = {json.dumps(hash_password(PASSWORD))}", 'roles = ["narrow"]']
    path = tmp_path_factory.mktemp("users") / "users.toml"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rights")


@pytest.fixture(scope="module")
def console(seeded, services, start_console, users_file, folder):
    masks = folder / "masks.toml"
    masks.write_text(
        '[[mask]]\ntopics = ["orders", "cards"]\npaths = ["iban", "key"]\nhow = "hide"\nexcept_roles = ["admin"]\n'
    )
    options = ("--users", str(users_file), "--masks", str(masks), "--audit", str(folder / "audit.jsonl"))
    return start_console("--bootstrap-server", seeded.bootstrap, *options, *services)


def token_of(client):
    return re.search(r'name="token" value="([0-9a-f]+)"', client.get("/c/local/").text)[1]


@pytest.fixture(scope="module")
def sign_in(console):
    clients = []

    def enter(name):
        client = httpx.Client(base_url=console.root, headers={"origin": console.root}, timeout=30)
        clients.append(client)
        token = re.search(r'name="token" value="([0-9a-f]+)"', client.get("/signin").text)[1]
        answer = client.post("/signin", data={"name": name, "password": PASSWORD, "token": token, "to": "/"})
        assert answer.status_code == 303
        (cookie,) = answer.headers.get_list("set-cookie")
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Secure" in cookie
        # httpx sends no Secure cookie over plain HTTP; browsers do to this machine.
        client.headers["cookie"] = cookie.partition(";")[0]
        return client

    yield enter
    for client in clients:
        client.close()


def address(page):
    path = re.sub(r"\{(\w+)(?::\w+)?\}", lambda part: PLACES[part[1]], page.path)
    query = f"?id={GROUPS.get(page.path, 'billing')}" if "{id}" in page.resource else ""
    if page.path.startswith("/api/"):
        return f"/api/v1/c/local{path.removeprefix('/api')}{query}"
    return f"/c/local{path}{query}"


def test_every_page_against_every_role(sign_in):
    pages.load()
    for role, verbs in ROLES.items():
        client = sign_in(role)
        for page in PAGES:
            needed = {page.verb} | ({"export"} if page.path.endswith("/export") else set())
            with client.stream("GET", address(page)) as answer:  # that of a tail never ends
                status = answer.status_code
            if needed <= set(verbs):
                assert status == 200, (role, page.path, status)
            else:
                assert status == 403, (role, page.path, status)


def test_every_other_route_against_every_role(sign_in, console, seeded):
    pages.load()
    settings = ConsoleSettings((Target("local", seeded.bootstrap),))

    async def routes():
        app, opened = application(settings, {"local": cluster_settings(settings.targets[0])})
        await opened.clusters.close()
        return {str(getattr(route, "path", "")) for route in app.routes}

    of_clusters = ("/c/{cluster}/", "/api/v1/c/{cluster}/")
    others = {path for path in asyncio.run(routes()) if not path.startswith(of_clusters)}
    assert others == set(OTHERS)
    for role in ROLES:
        client = sign_in(role)
        for path, expected in OTHERS.items():
            there = "/static/base.css" if path == "/static" else path
            assert client.get(there).status_code == expected, (role, path)


def test_every_change_against_every_role(sign_in):
    pages.load()
    assert set(FORM) == set(CHANGES)
    for role, verbs in ROLES.items():
        client = sign_in(role)
        token = token_of(client)
        for name, change in CHANGES.items():
            for step in ("plan", "do"):
                if step == "do" and change.verb in verbs:
                    continue
                answer = client.post(f"/c/local/{step}/{name}", data={**FORM[name], "token": token})
                if change.verb in verbs:
                    assert answer.status_code != 403, (role, name)
                else:
                    assert answer.status_code == 403, (role, name, answer.status_code)


def test_a_change_without_the_token_or_without_a_session_is_refused(sign_in, console):
    client = sign_in("admin")
    for data in (FORM["topic.create"], {**FORM["topic.create"], "token": "0" * 64}):
        assert client.post("/c/local/plan/topic.create", data=data).status_code == 403
    other = {**FORM["topic.create"], "token": token_of(sign_in("looker"))}
    assert client.post("/c/local/plan/topic.create", data=other).status_code == 403
    assert httpx.post(f"{console.root}/c/local/plan/topic.create", data=other).status_code == 401


def test_nothing_is_shown_before_sign_in(console):
    for path in ("/c/local/", "/c/local/t/orders", "/c/local/palette"):
        answer = httpx.get(console.root + path)
        assert (answer.status_code, answer.headers["location"][:8]) == (303, "/signin?")
        assert "orders" not in answer.text
    assert httpx.get(f"{console.root}/api/v1/c/local/topics").status_code == 401
    assert httpx.get(f"{console.root}/metrics").status_code == 401
    assert httpx.get(f"{console.root}/static/../app.py").status_code == 404
    assert httpx.get(f"{console.root}/static/%2e%2e/app.py").status_code == 404


def test_a_narrow_role_sees_only_its_topics(sign_in):
    client = sign_in("narrow")
    assert client.get("/c/local/t/orders").status_code == 403
    assert "orders" not in client.get("/c/local/topics").text
    assert "orders" not in client.get("/c/local/palette?q=orders").text
    assert "billing" not in client.get("/c/local/groups").text


def test_masked_stays_masked_in_page_search_export_and_api(sign_in, folder):
    reader, admin = sign_in("reader"), sign_in("admin")
    for path in (
        "/c/local/t/orders?at=oldest",
        "/c/local/t/orders/0/1",
        "/api/v1/c/local/topics/orders/records",
    ):
        assert "DE00" not in reader.get(path).text
        assert "card-1" not in reader.get(path).text
        assert "DE00" in admin.get(path).text
    for query in ("q=DE00123", 'filter=value.iban.startswith("DE")', 'filter=key=="card-1"'):
        assert 'class="key' not in reader.get(f"/c/local/t/orders?{query}").text.replace(
            '"mono key wide"', 'class="key'
        )
        assert "orders/0/" in admin.get(f"/c/local/t/orders?{query}").text
    assert "DE00" in admin.get("/c/local/t/orders/export").text
    lines = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    assert {"reader", "admin"} <= {line["who"] for line in lines}
    assert "DE00" not in json.dumps(lines), "what was searched for may be a secret"
    assert {"text", "condition"} <= {line["query"].get("by") for line in lines if "query" in line}


def test_masked_stays_masked_while_following_and_in_a_file(sign_in, seeded):
    client = sign_in("exporter")
    for kind in ("jsonl", "csv", "parquet"):
        answer = client.get(f"/c/local/t/orders/export?format={kind}")
        text = (
            str(parquet.read_table(BytesIO(answer.content)).to_pylist()) if kind == "parquet" else answer.text
        )
        assert "Ada" in text and "DE00" not in text and "card-" not in text
    producer = Producer({"bootstrap.servers": seeded.bootstrap})
    with client.stream("GET", "/c/local/t/cards/tail") as answer:
        # The stream begins at the end of the topic: records are sent until the first one shows up.
        for line in answer.iter_lines():
            if '"rows": [[' in line or '"rows":[[' in line:
                break
            if not line.startswith("data:"):
                producer.produce("cards", json.dumps({"iban": "DE0077", "customer": "Ada"}), "card-7")
                producer.flush()
    assert "Ada" in line and "DE00" not in line and "card-" not in line


def test_a_session_that_a_stranger_chose_is_not_taken_over(console):
    chosen = "f" * 64
    with httpx.Client(base_url=console.root, headers={"origin": console.root}, timeout=30) as client:
        client.headers["cookie"] = f"__Host-ottla={chosen}"
        token = re.search(r'name="token" value="([0-9a-f]+)"', client.get("/signin").text)[1]
        data = {"name": "admin", "password": PASSWORD, "token": token, "to": "/"}
        answer = client.post("/signin", data=data)
        assert answer.status_code == 303 and chosen not in answer.headers["set-cookie"]
        assert client.get("/c/local/").status_code == 303, "the chosen key opens nothing"
        own = answer.headers["set-cookie"].partition(";")[0]
        client.headers["cookie"] = own
        token = token_of(client)
        assert client.post("/signout", data={"token": token}).status_code == 303
        assert client.get("/c/local/").status_code == 303, "a session that ended opens nothing"


def test_settings_say_what_one_may_do_and_show_the_audit_log_to_admins_only(sign_in):
    admin, reader = sign_in("admin"), sign_in("reader")
    reader.get("/c/local/t/orders")
    text = reader.get("/c/local/settings").text
    assert "You are reader, with the role reader." in text
    assert re.findall(r'class="nowrap">(\w+)</th>.*?class="tag (?:ok)?">(yes|no)<', text) == [
        (verb, "yes" if verb in ROLES["reader"] else "no") for verb in VERBS
    ]
    assert "iban, key" in text and "hidden" in text, "the masks that one sees records through"
    assert "Audit" not in text and "audit.jsonl" not in text
    text = admin.get("/c/local/settings").text
    assert "nothing is masked for you" in text
    assert "audit.jsonl" in text and "read records" in text and "topic:orders" in text
    narrow = sign_in("narrow").get("/c/local/settings").text
    assert "on some" in narrow and "topic:other-*" in narrow


def test_a_tab_that_a_role_may_not_see_is_not_offered(sign_in):
    assert "/t/orders/access" in sign_in("admin").get("/c/local/t/orders").text
    assert "/t/orders/access" not in sign_in("operator").get("/c/local/t/orders").text


def test_read_only_has_no_button_and_refuses_every_change(seeded, start_console):
    quiet = start_console("--bootstrap-server", seeded.bootstrap, "--read-only")
    client = httpx.Client(base_url=quiet.root, headers={"origin": quiet.root}, timeout=30)
    for path in ("/", "/topics", "/t/orders", "/t/orders/groups", "/group?id=billing", "/transactions"):
        text = client.get(f"/c/local{path}").text
        assert 'method="post"' not in text
        assert "New topic" not in text and "Write a record" not in text and ">Change<" not in text
    token = httpx.get(f"{quiet.root}/c/local/nothing").text
    found = re.search(r'name="token" value="([0-9a-f]+)"', token)
    assert found is None
    for name in CHANGES:
        assert client.post(f"/c/local/plan/{name}", data=FORM[name]).status_code == 403
        assert client.post(f"/c/local/do/{name}", data=FORM[name]).status_code == 403
    client.close()


@pytest.mark.parametrize("path", LOOKED_AT)
def test_a_page_is_accessible_and_well_laid_out(seeded, start_console, open_page, path):
    open_to_all = start_console("--bootstrap-server", seeded.bootstrap)
    page = open_page(open_to_all.url + path, bypass_csp=True)
    assert problems(page) == []


def test_the_page_to_sign_in_is_accessible(console, open_page):
    page = open_page(f"{console.root}/signin", bypass_csp=True)
    assert problems(page) == []


def test_lag_for_prometheus_in_three_spellings(seeded, start_console):
    exporter = start_console("--bootstrap-server", seeded.bootstrap, "--no-pages")
    assert httpx.get(f"{exporter.root}/c/local/topics").status_code == 404
    for spelling, line in (
        ("", 'kafka_consumergroup_lag{consumergroup="billing",topic="orders",partition="0"} 5'),
        ("lag-exporter", 'kafka_consumergroup_group_sum_lag{cluster_name="local",group="billing"} 5'),
        ("kminion", 'kminion_kafka_consumer_group_topic_lag{group_id="billing",topic_name="orders"} 5'),
    ):
        assert line in httpx.get(f"{exporter.root}/metrics?names={spelling}").text.splitlines()
    assert httpx.get(f"{exporter.root}/health/ready").json() == {"ready": True, "problems": {}}


def test_names_that_a_role_may_not_see_are_nowhere(sign_in):
    narrow, looker = sign_in("narrow"), sign_in("looker")
    assert looker.get("/metrics").status_code == 200
    assert narrow.get("/metrics").status_code == 403, "its samples name every topic and group"
    for path in ("/c/local/", *(f"/api/v1/c/local/{name}" for name in ("findings", "groups", "topics"))):
        answer = narrow.get(path)
        assert answer.status_code == 200
        assert "billing" not in answer.text and "orders" not in answer.text


def test_sign_in_never_leads_to_another_site_and_guessing_is_slowed(console):
    client = httpx.Client(base_url=console.root, headers={"origin": console.root})
    token = re.search(r'name="token" value="([0-9a-f]+)"', client.get("/signin").text)[1]
    assert 'name="to" value="/"' in client.get("/signin?to=//evil.example").text
    wrong = {"name": "guessed", "password": "wrong", "token": token, "to": "/"}
    codes = [client.post("/signin", data=wrong).status_code for _ in range(6)]
    assert codes == [403] * 5 + [429]
    client.close()
