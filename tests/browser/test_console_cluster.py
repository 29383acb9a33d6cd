"""What an operator does and sees on three brokers: transactions, a move, a broker that is lost, an election."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from playwright.sync_api import expect

from browser.looks import problems
from integration.dynamic_cluster import LATE, DynamicCluster
from ottla.testing.cluster import Cluster, running_cluster
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


def test_a_broker_is_emptied_at_the_pace_that_the_plan_says(cluster, console, open_page):
    cluster.create_topic("spread", 6, replication_factor=1)
    produce(cluster, "spread", ["x" * 1000] * 600)
    page = open_page(f"{console.url}/topics?q=spread")
    expect(row(page, "spread")).to_be_visible(timeout=LONG)
    page.goto(f"{console.url}/moves")
    form = page.locator("form[action$='move.empty']")
    form.locator("select[name=broker]").select_option("2")
    form.get_by_label("MB a second at most").fill("50")
    form.get_by_role("button", name="Show the plan").click()
    expect(page.locator("#plan tbody tr")).to_have_count(2)
    expect(page.locator("#spread tbody tr").nth(1)).to_have_text(re.compile(r"Broker 2\s*2\s*0\s*2\s*0"))
    expect(page.locator(".command").last).to_contain_text("--throttle 50000000")
    page.get_by_role("button", name="Start the move").click()
    expect(page.get_by_role("status").first).to_contain_text("2 partitions are on the way.")
    expect(page.locator("main")).to_contain_text("Nothing is being moved.", timeout=LONG)
    assert all(2 not in cluster.partition("spread", number).replica_nodes for number in range(6))
    expect(page.locator("main")).to_contain_text("copy new replicas at 50.0 MB a second at most")
    page.get_by_role("button", name="Lift the throttle").click()
    expect(page.locator("#plan")).to_contain_text("spread")
    page.get_by_role("button", name="Lift it").click()
    expect(page.get_by_role("status").first).to_contain_text("Brokers copy as fast as they can.")
    expect(page.locator("[data-block=throttles]")).to_be_empty()


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
    form = page.locator("form[action$='move.topic']")
    form.locator("select[name=topic]").select_option("orders")
    form.get_by_label("To brokers").fill(str(target))
    form.get_by_role("button", name="Show the plan").click()
    expect(page.locator("#plan tbody tr")).to_have_text(re.compile(rf"orders-0\s*{home}\s*{target}"))
    # The topic may grow while a person looks at the plan.
    produce(cluster, "orders", ["x" * 1000] * 800)
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


def test_a_replica_that_lacks_records_leads_when_the_operator_says_so(cluster, console, open_page):
    first, second = [each for each in (1, 2, 3) if each != cluster.controller_id()]
    cluster.create_topic("torn", assignments=[[first, second]], configs={"min.insync.replicas": 1})
    cluster.wait_in_sync("torn")
    cluster.kill(second)
    page = open_page(f"{console.url}/nodes")
    expect(row(page, second)).to_have_class(re.compile("stale"), timeout=LONG)
    produce(cluster, "torn", ["only one has this"])
    cluster.kill(first)
    cluster.restart(second)
    page.goto(f"{console.url}/topics?q=torn")
    expect(row(page, "torn")).to_contain_text("no leader", timeout=LONG)
    page.goto(f"{console.url}/t/torn/partitions")
    page.get_by_role("button", name="Elect leaders that may lack records").click()
    expect(page.locator("#plan tbody tr")).to_have_text(re.compile(rf"0\s*{first}, {second}\s*{second}"))
    page.get_by_role("button", name="Elect, and lose records").click()
    expect(page.get_by_role("status").first).to_contain_text("1 partition of torn has a leader.")
    assert cluster.leader_of("torn") == second
    cluster.restart(first)


def test_fixed_voters_are_said_to_be_fixed(cluster, console, open_page):
    page = open_page(f"{console.url}/quorum")
    page.get_by_role("button", name="Remove voter 1").click()
    expect(page.get_by_role("alert")).to_contain_text("controller.quorum.voters (kraft.version 0)")
    expect(page.get_by_role("button", name="Remove the voter")).to_be_disabled()


def test_a_controller_gets_a_vote_and_loses_it(tmp_path, start_console, open_page):
    with DynamicCluster(tmp_path) as dynamic:
        page = open_page(
            f"{start_console('--bootstrap-server', dynamic.bootstrap).url}/quorum", bypass_csp=True
        )
        expect(row(page, LATE)).to_contain_text("observer", timeout=LONG)
        page.reload()
        form = page.locator("form[action$='quorum.add']")
        form.locator("select").select_option(str(LATE))
        form.get_by_label("Its address").fill(str(dynamic.plans[LATE].controller))
        form.get_by_role("button").click()
        expect(page.locator("#plan tbody tr")).to_have_text(re.compile(r"1, 2\s*1, 2, 3"))
        page.get_by_role("button", name="Add the voter").click()
        expect(page.get_by_role("status").first).to_contain_text(f"Node {LATE} votes from now on.")
        expect(row(page, LATE)).to_contain_text("voter", timeout=LONG)
        assert problems(page) == []
        page.get_by_role("button", name=f"Remove voter {LATE}").click()
        expect(page.locator("#plan tbody tr")).to_have_text(re.compile(r"1, 2, 3\s*1, 2$"))
        page.get_by_role("button", name="Remove the voter").click()
        expect(page.get_by_role("status").first).to_contain_text(f"Node {LATE} votes no more.")
        expect(row(page, LATE)).to_contain_text("observer", timeout=LONG)


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    """Two brokers that are not fenced for a long time, the first with two directories, and a controller."""
    settings = {"broker.session.timeout.ms": 600_000}
    cluster = Cluster(tmp_path_factory.mktemp("patient"), n=2, controllers=1, settings=settings)
    plan = cluster.plans[1]
    dirs = {"log.dirs": f"{plan.data}/one,{plan.data}/two", "metadata.log.dir": f"{plan.data}/one"}
    cluster.plans[1] = replace(plan, properties={**plan.properties, **dirs})
    with cluster:
        yield cluster


def test_a_replica_moves_to_another_directory(patient, start_console, open_page):
    patient.create_topic("heavy", assignments=[[1]])
    produce(patient, "heavy", ["x" * 1000] * 50)
    page = open_page(f"{start_console('--bootstrap-server', patient.bootstrap).url}/nodes/1")
    place = row(page, "heavy-0").locator("td").nth(1)
    expect(place).to_contain_text("/", timeout=LONG)
    here = place.inner_text().strip()
    there = f"{patient.plans[1].data}/{'two' if here.endswith('one') else 'one'}"
    form = page.locator("form[action$='replica.directory']")
    form.locator("select[name=replica]").select_option("0:heavy")
    form.locator("select[name=path]").select_option(there)
    form.get_by_role("button").click()
    expect(page.locator("#plan tbody tr")).to_contain_text(there)
    page.get_by_role("button", name="Start the move").click()
    expect(page.get_by_role("status").first).to_contain_text(f"heavy-0 moves to {there}.")
    expect(place).to_have_text(there, timeout=LONG)


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
