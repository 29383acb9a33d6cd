"""What brokers tell over HTTP: where segments begin (their directory tells, too), their event loop, their clients."""

from __future__ import annotations

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect

from browser.looks import problems
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess

pytestmark = pytest.mark.slow

RECORDS = 40


@pytest.fixture(scope="module")
def telling(tmp_path_factory):
    """A broker that tells its segments, with a log of several."""
    (port,) = free_ports(1)
    settings = {"ottla.http.listen": f"127.0.0.1:{port}", "ottla.http.debug": "true"}
    with BrokerProcess(tmp_path_factory.mktemp("telling") / "data", settings=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {"segment.bytes": str(1 << 20)}
        admin.create_topics([NewTopic("orders", 1, 1, config=config)])["orders"].result()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        for _ in range(RECORDS):
            producer.produce("orders", b"x" * 100_000)
            producer.flush()
        yield broker


def log_page(console):
    answer = httpx.get(f"{console.url}/t/orders/log?offset=0", timeout=30)
    assert answer.status_code == 200
    return answer.text


@pytest.mark.parametrize("how", ["http", "directory"])
def test_segments_begin_where_their_files_say(telling, start_console, how):
    files = sorted(path.name for path in telling.data.rglob("orders-0/*.log"))
    assert len(files) > 2
    more = () if how == "http" else ("--data", str(telling.data))
    text = log_page(start_console("--bootstrap-server", telling.bootstrap, *more))
    assert f"in {len(files)} segments" in text
    # A page shows a megabyte of batches: the first segment, and where the second begins.
    for file in files[:1]:
        assert f"{file}</span> begins" in text


def test_a_broker_tells_of_its_loop_and_its_clients(telling, start_console, open_page):
    console = start_console("--bootstrap-server", telling.bootstrap)
    page = open_page(f"{console.url}/nodes/1/load", bypass_csp=True)
    expect(page.locator(".tile", has_text="Longest stall")).to_contain_text("ms since the start")
    expect(page.get_by_role("region", name="Connections")).to_contain_text("ottla")
    expect(page.locator("section", has=page.get_by_role("heading", name="Stalls"))).not_to_contain_text(
        "shows them"
    )
    assert problems(page) == []


def test_a_broker_that_does_not_tell_says_so(broker, start_console, open_page):
    page = open_page(
        f"{start_console('--bootstrap-server', broker.bootstrap).url}/nodes/1/load", bypass_csp=True
    )
    expect(page.locator("main")).to_contain_text("Brokers of Ottla do with ottla.http.listen")
    assert problems(page) == []


def test_a_broker_that_does_not_tell_shows_none(broker, start_console):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result()
    text = log_page(start_console("--bootstrap-server", broker.bootstrap))
    assert "segment" not in text
