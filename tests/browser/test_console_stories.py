"""What a person does and sees, in a browser, on a broker."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from playwright.sync_api import expect
from pyarrow import parquet

from browser.looks import layout_problems, problems, violations
from integration.share_member import ShareMember
from ottla.errors import ErrorCode
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.raw_client import RawClient
from ottla.wire.messages import ProduceRequest

pytestmark = pytest.mark.slow

SOON = 30_000
ACCEPT, RELEASE, REJECT = 1, 2, 3
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


def test_a_reset_to_the_end_is_done_as_planned_while_records_come_in(
    console, broker, open_page, create, produce, topic
):
    create(topic)
    produce(topic, ["x"] * 100)
    group = f"group-of-{topic}"
    commit(broker, group, topic, {0: 10})
    page = open_page(f"{console.url}/groups?q={group}")
    expect(page.locator("tbody tr")).to_be_visible(timeout=SOON)
    page.goto(f"{console.url}/group/reset?id={group}")
    page.get_by_label("The end: skip everything").check()
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator("#plan tbody tr").first).to_have_text(re.compile(r"-0\s*10\s*100\s*\+90"))
    produce(topic, ["later"] * 7)
    page.get_by_role("button", name="Set the offsets").click()
    expect(page.get_by_role("status").first).to_contain_text("stands at its new offsets")
    assert committed(broker, group, topic, 1) == [100]


def test_a_purge_deletes_what_the_plan_says_while_records_come_in(console, open_page, create, produce, topic):
    create(topic)
    produce(topic, ["old"] * 20)
    page = open_page(f"{console.url}/topics?q={topic}")
    expect(page.locator("tbody tr")).to_be_visible(timeout=SOON)
    page.goto(f"{console.url}/t/{topic}/change")
    page.locator("form[action$='topic.purge'] button").click()
    expect(page.locator("#plan tbody tr")).to_have_text(re.compile(r"0\s*0\s*20"))
    produce(topic, ["new"] * 3)
    page.get_by_role("button", name="Delete the records").click()
    expect(page.get_by_role("status").first).to_contain_text("are deleted")
    expect(page.locator("tbody tr")).to_have_count(3, timeout=SOON)


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


def test_starred_topics_are_kept_by_the_browser_and_make_a_link(console, open_page, create, produce, topic):
    names = [f"{topic}-{each}" for each in "abc"]
    for name in names:
        create(name)
    page = open_page(f"{console.url}/topics?q={topic}-")
    expect(page.locator("tbody tr")).to_have_count(3, timeout=SOON)
    for name in names[:2]:
        page.get_by_role("button", name=f"Mine: {name}").click()
    page.get_by_role("link", name="Mine", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(2)
    star = page.get_by_role("button", name=f"Mine: {names[0]}")
    expect(star).to_have_attribute("aria-pressed", "true")
    produce(names[0], ["x"] * 3)
    expect(page.locator(f"tr[data-key='{names[0]}'] td").nth(4)).to_have_text("3", timeout=SOON)
    expect(star).to_have_attribute("aria-pressed", "true")
    # Somebody else sees the same topics behind the link, without the stars.
    other = open_page(page.url)
    expect(other.locator("tbody tr")).to_have_count(2)
    expect(other.get_by_role("button", name=f"Mine: {names[0]}")).to_have_attribute("aria-pressed", "false")
    page.goto(f"{console.url}/topics")
    for name in names[:2]:
        page.get_by_role("button", name=f"Mine: {name}").click()
    page.get_by_role("link", name="Mine", exact=True).click()
    expect(page.locator("main")).to_contain_text("You have marked no topic.")


def test_several_topics_are_changed_and_deleted_at_once(console, broker, open_page, create, produce, topic):
    names = [f"{topic}-{each}" for each in "abc"]
    for name in names:
        create(name)
    page = open_page(f"{console.url}/topics?q={topic}-", bypass_csp=True)
    expect(page.locator("tbody tr")).to_have_count(3, timeout=SOON)
    for name in names[:2]:
        page.get_by_role("checkbox", name=f"Pick {name}").check()
    produce(names[2], ["x"] * 3)
    expect(page.locator(f"tr[data-key='{names[2]}'] td").nth(4)).to_have_text("3", timeout=SOON)
    bar = page.get_by_role("region", name="Picked topics")
    expect(bar).to_contain_text("2 topics")
    assert layout_problems(page) == []
    bar.get_by_role("button", name="Change settings").click()
    page.get_by_label("KEY=VALUE").fill("retention.ms=1000\ncleanup.policy=compact,delete")
    assert violations(page) == []
    page.get_by_role("dialog").get_by_role("button", name="Show the plan").click()
    expect(page.locator("#plan tbody tr")).to_have_count(2)
    expect(page.locator(".command").first).to_contain_text("cleanup.policy=[compact,delete]")
    page.get_by_role("button", name="Change the settings").click()
    expect(page.get_by_role("status").first).to_contain_text("The settings of 2 topics are changed.")
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.describe_configs(resources)
    kept = {each.name: settings.result()["retention.ms"].value for each, settings in found.items()}
    assert [kept[name] for name in names] == ["1000", "1000", "604800000"]

    page.goto(f"{console.url}/topics?q={topic}-")
    page.get_by_role("checkbox", name="Pick all topics of this page").check()
    expect(bar).to_contain_text("3 topics")
    for typed, allowed in (("2", False), ("3", True)):
        bar.get_by_role("button", name="Delete").click()
        page.get_by_label("Type how many topics you delete").fill(typed)
        page.get_by_role("dialog").get_by_role("button", name="Show the plan").click()
        expect(page.locator("#plan tbody tr")).to_have_count(3)
        done = page.get_by_role("button", name="Delete the topics")
        if allowed:
            done.click()
        else:
            expect(done).to_be_disabled()
            expect(page.get_by_role("alert")).to_contain_text("Type their number, 3")
            page.goto(f"{console.url}/topics?q={topic}-")
            page.get_by_role("checkbox", name="Pick all topics of this page").check()
    expect(page.get_by_role("status").first).to_contain_text("3 topics are deleted.")
    page.goto(f"{console.url}/topics?q={topic}-")
    expect(page.locator("main")).to_contain_text("No topic fits.", timeout=SOON)


def test_the_level_of_a_feature_is_lowered_from_a_plan(console, open_page):
    page = open_page(f"{console.url}/quorum")
    page.locator("summary", has_text="Change a level").click()
    form = page.locator("form[action$='feature.set']")
    form.locator("select").select_option("transaction.version")
    form.locator("input[name=level]").fill("1")
    form.get_by_role("button").click()
    expect(page.locator("#plan tbody tr")).to_have_text(re.compile(r"transaction.version\s*2\s*1\s*0 to 2"))
    expect(page.locator(".command")).to_contain_text("features")
    page.get_by_role("button", name="Set the level").click()
    expect(page.get_by_role("status").first).to_contain_text("The level of transaction.version is 1.")


def test_clients_are_asked_for_their_metrics(console, open_page):
    page = open_page(f"{console.url}/access")
    page.locator("summary", has_text="Ask clients for metrics").click()
    form = page.locator("form[action$='telemetry.set']")
    form.get_by_label("Name").fill("producers")
    form.get_by_label("Metrics").fill("org.apache.kafka.producer.")
    form.get_by_label("Every").fill("60")
    form.get_by_role("button").click()
    expect(page.locator("#plan")).to_contain_text("60000")
    page.get_by_role("button", name="Ask clients").click()
    expect(page.get_by_role("status").first).to_contain_text("Clients are asked for the metrics of producers")
    expect(page.locator("main")).to_contain_text("interval.ms 60000")
    page.get_by_role("button", name="Delete the subscription producers").click()
    page.get_by_role("button", name="Delete it").click()
    expect(page.locator("main")).to_contain_text("Clients are not asked for their metrics.")


def test_a_share_group_shows_what_became_of_the_records_that_it_was_given(
    console, broker, open_page, create, produce, topic
):
    create(topic)
    produce(topic, [f"record {number}" for number in range(6)])
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, topic, incremental_configs=[earliest])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()
    with contextlib.closing(ShareMember(broker.host, broker.port, topic, topic)) as member:
        member.join()
        assert [each.first_offset for each in member.fetch().acquired_records] == [0]
        for first, last, kind in ((0, 1, RELEASE), (2, 2, REJECT), (3, 3, ACCEPT)):
            assert member.acknowledge(first, last, [kind]) == ErrorCode.NONE
        page = open_page(f"{console.url}/groups?q={topic}", bypass_csp=True)
        expect(page.locator("tbody tr")).to_be_visible(timeout=SOON)
        page.goto(f"{console.url}/share?id={topic}")
        # Start, done ahead, to give again, deliveries, given up, lag.
        expect(page.locator(f"tr[data-key='{topic}-0']")).to_have_text(
            re.compile(r"-0\s*0\s*1\s*2\s*up to 1\s*1\s*"), timeout=SOON
        )
        assert problems(page) == []
