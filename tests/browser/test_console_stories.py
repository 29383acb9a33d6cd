"""What a person does and sees, in a browser, on a broker."""

from __future__ import annotations

import csv
import json
import re
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect
from pyarrow import parquet

from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.raw_client import RawClient
from ottla.wire.messages import ProduceRequest

pytestmark = pytest.mark.slow

SOON = 30_000
HOSTILE = '<script>document.title="taken"</script><img src=x onerror=alert(1)>\u202eevil'


@pytest.fixture(scope="module")
def console(broker, start_console):
    return start_console("--bootstrap-server", broker.bootstrap)


@pytest.fixture
def produce(broker):
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def send(topic, values, key=None, headers=None, partition=None):
        for value in values:
            text = value if isinstance(value, str | bytes) else json.dumps(value)
            options = {} if partition is None else {"partition": partition}
            producer.produce(topic, text, key, headers=headers, **options)
        producer.flush()

    return send


@pytest.fixture
def create(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def make(name, partitions=1, **settings):
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result()

    return make


def commit(broker, group, topic, offsets):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    places = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(broker, group, topic, partitions):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=10)
    consumer.close()
    return [each.offset for each in found]


def see_topic(page, url, name):
    """Wait until the console knows a topic that was made elsewhere."""
    page.goto(f"{url}/topics?q={name}")
    expect(page.locator(f"tr[data-key='{name}']")).to_be_visible(timeout=SOON)


def test_create_a_topic_and_find_its_first_record(console, open_page, topic):
    page = open_page(f"{console.url}/topics")
    page.get_by_role("link", name="New topic").click()
    page.get_by_label("Name").fill(topic)
    page.get_by_label("Settings").fill("retention.ms=3600000")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator("#plan")).to_contain_text("3600000")
    expect(page.locator(".command")).to_contain_text(f"--create --topic {topic}")
    page.get_by_role("button", name="Create the topic").click()
    expect(page.get_by_role("status").first).to_have_text(f"The topic {topic} is there.")
    parts = page.get_by_role("navigation", name="Parts of this page")
    parts.get_by_role("link", name="Settings", exact=True).click()
    expect(page.get_by_role("region", name="Set for this topic")).to_contain_text("retention.ms")
    page.get_by_role("link", name="Write a record").click()
    page.get_by_label("Key", exact=True).fill("first")
    page.get_by_label("Value", exact=True).fill('{"hello": 9007199254740993}')
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_role("button", name="Write the record").click()
    expect(page.locator("td.key")).to_have_text("first")
    page.locator("td.value summary").click()
    expect(page.locator(".opened pre").last).to_contain_text('"hello": 9007199254740993')


def test_a_link_to_a_record_opens_elsewhere_and_knows_when_it_is_gone(
    console, open_page, create, produce, topic
):
    create(topic)
    produce(topic, [{"number": number} for number in range(10)], "key")
    page = open_page(console.url)
    see_topic(page, console.url, topic)
    page.goto(f"{console.url}/t/{topic}")
    page.get_by_role("link", name="0:7", exact=True).click()
    shared = page.url
    elsewhere = open_page(shared)
    expect(elsewhere.locator("pre").first).to_contain_text('"number": 7')
    expect(elsewhere.get_by_text("another topic of the same name")).to_have_count(0)
    elsewhere.goto(re.sub(r"id=[0-9a-f-]+", "id=00000000-0000-0000-0000-000000000000", shared))
    expect(elsewhere.get_by_text("another topic of the same name")).to_be_visible()
    elsewhere.goto(shared.replace("/0/7", "/0/70"))
    expect(elsewhere.get_by_text("There is no record at 70 yet")).to_be_visible()


def test_follow_the_end_of_a_topic_filter_it_and_pause(console, open_page, create, produce, topic):
    create(topic, 2)
    page = open_page(console.url)
    see_topic(page, console.url, topic)
    page.goto(f"{console.url}/t/{topic}/live?filter=value.total+%3E+10")
    with page.expect_response(lambda answer: "/tail" in answer.url):
        page.reload()
    # The stream begins at the end of the topic: records are sent until the first one shows up.
    for _ in range(60):
        produce(topic, [{"total": 5}, {"total": 50}])
        if page.locator("#tail-rows tr").count():
            break
        page.wait_for_timeout(250)
    expect(page.locator("#tail-rows")).to_contain_text('"total": 50')
    assert '"total": 5}' not in page.locator("#tail-rows").inner_text()
    page.get_by_role("button", name="Pause").click()
    before = page.locator("#tail-rows tr").count()
    produce(topic, [{"total": 60}] * 20)
    expect(page.locator("#tail-status")).to_contain_text("paused, still counting")
    assert page.locator("#tail-rows tr").count() == before


def test_live_leaves_aborted_transactions_out(console, broker, open_page, create, produce, topic):
    create(topic)
    page = open_page(console.url)
    see_topic(page, console.url, topic)
    with page.expect_response(lambda answer: "/tail" in answer.url):
        page.goto(f"{console.url}/t/{topic}/live")
    for _ in range(60):
        produce(topic, ["begin"])
        if page.locator("#tail-rows tr").count():
            break
        page.wait_for_timeout(250)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for value, end in (("undone", producer.abort_transaction), ("done", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        end()
    expect(page.locator("#tail-rows td.value", has_text=re.compile("^done$"))).to_be_visible(timeout=SOON)
    assert "undone" not in page.locator("#tail-rows").inner_text()


def test_search_by_text_and_by_condition(console, open_page, create, produce, topic):
    create(topic, 3)
    produce(topic, [{"id": number, "city": "Zürich" if number == 777 else "Bern"} for number in range(2000)])
    page = open_page(console.url)
    see_topic(page, console.url, topic)
    page.goto(f"{console.url}/t/{topic}")
    page.get_by_label("Text in key or value").fill("Zürich")
    page.get_by_role("button", name="Read").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody")).to_contain_text("777")
    page.get_by_label("Text in key or value").fill("")
    page.get_by_label("Condition").fill("value.id >= 1998")
    page.get_by_role("button", name="Read").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("Condition").fill("__import__('os')")
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("alert")).to_contain_text("The condition")


def test_a_search_of_a_million_records_shows_how_far_it_got_and_can_be_stopped(
    console, broker, open_page, create, topic
):
    create(topic)
    write_a_million(broker, topic)
    page = open_page(console.url)
    see_topic(page, console.url, topic)
    search = f"{console.url}/t/{topic}?at=oldest&filter=value.id+%3D%3D+17+and+offset+%3C+100"
    reached = stop_at_the_next_slice(page, lambda: page.goto(search))
    expect(page.locator("tbody tr")).to_have_count(1)
    assert 0 < reached < 90
    # It goes on from there, not from the beginning.
    page.get_by_role("link", name="Search on").click()
    page.wait_for_url("**cursor=**")
    assert searched(page) > reached
    # A text is looked for in the bytes of batches: the whole million takes a moment.
    page.goto(f"{console.url}/t/{topic}?q=nowhere")
    expect(page.locator(".how-far")).to_contain_text("Done: 100 % searched", timeout=SOON)
    expect(page.locator(".empty")).to_contain_text("Nothing found.")


def write_a_million(broker, topic):
    """A hundred batches of the same 10,000 records."""
    records = [
        Record(number, int(time.time() * 1000), None, b'{"id": %d}' % number, ()) for number in range(10_000)
    ]
    batch = build_batch(records)
    kind = ProduceRequest
    with RawClient("127.0.0.1", broker.port) as client:
        for _ in range(100):
            data = kind.TopicProduceData(
                name=topic, partition_data=[kind.PartitionProduceData(index=0, records=batch)]
            )
            answer = client.ask(kind(acks=1, timeout_ms=30_000, topic_data=[data]), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0


def stop_at_the_next_slice(page, begin):
    """Press Stop while the server looks through the next slice; how far it got, in per cent."""
    held = []

    def hold(route):
        held.append(route) if "x-block" in route.request.headers else route.continue_()

    page.route(lambda url: "cursor=" in url, hold)
    begin()
    page.get_by_role("button", name="Stop").click()
    while not held:
        page.wait_for_timeout(50)
    held[0].continue_()
    page.unroute_all()
    expect(page.locator(".how-far")).to_contain_text("Stopped", timeout=SOON)
    return searched(page)


def searched(page):
    """How many per cent of the topic the page says were searched."""
    return int(re.search(r"(\d+) % searched", page.locator(".how-far").inner_text())[1])


def test_see_that_nobody_reads_and_reset_the_group_from_a_plan(
    console, broker, open_page, create, produce, topic
):
    create(topic, 2)
    produce(topic, ["x"] * 100, partition=0)
    group = f"group-of-{topic}"
    commit(broker, group, topic, {0: 10, 1: 0})
    page = open_page(f"{console.url}/groups?q={group}")
    expect(page.locator("tbody tr")).to_contain_text("Nobody reads", timeout=SOON)
    page.get_by_role("link", name=group).click()
    expect(page.locator(".findings")).to_contain_text("90 records wait")
    page.get_by_role("link", name="Reset", exact=True).click()
    page.get_by_label("Forward or back by a number of records").first.check()
    page.get_by_role("textbox", name="Number of records").fill("25")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator("#plan tbody tr").first).to_have_text(re.compile(r"-0\s*10\s*35\s*\+25"))
    expect(page.locator(".command")).to_contain_text("--reset-offsets --all-topics --shift-by 25 --execute")
    page.get_by_role("button", name="Set the offsets").click()
    expect(page.get_by_role("status").first).to_contain_text("stands at its new offsets")
    assert committed(broker, group, topic, 2) == [35, 0]


def test_a_reset_is_refused_while_members_are_there(console, broker, open_page, create, produce, topic):
    create(topic)
    produce(topic, ["x"] * 5)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"busy-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    while consumer.poll(1.0) is None:
        pass
    consumer.commit(asynchronous=False)
    try:
        page = open_page(f"{console.url}/groups?q=busy-{topic}")
        expect(page.locator("tbody tr")).to_be_visible(timeout=SOON)
        page.goto(f"{console.url}/group/reset?id=busy-{topic}")
        page.get_by_role("button", name="Show the plan").click()
        expect(page.get_by_role("alert")).to_contain_text("stop its consumers first")
        expect(page.get_by_role("button", name="Set the offsets")).to_be_disabled()
    finally:
        consumer.close()


def test_hostile_records_and_groups_stay_text(console, broker, open_page, create, produce, topic):
    create(topic)
    produce(topic, [HOSTILE, json.dumps({"a": HOSTILE})], HOSTILE, {HOSTILE: HOSTILE.encode()})
    commit(broker, HOSTILE, topic, {0: 1})
    page = open_page(console.url)
    see_topic(page, console.url, topic)
    for path in (f"/t/{topic}", f"/t/{topic}/0/1", f"/t/{topic}/log", "/groups", "/"):
        page.goto(console.url + path)
        assert "taken" not in page.title()
        assert page.locator("main script, main img").count() == 0
    page.goto(f"{console.url}/groups")
    expect(page.locator("tbody")).to_contain_text("<script>", timeout=SOON)
    page.get_by_role("link", name=re.compile("^<script>")).click()
    expect(page.locator("h1")).to_contain_text("<script>")
    assert "\u202e" not in page.locator("main").inner_text()


def test_work_by_keyboard_alone(console, open_page, create, produce, topic):
    create(topic)
    produce(topic, ["one", "two"])
    page = open_page(console.url)
    see_topic(page, console.url, topic)
    page.goto(console.url)
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/topics")
    page.keyboard.press("/")
    page.keyboard.type(topic)
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("main").focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/t/{topic}")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()


def test_a_narrow_screen_has_a_bar_at_the_bottom(console, open_page):
    page = open_page(f"{console.url}/topics", width=390, height=844)
    expect(page.locator(".rail")).to_be_hidden()
    page.locator(".bar").get_by_role("button", name="More").click()
    page.locator("#more").get_by_role("link", name="Quorum").click()
    page.wait_for_url("**/quorum")


def test_export_holds_what_was_found(console, open_page, create, produce, topic):
    create(topic)
    produce(topic, [{"id": number, "note": "=1+1"} for number in range(120)])
    page = open_page(console.url)
    see_topic(page, console.url, topic)
    page.goto(f"{console.url}/t/{topic}?filter=value.id+%3E%3D+100&at=oldest")
    files = {}
    for kind in ("JSON lines", "CSV", "Parquet"):
        with page.expect_download() as download:
            page.get_by_role("link", name=kind, exact=True).click()
        files[kind] = download.value
    wanted = list(range(100, 120))
    lines = files["JSON lines"].path().read_text().splitlines()
    assert [json.loads(json.loads(line)["value"])["id"] for line in lines] == wanted
    rows = list(csv.DictReader(files["CSV"].path().read_text().splitlines()))
    assert [json.loads(row["value"])["id"] for row in rows] == wanted
    table = parquet.read_table(files["Parquet"].path())
    assert [json.loads(value)["id"] for value in table.column("value").to_pylist()] == wanted
    assert files["Parquet"].suggested_filename == f"{topic}.parquet"


def test_export_begins_at_the_position_of_the_page(console, open_page, create, produce, topic):
    create(topic)
    produce(topic, [{"id": number} for number in range(5)])
    page = open_page(console.url)
    see_topic(page, console.url, topic)
    for query, count in (("at=offset&offset=3", 2), ("at=time&since=1h", 5), ("at=time&since=0s", 0)):
        answer = page.request.get(f"{console.url}/t/{topic}/export?{query}")
        assert len(answer.text().splitlines()) == count, query
