"""Every page and dialog in both themes and two widths: no violation of axe's rules, nothing cut, no script error."""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import expect

from browser.looks import problems
from browser.test_console_rights import LOOKED_AT as of_rights
from browser.test_console_services import PAGES as of_services
from browser.test_console_travel import PAGES as of_travel
from ottla import KafkaAdminClient, NewTopic
from ottla.console import pages
from ottla.console.web import PAGES as WEB_PAGES
from ottla.testing.ports import free_ports

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
    "/nodes/1/load",
    "/nodes/1/settings",
    "/quorum",
    "/transactions",
    "/moves",
    "/settings",
    "/design",
    "/t/orders/access",
    "/access?who=alice&may=write&kind=topic&name=orders",
    "/nothing-is-here",
]


COMPONENTS = [
    *(
        ".crumbs",
        ".tile",
        "table",
        ".tag.bad",
        "svg.spark",
        "svg.meter",
        "svg.strip",
        ".chart",
        ".records",
        ".diff",
    ),
    *("#plan", ".fields label", "> .command", ".pill.live", ".pill.old", ".empty", "tr.stale"),
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
def test_a_page_is_accessible_and_well_laid_out(console, open_page, path):
    page = open_page(console.url + path, bypass_csp=True)
    assert problems(page) == []


@pytest.mark.parametrize("keys", ["?", "Control+k"])
def test_a_dialog_is_accessible(console, open_page, keys):
    page = open_page(f"{console.url}/topics", bypass_csp=True)
    page.keyboard.press(keys)
    expect(page.locator("dialog[open]")).to_be_visible()
    assert problems(page) == []


def test_the_rest_of_the_menu_and_a_plan_are_accessible(console, open_page):
    page = open_page(f"{console.url}/topics/new", width=390, height=844, bypass_csp=True)
    page.locator(".bar").get_by_role("button", name="More").click()
    expect(page.locator("#more")).to_be_visible()
    assert problems(page) == []
    page.keyboard.press("Escape")
    page.get_by_label("Name").fill("fresh")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator("#plan")).to_be_visible()
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 800})
    assert problems(page) == []


def test_a_cluster_that_does_not_answer_has_an_accessible_page(start_console, open_page):
    (port,) = free_ports(1)
    page = open_page(start_console("--bootstrap-server", f"127.0.0.1:{port}").url, bypass_csp=True)
    expect(page.locator("main")).to_contain_text(f"no broker answers at 127.0.0.1:{port}")
    assert problems(page) == []


def test_no_page_is_left_out():
    """The pages that these modules look at are all that there are."""
    pages.load()
    looked_at = {urlsplit(path).path for path in (*PAGES, *of_services, *of_travel, *of_rights)}
    for page in WEB_PAGES:
        if page.template:
            form = re.sub(r"\\{\w+(:\w+)?\\}", "[^/]+", re.escape(page.path))
            assert any(re.fullmatch(form, path) for path in looked_at), page.path


def test_numbers_change_while_a_person_looks(console, broker, open_page):
    page = open_page(console.url + "/topics?q=orders")
    records = page.locator("tr[data-key=orders] td").nth(4)
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
    page.keyboard.type("nodes")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()
    page.keyboard.press("Control+k")
    page.keyboard.type("topi")
    # The list is filtered a moment after the last letter.
    page.wait_for_selector("#palette li:first-child:has-text('Topics')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics")


def test_the_theme_is_chosen_on_a_narrow_screen_too(console, open_page):
    page = open_page(f"{console.url}/topics", width=390, height=844)
    page.locator(".bar").get_by_role("button", name="More").click()
    page.locator("#more").get_by_role("link", name="Settings").click()
    page.wait_for_url("**/settings*")  # a button works when its page has loaded
    page.get_by_role("group", name="Theme of the console").get_by_role("button", name="Dark").click()
    page.locator("html[data-theme=dark]").wait_for()
    page.goto(f"{console.url}/topics")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 21, 19)"


def test_the_design_page_shows_every_component(console, open_page):
    page = open_page(f"{console.root}/design")
    assert page.url == f"{console.url}/design"
    for part in COMPONENTS:
        expect(page.locator(f"main {part}").first).to_be_visible()
    page.get_by_role("button", name="Open a dialog").click()
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.context.grant_permissions(["clipboard-write"])
    page.locator("main > .command").get_by_role("button", name="Copy").click()
    expect(page.locator(".toast")).to_have_text("Copied")


def test_the_theme_is_kept(console, open_page):
    page = open_page(console.url + "/")
    page.get_by_role("button", name="Dark").click()
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 21, 19)"
