"""Pages about what is beside a cluster, and about access: a real registry, Connect worker and dead-letter topic."""

from __future__ import annotations

import json
import re
import struct

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect

from browser.looks import problems
from integration.connect_rest import running_worker
from ottla.streams import StreamsApp, StreamsBuilder, StreamsSettings
from ottla.streams.status import write_status
from ottla.testing.registry import RegistryProcess

pytestmark = pytest.mark.slow

SOON = 30_000
HOSTILE = '<script>document.title="taken"</script>'
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
PAGES = [
    "/schemas",
    "/schema?id=orders-value",
    "/connect",
    "/connector?id=lines",
    "/pipelines",
    "/pipeline?id=word-count",
    "/quarantine",
    "/quarantine/orders-dlq",
    "/access",
    "/t/orders/schema",
    "/t/lengths/schema",
    "/t/orders/access?who=alice&may=write",
]


@pytest.fixture(scope="module")
def broker_settings():
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


@pytest.fixture(scope="module")
def registry(broker):
    with RegistryProcess(broker.bootstrap) as process:
        yield process


@pytest.fixture(scope="module")
def worker(broker):
    with running_worker(broker.bootstrap, client_id="console") as rest:
        yield rest


@pytest.fixture(scope="module")
def applications(tmp_path_factory):
    """The directory of an application as `ottla streams run` leaves it; no Spark runs here."""
    folder = tmp_path_factory.mktemp("applications")
    builder = StreamsBuilder()
    builder.stream("orders").map_values(len).group_by_key().count(store="counts").to_stream().to("lengths")
    app = StreamsApp(builder, "word-count", StreamsSettings(state_dir=folder))
    status = {
        "application_id": "word-count",
        "pid": 1,
        "running": True,
        "batch": 7,
        "batch_ms": 210,
        "rows_per_second": 1200.5,
        "state_rows": 42,
        "lag": 17,
        "topics": {"orders": {"rows": 250, "lag": 17}},
    }
    write_status(status, app.directory)
    (app.directory / "topology.json").write_text(json.dumps(app.picture()))
    (app.directory / "plan.json").write_text(json.dumps({"format": 2, "stages": [{"counts": "key-value"}]}))
    return folder


@pytest.fixture(scope="module")
def console(broker, registry, worker, applications, start_console, tmp_path_factory):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    names = [NewTopic("orders", 2, 1), NewTopic("orders-dlq", 1, 1), NewTopic("lengths", 1, 1)]
    for made in admin.create_topics(names).values():
        made.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(4):
        headers = {
            "__connect.errors.topic": b"orders",
            "__connect.errors.partition": str(number % 2).encode(),
            "__connect.errors.offset": str(number).encode(),
            "__connect.errors.exception.class.name": b"org.apache.kafka.connect.errors.DataException",
            "__connect.errors.exception.message": f"field {number} {HOSTILE}".encode(),
            "trace": b"4bf9",
        }
        producer.produce("orders-dlq", json.dumps({"id": number}), f"k{number}", headers=headers)
    producer.flush()
    lines = tmp_path_factory.mktemp("lines") / "in.txt"
    lines.write_text("one\ntwo\n")
    settings = {"connector_class": "FileStreamSource", "file": str(lines), "topic": "lines"}
    worker.create("lines", **settings, **{"database.password": "hunter2"})
    services = ("--registry", registry.url, "--connect", worker.url, "--applications", str(applications))
    return start_console("--bootstrap-server", broker.bootstrap, *services)


def register(page, console, schema):
    page.goto(f"{console.url}/schema?id=orders-value")
    page.get_by_label("A new version").fill(json.dumps(schema))
    page.get_by_role("button", name="Check it").click()


def test_register_refuse_and_explain_a_schema(console, open_page):
    page = open_page(f"{console.url}/schemas")
    page.get_by_label("Subject", exact=True).fill("orders-value")
    page.get_by_label("Schema", exact=True).fill(json.dumps(ORDER))
    page.get_by_role("button", name="Show the plan").first.click()
    page.get_by_role("button", name="Register it").click()
    expect(page.get_by_role("status").first).to_contain_text("orders-value has the schema with the id")
    expect(page.locator("main")).to_contain_text("Used by the topic orders")
    worse = {**ORDER, "fields": [*ORDER["fields"], {"name": "total", "type": "double"}]}
    register(page, console, worse)
    expect(page.get_by_role("alert")).to_contain_text("not compatible with orders-value (BACKWARD)")
    expect(page.locator(".note.warn").first).to_contain_text("total")
    expect(page.get_by_role("button", name="Register it")).to_be_disabled()
    better = {**ORDER, "fields": [*ORDER["fields"], {"name": "total", "type": "double", "default": 0.0}]}
    register(page, console, better)
    expect(page.locator("#plan")).to_contain_text('"name": "total"')
    page.get_by_role("button", name="Register it").click()
    expect(page.locator(".diff .added").first).to_be_visible()
    page.get_by_role("link", name="Version 1").click()
    expect(page.locator("main")).to_contain_text("There is nothing to compare it with")


def test_a_connector_is_seen_paused_and_its_secrets_are_not(console, open_page, worker):
    worker.await_states("lines", "RUNNING", "RUNNING")
    page = open_page(f"{console.url}/connect")
    expect(page.locator("tr[data-key=lines]")).to_contain_text("running")
    page.get_by_role("link", name="lines", exact=True).click()
    expect(page.locator("main")).to_contain_text("connector.class")
    assert "hunter2" not in page.content()
    page.get_by_label("Action").select_option("pause")
    page.get_by_role("button", name="Show the plan").first.click()
    page.get_by_role("button", name="Pause").click()
    worker.await_states("lines", "PAUSED", "PAUSED")
    page.goto(f"{console.url}/connector?id=nobody")
    expect(page.get_by_role("alert")).to_contain_text("nobody")


def test_send_dead_letters_back_in_one_transaction(console, broker, open_page):
    page = open_page(f"{console.url}/quarantine")
    row = page.get_by_role("row", name=re.compile("DataException"))
    expect(row).to_contain_text("orders")
    expect(row).to_contain_text("4")
    assert "taken" not in page.title()
    page.get_by_role("link", name="orders-dlq").click()
    page.get_by_role("button", name="All of them").click()
    expect(page.locator("#plan tbody tr")).to_have_count(4)
    page.get_by_role("button", name="Send back").click()
    expect(page.get_by_role("status").first).to_have_text("4 records were sent back.")
    options = {"bootstrap.servers": broker.bootstrap, "group.id": "checks", "auto.offset.reset": "earliest"}
    consumer = Consumer({**options, "isolation.level": "read_committed"})
    consumer.subscribe(["orders"])
    found = {}
    while len(found) < 4:
        record = consumer.poll(10)
        assert record is not None and record.error() is None
        found[record.key()] = record.partition(), dict(record.headers())
    consumer.close()
    assert {key: part for key, (part, _) in found.items()} == {b"k0": 0, b"k1": 1, b"k2": 0, b"k3": 1}
    assert found[b"k3"][1] == {"trace": b"4bf9", "__ottla.sent.back": b"orders-dlq-0@3"}


def test_follow_a_pipeline(console, open_page):
    page = open_page(f"{console.url}/pipelines")
    expect(page.locator(".card").first).to_contain_text("1,200")
    page.get_by_role("link", name="word-count").click()
    expect(page.locator("svg.topology")).to_contain_text("17 waiting")
    expect(page.locator("svg.topology")).to_contain_text("/s")
    page.get_by_text("As a list").click()
    expect(page.locator("details.same").first).to_contain_text("orders feeds")


def test_rules_users_and_quotas_are_changed_from_plans(console, broker, open_page):
    page = open_page(f"{console.url}/access")
    page.get_by_text("New rule").click()
    page.get_by_label("User").first.fill("alice")
    form = page.locator("details.add").first
    form.get_by_label("Operation").select_option("read")
    form.get_by_label("Names").select_option("prefixed")
    form.get_by_label("Name", exact=True).fill("orders-")
    form.get_by_role("button", name="Show the plan").click()
    expect(page.locator(".command")).to_contain_text("--resource-pattern-type prefixed")
    page.get_by_role("button", name="Add the rule").click()
    expect(page.get_by_role("status").first).to_contain_text("alice may read topics that begin with orders-")
    page.goto(f"{console.url}/access?who=alice&may=read&kind=topic&name=orders-dlq")
    expect(page.locator(".sentence")).to_contain_text("Yes")
    page.get_by_role("button", name=re.compile("^Remove: alice")).click()
    page.get_by_role("button", name="Remove the rule").click()
    expect(page.locator("main")).to_contain_text("There are no access control entries.")
    page.get_by_text("New user or new password").click()
    form = page.locator("details.add[open]")
    form.get_by_label("User").fill("bob")
    form.get_by_label("Password").fill("correct horse battery")
    form.get_by_role("button", name="Show the plan").click()
    assert "correct horse" not in page.content()
    page.get_by_role("button", name="Set the password").click()
    expect(page.locator("main")).to_contain_text("SCRAM-SHA-512, 8,192 iterations")
    page.get_by_text("Set or remove a quota").click()
    form = page.locator("details.add[open]")
    form.get_by_label("User", exact=True).fill("bob")
    form.get_by_label("Value").fill("1,000,000")
    form.get_by_role("button", name="Show the plan").click()
    page.get_by_role("button", name="Set the quota").click()
    expect(page.locator("main")).to_contain_text("producer_byte_rate 1,000,000")


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_and_well_laid_out(console, open_page, path):
    page = open_page(console.url + path, bypass_csp=True)
    for summary in page.locator("details.add > summary").all():
        summary.click()
    assert problems(page) == []


def test_the_pages_say_how_to_name_a_service_that_is_missing(broker, start_console, open_page):
    bare = start_console("--bootstrap-server", broker.bootstrap)
    page = open_page(f"{bare.url}/schemas")
    expect(page.locator("main")).to_contain_text("--registry URL")
    page.goto(f"{bare.url}/connect")
    expect(page.locator("main")).to_contain_text("--connect URL")
    page.goto(f"{bare.url}/pipelines")
    expect(page.locator("main")).to_contain_text("--applications DIR")


def test_a_topic_shows_its_schema_and_what_its_records_carry(console, broker, registry, open_page):
    answer = httpx.post(f"{registry.url}/subjects/lengths-value/versions", json={"schema": json.dumps(ORDER)})
    schema_id = answer.json()["id"]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(4):
        producer.produce("lengths", struct.pack(">bI", 0, schema_id) + bytes([number * 2]))
    producer.produce("lengths", "plain text")
    producer.flush()
    page = open_page(f"{console.url}/t/lengths")
    page.get_by_role("link", name="Schema", exact=True).click()
    expect(page.get_by_role("heading", name="lengths-value")).to_be_visible()
    expect(page.locator("main pre")).to_contain_text('"name": "Order"')
    rows = page.get_by_role("region", name="Schemas of the newest records").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_have_text(re.compile(rf"value\s*Avro, schema {schema_id}\s*4$"))
    page.get_by_role("link", name="lengths-value").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("lengths-value")


def test_a_topic_shows_who_may_use_it_and_takes_a_rule(console, open_page):
    page = open_page(f"{console.url}/t/orders")
    page.get_by_role("link", name="Access", exact=True).last.click()
    page.get_by_text("New rule for this topic").click()
    page.get_by_label("User", exact=True).fill("carol")
    page.get_by_label("Operation").select_option("write")
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_role("button", name="Do it").or_(page.locator(".plan-buttons button")).first.click()
    page.goto(f"{console.url}/t/orders/access?who=carol&may=write")
    expect(page.locator("main .sentence")).to_have_text(re.compile("Yes\\s*carol may write the topic orders"))
    row = page.get_by_role("region", name="Who may do what").locator("tr", has_text="carol")
    expect(row.locator("td").nth(1)).to_have_text("yes")
    expect(row.locator("td").nth(0)).to_have_text("no")
    page.goto(f"{console.url}/t/orders/access?who=dave&may=read")
    expect(page.locator("main .sentence")).to_contain_text("No rule allows it.")


def test_the_palette_finds_schemas_and_what_one_can_do(console, registry, open_page):
    url = f"{registry.url}/subjects/parcels-value/versions"
    httpx.post(url, json={"schema": '"string"'}).raise_for_status()
    page = open_page(f"{console.url}/topics")
    for typed, kind, heading in (("parcels", "schema", "parcels-value"), ("emptyabro", "action", "Moves")):
        page.keyboard.press("Control+k")
        page.keyboard.type(typed)
        expect(page.locator("#palette li[aria-selected=true]")).to_contain_text(kind)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
        page.wait_for_load_state()
