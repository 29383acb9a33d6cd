"""Every page in two widths: no violation of axe's rules, nothing cut, no script error. Themes as `themes` says."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import expect

from browser.looks import layout_problems, violations
from ottla import KafkaAdminClient, NewTopic

pytestmark = pytest.mark.slow

PAGES = [
    "/",
    "/topics",
    "/topics?show=internal",
    "/topics?q=nothing-has-this-name",
    "/topics/new",
    "/t/orders",
    "/t/orders?filter=value.total+%3E",
    "/t/orders/live",
    "/t/orders/partitions",
    "/t/orders/groups",
    "/t/orders/settings",
    "/t/orders/log",
    "/t/orders/change",
    "/t/orders/produce",
    "/t/orders/new-group",
    "/t/orders/0/1",
    "/t/orders/0/999999",
    "/t/__consumer_offsets?at=oldest",
    "/groups",
    "/group?id=billing",
    "/group/reset?id=billing",
    "/nodes",
    "/nodes/1",
    "/nodes/1/settings",
    "/quorum",
    "/transactions",
    "/moves",
    "/access?who=alice&may=write&kind=topic&name=orders",
    "/nothing-is-here",
]


@pytest.fixture(scope="module")
def console(broker, start_console):
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics(
        [NewTopic("orders", 3, 1), NewTopic("users", 1, 1, topic_configs={"cleanup.policy": "compact"})]
    )
    admin.close()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(300):
        producer.produce(
            "orders", json.dumps({"id": number, "total": number * 1.5}), f"customer-{number % 7}"
        )
        producer.produce("users", json.dumps({"name": f"user {number}"}), str(number % 11))
    producer.flush()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", number, 1) for number in range(3)], asynchronous=False)
    consumer.close()
    return start_console("--bootstrap-server", broker.bootstrap)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_and_well_laid_out(console, open_page, path, themes):
    for theme in themes:
        page = open_page(console.url + path, theme=theme, bypass_csp=True)
        assert violations(page) == []
        assert layout_problems(page) == []
        page.set_viewport_size({"width": 390, "height": 844})
        assert layout_problems(page) == []
        if len(themes) > 1:
            assert violations(page) == []


def test_numbers_change_while_a_person_looks(console, broker, open_page):
    page = open_page(console.url + "/topics?q=orders")
    records = page.locator("tr[data-key=orders] td").nth(3)
    assert records.inner_text() == "300"
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(50):
        producer.produce("orders", str(number))
    producer.flush()
    expect(records).to_have_text("350", timeout=20_000)


def test_the_find_box_answers_while_a_person_types_and_the_address_follows(console, open_page):
    page = open_page(console.url + "/topics")
    page.keyboard.press("/")
    page.keyboard.type("use")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.locator("tbody th").inner_text().split() == ["users", "compact"]
    assert page.url.endswith("/topics?q=use")


def test_the_palette_finds_a_topic_by_keyboard_alone(console, open_page):
    page = open_page(console.url + "/")
    page.keyboard.press("Control+k")
    page.keyboard.type("topi")
    # The list is filtered a moment after the last letter.
    page.wait_for_selector("#palette li:first-child:has-text('Topics')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics")


def test_the_theme_is_kept(console, open_page):
    page = open_page(console.url + "/")
    page.get_by_role("button", name="Dark").click()
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 21, 19)"
