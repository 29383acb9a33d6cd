"""The console on Apache Kafka: it speaks only the protocol, so it works there, too."""

from __future__ import annotations

import json
import re

import pytest
from confluent_kafka import KafkaException, Producer
from playwright.sync_api import expect

from browser.looks import layout_problems
from browser.test_console_stories import (  # noqa: F401 - the same stories, with the broker of this module
    create,
    produce,
    test_a_link_to_a_record_opens_elsewhere_and_knows_when_it_is_gone,
    test_a_reset_is_refused_while_members_are_there,
    test_create_a_topic_and_find_its_first_record,
    test_follow_the_end_of_a_topic_filter_it_and_pause,
    test_live_leaves_aborted_transactions_out,
    test_search_by_text_and_by_condition,
    test_see_that_nobody_reads_and_reset_the_group_from_a_plan,
    test_work_by_keyboard_alone,
)
from ottla.testing.apache import ApacheKafka, java_is_here

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.skipif(not java_is_here(), reason="Apache Kafka needs a JVM and Maven"),
]

SOON = 30_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    node = ApacheKafka(tmp_path_factory.mktemp("apache"))
    node.format()
    node.start()
    yield node
    node.kill()


@pytest.fixture(scope="module")
def broker(kafka):
    """What the stories call the system under test."""
    return kafka


@pytest.fixture(scope="module")
def console(kafka, start_console):
    return start_console("--bootstrap-server", kafka.bootstrap)


def test_create_write_read_lag_and_reset(kafka, console, open_page):
    page = open_page(f"{console.url}/topics/new")
    page.get_by_label("Name").fill("orders")
    page.get_by_label("Settings").fill("")
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_role("button", name="Create the topic").click()
    expect(page.get_by_role("status").first).to_have_text("The topic orders is there.")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": "lz4"})
    for number in range(200):
        producer.produce("orders", json.dumps({"id": number}), str(number), partition=0)
    producer.flush()
    page.goto(f"{console.url}/t/orders?filter=value.id+%3E%3D+198")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.goto(f"{console.url}/t/orders/log")
    expect(page.locator("tbody")).to_contain_text("lz4")
    page.goto(f"{console.url}/t/orders/new-group")
    page.get_by_label("Name of the group").fill("billing")
    page.get_by_role("radio", name="An offset").check()
    page.get_by_role("textbox", name="Offset", exact=True).fill("50")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator("#plan tbody tr").first).to_have_text(re.compile(r"orders-0\s*none\s*50"))
    page.get_by_role("button", name="Set the offsets").click()
    page.goto(f"{console.url}/groups?q=billing")
    expect(page.locator("tbody tr")).to_contain_text("Nobody reads", timeout=SOON)
    page.goto(f"{console.url}/group/reset?id=billing")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator("#plan tbody tr").first).to_have_text(re.compile(r"orders-0\s*50\s*0\s*-50"))
    page.get_by_role("button", name="Set the offsets").click()
    expect(page.get_by_role("status").first).to_contain_text("stands at its new offsets")


def test_a_transaction_that_hangs_is_seen_and_aborted(kafka, console, open_page):
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "billing"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", "1", partition=0)
    producer.flush()
    page = open_page(f"{console.url}/transactions")
    row = page.locator("tr[data-key='billing']")
    expect(row).to_contain_text("orders-0", timeout=SOON)
    row.get_by_role("button", name="Abort").click()
    page.get_by_role("button", name="Abort it").click()
    expect(page.get_by_role("status").first).to_contain_text("aborted, and its producer is fenced")
    with pytest.raises(KafkaException):
        producer.commit_transaction()


def test_every_page_answers(console, open_page):
    page = open_page(console.url)
    paths = ("/", "/topics", "/t/orders", "/t/orders/0/1", "/t/orders/live", "/t/orders/partitions")
    more = ("/t/orders/groups", "/t/orders/settings", "/groups", "/group?id=billing", "/nodes", "/nodes/1")
    for path in (*paths, *more, "/nodes/1/settings", "/quorum", "/transactions", "/moves", "/access"):
        answer = page.goto(console.url + path)
        assert answer.status == 200, path
        assert layout_problems(page) == [], path
    page.goto(f"{console.url}/quorum")
    expect(page.locator("main")).to_contain_text("metadata.version")
