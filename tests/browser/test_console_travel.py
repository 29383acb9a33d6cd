"""Numbers, time, replay, comparison, the JSON interface's description, and sign-in by an issuer."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import jsonschema
import jwt
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.hazmat.primitives.asymmetric import rsa
from playwright.sync_api import expect

from browser.looks import problems
from ottla.testing.process import BrokerProcess

pytestmark = pytest.mark.slow

SOON = 30_000
PAGES = ["/t/users/numbers", "/t/users/time", "/replay?id=billing", "/compare?with=other", "/compare"]


def prepare(bootstrap, topics):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(topics).values():
        made.result()


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("other") / "data") as process:
        prepare(process.bootstrap, [NewTopic("users", 3, 1), NewTopic("extra", 1, 1)])
        yield process


@pytest.fixture(scope="module")
def moment(broker):
    """Two values of a key are written at known times; the moment is between them."""
    prepare(broker.bootstrap, [NewTopic("users", 1, 1, config={"cleanup.policy": "compact"})])
    now_ms = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd"})
    producer.produce("users", '{"name": "Ann"}', "1", timestamp=now_ms - 7_200_000)
    producer.produce("users", '{"name": "Bob"}', "2", timestamp=now_ms - 7_200_000)
    producer.flush()
    for number in range(30):
        producer.produce("users", json.dumps({"name": f"Ann {number}"}), "1", timestamp=now_ms - 60_000)
    producer.flush()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("users", 0, 32)], asynchronous=False)
    consumer.close()
    return now_ms - 3_600_000


@pytest.fixture(scope="module")
def console(broker, other, moment, start_console, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    (home / "ottla").mkdir()
    profiles = {"local": broker.bootstrap, "other": other.bootstrap}
    document = {"current": "local", "profiles": {name: {"bootstrap": at} for name, at in profiles.items()}}
    (home / "ottla/profiles.json").write_text(json.dumps(document))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(home))
        patch.delenv("OTTLA_BOOTSTRAP", raising=False)
        return start_console()


def test_travel_to_a_moment_and_see_the_table_that_was(console, open_page):
    page = open_page(f"{console.url}/t/users/time?moment=1h")
    table = page.get_by_role("region", name="The table then")
    expect(table.locator("tbody tr")).to_have_count(2)
    expect(table).to_contain_text('{"name": "Ann"}')
    expect(page.get_by_role("region", name="Partitions then")).to_contain_text("30 records")
    page.get_by_label("As of").fill("1s")
    page.get_by_role("button", name="Go there").click()
    expect(table).to_contain_text("Ann 29")
    page.get_by_label("As of").fill("when")
    page.get_by_role("button", name="Go there").click()
    expect(page.get_by_role("alert")).to_contain_text("'when' is not a time")


def test_where_a_group_stood(console, open_page):
    page = open_page(f"{console.url}/t/users/time?moment=2100-01-01T00:00:00")
    expect(page.get_by_role("region", name="Groups then")).to_contain_text("billing")


def test_numbers_of_a_topic(console, open_page):
    page = open_page(f"{console.url}/t/users/numbers")
    expect(page.get_by_role("region", name="Codecs")).to_contain_text("zstd")
    keys = page.get_by_role("region", name="Commonest keys")
    expect(keys.locator("tbody tr").first).to_contain_text("96.9")


def test_replay_a_group_and_follow_it_until_it_has_caught_up(console, broker, open_page):
    page = open_page(f"{console.url}/group?id=billing")
    page.get_by_role("link", name="Replay").click()
    page.get_by_label("From (UTC)").fill("1h")
    expect(page.get_by_label("Name of the new group")).to_have_value("billing-v2")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator("#plan tbody tr")).to_have_text(re.compile(r"users-0\s*32\s*2"))
    page.get_by_role("button", name="Make the group").click()
    expect(page.locator(".sentence")).to_contain_text("Nobody reads with the new group yet", timeout=SOON)
    options = {"bootstrap.servers": broker.bootstrap, "group.id": "billing-v2"}
    consumer = Consumer({**options, "enable.auto.commit": False})
    consumer.subscribe(["users"])
    try:
        seen = [consumer.poll(20) for _ in range(30)]
        assert seen[0].offset() == 2
        consumer.commit(asynchronous=False)
        expect(page.locator(".sentence")).to_contain_text("has caught up", timeout=SOON)
    finally:
        consumer.close()


def test_compare_two_clusters(console, open_page, tmp_path):
    page = open_page(f"{console.url}/compare")
    page.get_by_role("button", name="Compare").click()
    rows = page.get_by_role("region", name="Differences")
    expect(rows).to_contain_text("extra")
    expect(rows).to_contain_text("cleanup.policy")
    commands = page.locator("pre.whole")
    expect(commands).to_contain_text("--create --topic extra --partitions 1")
    expect(commands).to_contain_text("--alter --topic users --partitions 3")
    with page.expect_download() as download:
        page.get_by_role("link", name="Save a snapshot").click()
    document = json.loads(download.value.path().read_text())
    assert document["topics"]["users"]["settings"] == {"cleanup.policy": "compact"}


def test_compare_with_a_snapshot(console, broker, start_console, open_page, tmp_path_factory):
    folder = tmp_path_factory.mktemp("snapshots")
    (folder / "before.json").write_text(httpx.get(f"{console.url}/compare/snapshot", timeout=30).text)
    (folder / "damaged.json").write_text('{"format": 1, "topics": {"users": {}}}')
    page = open_page(start_console("--bootstrap-server", broker.bootstrap, "--snapshots", str(folder)).url)
    page.goto(page.url.rstrip("/") + "/compare?with=file:before.json&part=topic")
    expect(page.locator("main")).not_to_contain_text("users")
    page.goto(page.url.partition("?")[0] + "?with=file:damaged.json")
    expect(page.get_by_role("alert")).to_contain_text("damaged")
    page.goto(page.url.partition("?")[0] + "?with=file:../../etc/passwd")
    expect(page.get_by_role("alert")).to_contain_text("no snapshot")


def test_the_json_interface_is_as_it_is_described(console):
    document = httpx.get(f"{console.root}/api/v1/c/local/openapi.json").json()
    assert document["openapi"] == "3.1.0" and len(document["paths"]) == 6
    for path, operations in document["paths"].items():
        address = path.format(cluster="local", topic="users")
        answer = httpx.get(console.root + address).json()
        schema = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate(answer, {**schema, "components": document["components"]})
        assert operations["get"]["summary"]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_and_well_laid_out(console, open_page, path):
    page = open_page(console.url + path, bypass_csp=True)
    assert problems(page) == []


class Issuer:
    """A small issuer of OpenID Connect: everyone who comes is Ann of the operators."""

    def __init__(self):
        self.key = rsa.generate_private_key(65537, 2048)
        self.codes = {}
        self.groups = ["operators"]
        handler = type("Handler", (_IssuerHandler,), {"issuer": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def configuration(self):
        ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        return {"issuer": self.url, **{name: f"{self.url}/{end}" for name, end in ends.items()}}

    def token(self, form):
        query = self.codes.pop(form["code"][0])
        digest = hashlib.sha256(form["code_verifier"][0].encode()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == query["code_challenge"][0]
        now = int(time.time())
        claims = {"iss": self.url, "aud": query["client_id"][0], "sub": "1", "email": "ann@example.org"}
        claims |= {"iat": now, "exp": now + 60, "nonce": query["nonce"][0], "groups": self.groups}
        return {"id_token": jwt.encode(claims, self.key, "RS256", headers={"kid": "k"})}


class _IssuerHandler(BaseHTTPRequestHandler):
    issuer: Issuer

    def do_GET(self):
        url = urlsplit(self.path)
        if url.path == "/authorize":
            query = parse_qs(url.query)
            code = f"code-{len(self.issuer.codes)}"
            self.issuer.codes[code] = query
            back = urlencode({"code": code, "state": query["state"][0]})
            self.send_response(302)
            self.send_header("Location", f"{query['redirect_uri'][0]}?{back}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif url.path == "/keys":
            known = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.issuer.key.public_key()))
            self.respond({"keys": [{**known, "kid": "k", "use": "sig"}]})
        else:
            self.respond(self.issuer.configuration())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.respond(self.issuer.token(parse_qs(body)))

    def respond(self, document):
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def test_sign_in_with_an_issuer(broker, start_console, open_page, tmp_path):
    issuer = Issuer()
    lines = ["[roles.operator]", 'verbs = ["see", "read"]', "[oidc]", f'issuer = "{issuer.url}"']
    lines += ['client_id = "ottla"', "[oidc.roles]", 'operators = ["operator"]']
    (tmp_path / "users.toml").write_text("\n".join(lines))
    console = start_console("--bootstrap-server", broker.bootstrap, "--users", str(tmp_path / "users.toml"))
    page = open_page(f"{console.url}/topics")
    page.get_by_role("link", name="Sign in with your organisation").click()
    expect(page.locator(".rail .foot")).to_contain_text("ann@example.org")
    assert page.url == f"{console.url}/topics"
    issuer.groups = ["strangers"]
    stranger = open_page(f"{console.root}/oidc/start")
    expect(stranger.get_by_role("alert")).to_contain_text("has no role here")
    # A code that another browser was given leads nowhere.
    stolen = httpx.get(f"{console.root}/oidc/done?code=code-0&state=guessed")
    assert stolen.status_code == 403 and "another browser" in stolen.text
    issuer.server.shutdown()
    issuer.server.server_close()
