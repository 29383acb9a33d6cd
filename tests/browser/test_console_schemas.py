"""Records with schema ids on the console's pages, decoded by a registry; masks, filters and sending again."""

from __future__ import annotations

import html
import json
import urllib.parse
import urllib.request

import pytest

from ottla import KafkaConsumer, KafkaProducer
from ottla.schemas import Registry
from ottla.testing.registry import RegistryProcess

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytestmark = pytest.mark.slow

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "card", "type": "string"}],
}


@pytest.fixture(scope="module")
def topic(shared_ottla_broker):
    """A topic with Avro, JSON and Protobuf, and something that only looks like it; and its registry."""
    struct_pb2 = pytest.importorskip("google.protobuf.struct_pb2")
    bootstrap = shared_ottla_broker.bootstrap
    with RegistryProcess(bootstrap, "--topic", "_console_schemas", "--group", "console-schemas") as process:
        registry = Registry(process.url)
        message = struct_pb2.Struct()
        message["seen"] = True
        values = [
            registry.avro("mixed-avro", ORDER).serialize("", [], {"id": 4711, "card": "4000123412341234"}),
            registry.json("mixed-json", {"type": "object"}).serialize("", [], {"n": 5}),
            registry.protobuf("mixed-proto", struct_pb2.Struct).serialize("", [], message),
            b"\0\0\0\xff\xffno schema",
        ]
        with KafkaProducer(bootstrap_servers=bootstrap) as producer:
            for value in values:
                producer.send("mixed", value).get(timeout=30)
        registry.close()
        yield bootstrap, process.url, values


@pytest.fixture(scope="module")
def console(topic, start_console, tmp_path_factory):
    masks = tmp_path_factory.mktemp("masks") / "masks.toml"
    masks.write_text('[[mask]]\ntopics = ["mixed"]\npaths = ["card"]\nhow = "last4"\n')
    bootstrap, url, _ = topic
    plain = start_console("--bootstrap-server", bootstrap, "--registry", url)
    return plain, start_console("--bootstrap-server", bootstrap, "--registry", url, "--masks", str(masks))


def get(console, path, **query):
    where = console.root if path.startswith("/api/") else console.url
    address = f"{where}{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(address, timeout=60) as response:
        return html.unescape(response.read().decode())


def records(console, **query):
    found = json.loads(get(console, "/api/v1/c/local/topics/mixed/records", at="oldest", **query))["records"]
    return [each["value"] for each in found]


def test_pages_show_records_as_json(console):
    plain, _ = console
    values = records(plain)
    assert [json.loads(value) for value in values[:3]] == [
        {"id": 4711, "card": "4000123412341234"},
        {"n": 5},
        {"seen": True},
    ]
    page = get(plain, "/t/mixed", at="oldest")
    assert '{"id":4711,"card":"4000123412341234"}' in page
    assert "Avro, schema " in page and "Json, schema " in page and "Protobuf, schema " in page
    record = get(plain, "/t/mixed/0/0")
    assert '"id": 4711' in record and "Avro, schema " in record
    # The bytes of the log are there for those who ask for them.
    assert "4711" not in get(plain, "/t/mixed/0/0", **{"as": "hex"}).partition("Neighbours")[0]


def test_filters_and_searches_see_what_is_shown(console):
    plain, _ = console
    assert len(records(plain, filter="value.id > 4000")) == 1
    assert len(records(plain, q='"id":4711')) == 1


def test_masks_reach_into_decoded_records(console):
    _, masked = console
    assert json.loads(records(masked)[0]) == {"id": 4711, "card": "********1234"}
    assert records(masked, q="4000123412341234") == []
    assert "4000123412341234" not in get(masked, "/t/mixed/0/0", **{"as": "hex"})


def test_a_record_is_sent_again_byte_for_byte(console, topic):
    plain, _ = console
    bootstrap, _, values = topic
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

    def page(path, form=None):
        data = None if form is None else urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(plain.url + path, data, headers={"Origin": plain.root})
        with browser.open(request, timeout=60) as response:
            return response.read().decode()

    def hidden(text, name):
        return text.partition(f'name="{name}" value="')[2].partition('"')[0]

    form = {"topic": "mixed", "partition": 0, "offset": 0, "token": hidden(page("/t/mixed/0/0"), "token")}
    plan = page("/plan/record.resend", form)
    assert "Send it again" in plan
    page("/do/record.resend", {**form, "digest": hidden(plan, "digest")})
    with KafkaConsumer(
        "mixed", bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    ) as consumer:
        found = [next(consumer).value for _ in range(len(values) + 1)]
    assert found == [*values, values[0]]
