"""What an operator does and sees on three brokers: transactions, a move, a broker that is lost, an election."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from playwright.sync_api import expect

from ottla.testing.cluster import running_cluster
from ottla.wire.messages import AlterPartitionReassignmentsRequest

pytestmark = pytest.mark.slow

LONG = 90_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running_cluster(3, data=tmp_path_factory.mktemp("nodes")) as running:
        yield running


@pytest.fixture(scope="module")
def console(cluster, start_console):
    return start_console("--bootstrap-server", cluster.bootstrap)


def produce(cluster, topic, values):
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in values:
        producer.produce(topic, value)
    producer.flush()


def throttle(cluster, bytes_per_s):
    """Let followers copy the topic `orders` at this rate only."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    set_ = AlterConfigOpType.SET
    entries = [
        ConfigEntry("follower.replication.throttled.rate", str(bytes_per_s), incremental_operation=set_)
    ]
    resources = [
        ConfigResource(ResourceType.BROKER, str(each), incremental_configs=entries) for each in (1, 2, 3)
    ]
    replicas = [ConfigEntry("follower.replication.throttled.replicas", "*", incremental_operation=set_)]
    resources.append(ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=replicas))
    for each in resources:  # librdkafka takes one broker a call
        for done in admin.incremental_alter_configs([each]).values():
            done.result()


def move(cluster, topic, replicas):
    kind = AlterPartitionReassignmentsRequest
    partition = kind.ReassignablePartition(partition_index=0, replicas=replicas)
    request = kind(timeout_ms=30_000, topics=[kind.ReassignableTopic(name=topic, partitions=[partition])])
    answer = cluster.ask(request, 0, timeout_s=60)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)


def row(page, key):
    return page.locator(f"tr[data-key='{key}']")


def test_a_transaction_that_hangs_is_seen_and_aborted_and_its_producer_is_fenced(cluster, console, open_page):
    cluster.create_topic("payments", 1, replication_factor=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "billing"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", "1")
    producer.flush()
    page = open_page(f"{console.url}/transactions")
    expect(row(page, "billing")).to_contain_text("payments-0", timeout=LONG)
    row(page, "billing").get_by_role("button", name="Abort").click()
    expect(page.locator("#plan")).to_contain_text("payments-0")
    page.get_by_role("button", name="Abort it").click()
    expect(page.get_by_role("status").first).to_contain_text("aborted, and its producer is fenced")
    expect(row(page, "billing")).to_contain_text(re.compile("CompleteAbort|Empty"), timeout=LONG)
    with pytest.raises(KafkaException):
        producer.commit_transaction()


def test_a_move_is_planned_and_watched_until_it_ends(cluster, console, open_page):
    cluster.create_topic("orders", 1, replication_factor=1)
    produce(cluster, "orders", ["x" * 1000] * 8000)
    home = cluster.leader_of("orders")
    target = next(each for each in (3, 2, 1) if each not in (home, cluster.controller_id()))
    page = open_page(f"{console.url}/topics?q=orders")
    expect(row(page, "orders")).to_be_visible(timeout=LONG)
    page.goto(f"{console.url}/moves")
    page.locator("select[name=topic]").select_option("orders")
    page.get_by_label("To brokers").fill(str(target))
    page.get_by_role("button", name="Show the plan").click()
    expect(page.locator("#plan tbody tr")).to_have_text(re.compile(rf"orders-0\s*{home}\s*{target}"))
    throttle(cluster, 1)
    page.get_by_role("button", name="Start the move").click()
    expect(row(page, "orders-0")).to_contain_text(str(target), timeout=LONG)
    throttle(cluster, 1 << 30)
    expect(page.locator("main")).to_contain_text("Nothing is being moved.", timeout=LONG)
    assert cluster.partition("orders", 0).replica_nodes == [target]


def test_the_first_replica_leads_again_after_an_election(cluster, console, open_page):
    cluster.create_topic("led", 1, replication_factor=3)
    leader = cluster.leader_of("led")
    first = next(each for each in (1, 2, 3) if each != leader)
    cluster.wait_in_sync("led")
    move(cluster, "led", [first, *(each for each in (1, 2, 3) if each != first)])
    page = open_page(f"{console.url}/topics?q=led")
    expect(row(page, "led")).to_be_visible(timeout=LONG)
    page.goto(f"{console.url}/t/led/partitions")
    expect(row(page, "0")).to_contain_text("not preferred", timeout=LONG)
    page.get_by_role("button", name="Let first replicas lead").click()
    expect(page.locator("#plan tbody tr")).to_have_text(re.compile(rf"0\s*{leader}\s*{first}"))
    page.get_by_role("button", name="Elect").click()
    expect(page.locator("main")).to_contain_text("The first replicas of led lead.")
    expect(row(page, "0")).not_to_contain_text("not preferred", timeout=LONG)
    assert cluster.leader_of("led") == first


def test_a_broker_that_is_lost_greys_out_its_own_rows_only_and_the_quorum_elects(cluster, console, open_page):
    page = open_page(f"{console.url}/quorum")
    lost = cluster.controller_id()
    leader = page.locator(".tile", has_text="Leader").locator(".value")
    expect(leader).to_have_text(str(lost), timeout=LONG)
    cluster.create_topic("there", assignments=[[lost]])
    produce(cluster, "there", ["x"] * 5)
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "billing"})
    reader.commit(offsets=[TopicPartition("there", 0, 1)], asynchronous=False)
    reader.close()
    cluster.kill(lost)
    expect(leader).not_to_have_text(str(lost), timeout=LONG)
    page.goto(f"{console.url}/nodes")
    expect(row(page, lost)).to_have_class(re.compile("stale"), timeout=LONG)
    for other in {1, 2, 3} - {lost}:
        expect(row(page, other)).not_to_have_class(re.compile("stale"))

    # A group that reads from the lost broker only shows why it stands.
    page.goto(f"{console.url}/group?id=billing")
    expect(page.locator(".findings")).to_contain_text("1 of its partitions has no leader: there-0.")

    # A move to the lost broker waits for it, and is shown meanwhile.
    cluster.create_topic("left", assignments=[[next(iter({1, 2, 3} - {lost}))]])
    move(cluster, "left", [lost])
    page.goto(f"{console.url}/moves")
    expect(row(page, "left-0")).to_contain_text(str(lost))
    cluster.restart(lost)
    expect(page.locator("main")).to_contain_text("Nothing is being moved.", timeout=LONG)
    page.goto(f"{console.url}/nodes")
    expect(row(page, lost)).not_to_have_class(re.compile("stale"), timeout=LONG)


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    """Two brokers that are not fenced for a long time, and a controller."""
    settings = {"broker.session.timeout.ms": 600_000}
    with running_cluster(
        2, data=tmp_path_factory.mktemp("patient"), controllers=1, settings=settings
    ) as running:
        yield running


def test_a_broker_that_hangs_is_named_and_the_rest_of_every_page_is_there(patient, start_console, open_page):
    patient.create_topic("split", assignments=[[1], [2]])
    producer = Producer({"bootstrap.servers": patient.bootstrap})
    for number in (0, 1):
        producer.produce("split", f"record of {number}", partition=number)
    producer.flush()
    console = start_console("--bootstrap-server", patient.bootstrap)
    page = open_page(f"{console.url}/t/split")
    expect(page.locator("tbody tr")).to_have_count(2, timeout=LONG)
    patient.pause(2)
    try:
        page.goto(f"{console.url}/topics")
        expect(page.locator(".pill.bad")).to_have_text("Broker 2 hangs: no answer", timeout=LONG)
        page.goto(f"{console.url}/t/split")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.locator("tbody")).to_contain_text("record of 0")
        expect(page.locator(".note.warn")).to_contain_text("Without the partitions 1: broker 2")
        page.goto(f"{console.url}/t/split?partition=1")
        expect(page.locator("main")).to_contain_text("does not answer")
        paths = (
            "/",
            "/groups",
            "/nodes",
            "/nodes/1",
            "/nodes/1/settings",
            "/quorum",
            "/transactions",
            "/moves",
        )
        for path in (*paths, "/t/split/partitions", "/t/split/settings", "/t/split/groups"):
            assert page.goto(console.url + path).status == 200, path
            expect(page.locator(".pill.bad")).to_contain_text("Broker 2 hangs")
        page.goto(f"{console.url}/nodes")
        expect(row(page, 2)).to_have_class(re.compile("stale"), timeout=LONG)
        expect(row(page, 1)).not_to_have_class(re.compile("stale"))
    finally:
        patient.resume(2)
    page.goto(f"{console.url}/topics")
    expect(page.locator(".pill.bad")).to_have_count(0, timeout=LONG)
    page.goto(f"{console.url}/t/split")
    expect(page.locator("tbody tr")).to_have_count(2)
