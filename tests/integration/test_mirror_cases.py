"""What makes copying hard: holes of compaction, the broker's times, other writers, topics that are made again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from integration.mirror_world import (
    assert_same_records,
    commit,
    committed,
    connect,
    copy_once,
    keys,
    make_topic,
    next_record,
    produce,
    records,
    write_file,
)
from ottla.admin.acls import Entry, Pattern, create_acls, describe_acls
from ottla.admin.configs import describe_configs
from ottla.admin.partitions import delete_records
from ottla.admin.topics import delete_all_of
from ottla.admin.transactions import describe_transaction
from ottla.cli.main import main
from ottla.errors import ErrorCode
from ottla.mirror.config import mirror_config
from ottla.mirror.flow import Flow
from ottla.mirror.lanes import LaneOutcome, Share
from ottla.mirror.mirror import Mirror
from ottla.mirror.runners import ThreadRunner
from ottla.pipeline.writer import Place
from ottla.records.batch import HEADER_SIZE, iter_batches
from ottla.wire.enums import AclOperation, AclPermissionType, ConfigResourceType, PatternType, ResourceType

DEADLINE_S = 60.0


@pytest.fixture
def world(start_ottla_broker):
    source = start_ottla_broker("source", {"log.cleaner.backoff.ms": 50})
    return source.bootstrap, start_ottla_broker("target").bootstrap


def stopped(given: dict[str, str]) -> list[str]:
    """What a mirror says that cannot go on."""
    work = Mirror(mirror_config(given), once=True)
    work.start()
    assert work.wait(120)
    return work.failures


@pytest.mark.slow
def test_holes_of_compaction_are_closed_and_groups_still_point_to_the_same_record(world):
    source, target = world
    make_topic(
        source,
        "state",
        cleanup_policy="compact",
        internal_segment_bytes="20000",
        min_cleanable_dirty_ratio="0.01",
    )
    producer = Producer({"bootstrap.servers": source, "compression.type": "lz4", "batch.num.messages": 100})
    for number in range(3000):
        producer.produce(
            "state",
            key=b"key-%d" % (number % 700 if number % 3 else 5000 + number),
            value=b"v%d" % number * 10,
        )
    assert producer.flush(60) == 0
    deadline = time.monotonic() + DEADLINE_S
    while not 0 < len(held := records(source, "state")[0]) < 2600:
        assert time.monotonic() < deadline, "the source was not compacted"
        threading.Event().wait(0.1)
    # The cleaner may go on while the mirror works: what it has not copied yet may go away, the rest may not.
    positions = range(0, 3001, 97)
    for offset in positions:
        commit(source, f"group-{offset}", {Place("state", 0): offset})
    work = copy_once(keys(source, target, sync__topic__configs__enabled="false"))
    (state,) = work.drivers[0].flow.partitions.values()
    assert state.rebuilt > 0, "batches with holes were built again"
    copies = records(target, "A.state")[0]
    contents = [one for _, one in held]
    assert all(one in contents for _, one in copies[:200])
    last = {one[0]: one for _, one in held}
    assert {one[0]: one for _, one in copies} == last
    for offset in positions:
        position = committed(target, f"group-{offset}")[Place("A.state", 0)]
        expected = next_record(held, offset)
        if expected is not None and expected in [one for _, one in copies]:
            assert next_record(copies, position) == expected


def test_times_of_the_broker_are_kept(world):
    source, target = world
    make_topic(source, "timed", message_timestamp_type="LogAppendTime")
    produce(source, "timed", 100, codec="gzip")
    copy_once(keys(source, target))
    assert records(source, "timed") == records(target, "A.timed")


def test_batches_that_the_target_finds_too_large_are_split(world):
    source, target = world
    make_topic(source, "large")
    producer = Producer({"bootstrap.servers": source, "linger.ms": 200, "batch.size": 900_000})
    for number in range(40):
        producer.produce("large", value=b"%d" % number * 4000)
    producer.flush()
    make_topic(target, "A.large", max_message_bytes="60000")
    copy_once(keys(source, target, sync__topic__configs__enabled="false"))
    assert assert_same_records(source, "large", target, "A.large") == 40


def test_records_of_others_at_the_target_stop_a_partition_or_are_passed_over(world):
    source, target = world
    make_topic(source, "orders")
    make_topic(source, "fine")
    produce(source, "orders", 50)
    copy_once(keys(source, target))
    produce(target, "A.orders", 5, start=7000)
    produce(source, "orders", 50, start=100)
    produce(source, "fine", 10)
    (failure,) = stopped(keys(source, target))
    assert "A.orders-0 holds at offset 50 another record than orders-0 at offset 50" in failure
    assert assert_same_records(source, "fine", target, "A.fine") == 10, "other partitions go on"
    copy_once(keys(source, target, on__foreign__records="resume"))
    theirs = [one for _, one in records(source, "orders")[0]]
    ours = [one for _, one in records(target, "A.orders")[0]]
    assert ours == theirs[:50] + ours[50:55] + theirs[50:]
    copy_once(keys(source, target, on__foreign__records="resume"))
    assert len(records(target, "A.orders")[0]) == 105, "nothing is copied twice"


def test_a_topic_that_was_made_again_stops_until_its_copy_is_deleted(world, tmp_path):
    source, target = world
    make_topic(source, "orders")
    produce(source, "orders", 50)
    copy_once(keys(source, target))
    cluster = connect(source)
    delete_all_of(cluster, ["orders"])
    cluster.close()
    make_topic(source, "orders")
    produce(source, "orders", 20, start=500)
    commit(source, "billing", {Place("orders", 0): 5})
    commit(target, "billing", {Place("A.orders", 0): 40})
    (failure,) = stopped(keys(source, target))
    assert "the topic was deleted and created again at the source" in failure
    assert committed(target, "billing") == {Place("A.orders", 0): 40}, "5 is a place in another topic"
    file = str(write_file(tmp_path / "mm2.properties", keys(source, target)))
    for words, code, said in (
        (["status"], 0, "1 of 1 partitions stopped"),
        (["verify", "--full"], 1, "1 differences"),
        (["drill"], 1, "failed: move no clients now"),
    ):
        done = CliRunner().invoke(main, ["mirror", words[0], file, *words[1:]])
        assert done.exit_code == code, done.output
        assert said in done.output and "deleted and created again at the source" in done.output
    cluster = connect(target)
    delete_all_of(cluster, ["A.orders"])
    cluster.close()
    copy_once(keys(source, target))
    assert records(source, "orders") == records(target, "A.orders")


def test_why_a_partition_stopped_is_known_when_the_mirror_has_ended(world, tmp_path):
    source, target = world
    make_topic(source, "orders")
    produce(source, "orders", 50)
    copy_once(keys(source, target))
    produce(target, "A.orders", 5, start=9000)
    produce(source, "orders", 50, start=1000)
    assert len(stopped(keys(source, target))) == 1
    file = str(write_file(tmp_path / "mm2.properties", keys(source, target)))
    status = CliRunner().invoke(main, ["mirror", "status", file, "--json"])
    (flow,) = json.loads(status.output)
    (partition,) = flow["partitions"]
    assert "others wrote there" in partition["stopped"]
    copy_once(keys(source, target, on__foreign__records="resume"))
    status = CliRunner().invoke(main, ["mirror", "status", file])
    assert "stopped" not in status.output


@pytest.mark.parametrize("clean", [True, False])
def test_a_copy_that_was_deleted_is_copied_afresh(world, tmp_path, clean):
    source, target = world
    make_topic(source, "orders", 2)
    produce(source, "orders", 50)
    config = mirror_config(keys(source, target))
    runner = ThreadRunner()
    flow = Flow(config.flow("A", "B"), runner)
    flow.prepare()
    flow.cycle(threading.Event(), flow.ends())
    flow.close(clean=clean)
    runner.close()
    cluster = connect(target)
    delete_all_of(cluster, ["A.orders"])
    cluster.close()
    file = str(write_file(tmp_path / "mm2.properties", keys(source, target)))
    verified = CliRunner().invoke(main, ["mirror", "verify", file])
    assert verified.exit_code == 1 and "missing or empty at the target" in verified.output
    produce(source, "orders", 30, start=1000)
    copy_once(config)
    assert records(source, "orders") == records(target, "A.orders")
    assert CliRunner().invoke(main, ["mirror", "verify", file, "--full"]).exit_code == 0


def test_names_that_nobody_knows_are_refused(world, tmp_path):
    source, target = world
    make_topic(source, "orders")
    produce(source, "orders", 5)
    file = str(write_file(tmp_path / "mm2.properties", keys(source, target)))

    def refused(*words: str) -> str:
        done = CliRunner().invoke(main, ["mirror", words[0], file, *words[1:]])
        assert done.exit_code == 1
        return done.output

    assert "has not run yet" in refused("offsets", "--group", "billing")
    copy_once(keys(source, target))
    for command in ("offsets", "drill"):
        assert "group billing has no position in a mirrored topic" in refused(command, "--group", "billing")
    for command in ("plan", "status", "verify", "drill", "run"):
        assert "no enabled flow goes into A, which --clusters names" in refused(command, "--clusters", "A")


def test_what_the_source_deleted_is_skipped(world):
    source, target = world
    make_topic(source, "orders")
    produce(source, "orders", 100)
    cluster = connect(source)
    delete_records(cluster, {("orders", 0): 33})
    copy_once(keys(source, target))
    assert assert_same_records(source, "orders", target, "A.orders") == 67
    produce(source, "orders", 100, start=1000)
    delete_records(cluster, {("orders", 0): 150})
    commit(source, "late", {Place("orders", 0): 160})
    copy_once(keys(source, target))
    held, copies = records(source, "orders")[0], records(target, "A.orders")[0]
    assert [one for _, one in copies][67:] == [one for _, one in held]
    assert next_record(copies, committed(target, "late")[Place("A.orders", 0)]) == next_record(held, 160)
    cluster.close()


def test_settings_follow_the_source(world):
    source, target = world
    make_topic(source, "orders", retention_ms="86400000", min_insync_replicas="1")
    copy_once(keys(source, target))
    cluster = connect(target)
    resource = (ConfigResourceType.TOPIC, "A.orders")
    entries = {one.name: one for one in describe_configs(cluster, [resource])[resource]}
    assert entries["retention.ms"].value == "86400000"
    assert entries["min.insync.replicas"].source != 1, "left to the target"
    cluster.close()


def test_plan_status_and_offsets(world, tmp_path):
    source, target = world
    make_topic(source, "orders", 2)
    produce(source, "orders", 100)
    commit(source, "billing", {Place("orders", 0): 7})
    file = str(write_file(tmp_path / "mm2.properties", keys(source, target)))
    run = CliRunner().invoke

    def lines(*words: str) -> str:
        done = run(main, ["mirror", words[0], file, *words[1:]])
        assert done.exit_code == 0, done.output
        return done.output

    assert (
        lines("plan")
        == "A->B: 1 topics, 2 partitions\n  orders -> A.orders  2 partitions  create\n  groups: billing\n"
    )
    assert lines("status").startswith("A->B: lag 100 records")
    assert "A.orders" not in {one.name for one in connect(target).metadata(None).topics}, "nothing was made"
    copy_once(keys(source, target))
    assert lines("status").startswith("A->B: lag 0 records, 0.0 s")
    assert "there" in lines("plan")
    (flow,) = json.loads(lines("offsets", "--group", "billing", "--json"))
    (position,) = flow["positions"]
    assert (position["offset"], position["remoteOffset"], position["committed"]) == (7, 7, 7)
    refused = run(main, ["mirror", "status", str(tmp_path / "none")])
    assert refused.exit_code == 1
    assert "cannot be read: No such file" in refused.output


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_partition_that_begins_late_gets_the_same_offsets(world, policy):
    source, target = world
    make_topic(source, "orders", 2, cleanup_policy=policy)
    producer = Producer({"bootstrap.servers": source, "linger.ms": 5})
    for number in range(200):
        producer.produce("orders", partition=0, key=b"%d" % number, value=b"v%d" % number)
    assert producer.flush(60) == 0
    cluster = connect(source)
    delete_records(cluster, {("orders", 0): 123})
    cluster.close()
    given = keys(source, target, offsets="identical")
    copy_once(given)
    assert records(source, "orders") == records(target, "A.orders")
    assert records(target, "A.orders")[0][0][0] == 123, "the filler is deleted"
    for number in range(50):
        producer.produce("orders", partition=number % 2, key=b"%d" % number, value=b"w%d" % number)
    assert producer.flush(60) == 0
    copy_once(given)
    assert records(source, "orders") == records(target, "A.orders")


def test_readers_of_a_topic_may_read_its_copy(start_ottla_broker):
    secured = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    source = start_ottla_broker("source", secured).bootstrap
    target = start_ottla_broker("target", secured).bootstrap
    make_topic(source, "orders")
    reads = Entry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
    writes = reads._replace(operation=AclOperation.WRITE)
    pattern = Pattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
    cluster = connect(source)
    for result in create_acls(cluster, [(pattern, reads), (pattern, writes)]).results:
        assert not result.error_code, result.error_message
    cluster.close()
    copy_once(keys(source, target))
    cluster = connect(target)
    assert describe_acls(cluster) == {pattern._replace(name="A.orders"): [reads]}
    cluster.close()


def test_ids_are_taken_again_before_coordinators_forget_them(world, monkeypatch):
    source, target = world
    make_topic(source, "orders", 2)
    produce(source, "orders", 100)
    monkeypatch.setattr("ottla.mirror.flow._RENEW_S", 0.0)
    for more in range(3):
        copy_once(keys(source, target))
        produce(source, "orders", 20, start=1000 * (more + 1))
    copy_once(keys(source, target))
    assert assert_same_records(source, "orders", target, "A.orders") == 160
    assert records(source, "orders") == records(target, "A.orders")
    cluster = connect(target)
    epochs = [
        describe_transaction(cluster, f"ottla-mirror-A-B-{one}")[1].producer_epoch for one in ("driver", "0")
    ]
    cluster.close()
    assert min(epochs) >= 7, epochs


def test_a_damaged_batch_stops_its_partition_until_it_is_deleted(start_ottla_broker):
    broker, target = start_ottla_broker("source"), start_ottla_broker("target").bootstrap
    source = broker.bootstrap
    make_topic(source, "orders")
    make_topic(source, "fine")
    produce(source, "fine", 10)
    for number in range(4):
        produce(source, "orders", 10, codec="lz4", start=100 * number)
    (segment,) = broker.data.rglob("orders-0/*.log")
    with segment.open("r+b") as log:
        places = [at for at, header in iter_batches(segment.read_bytes()) if header.base_offset == 20]
        log.seek(places[0] + HEADER_SIZE + 20)
        byte = log.read(1)[0]
        log.seek(places[0] + HEADER_SIZE + 20)
        log.write(bytes([byte ^ 1]))
    (failure,) = stopped(keys(source, target))
    assert "orders-0 cannot be read from offset 20 on" in failure
    assert assert_same_records(source, "fine", target, "A.fine") == 10, "other partitions go on"
    assert len(records(target, "A.orders")[0]) == 20, "what lies before it is copied"
    cluster = connect(source)
    delete_records(cluster, {("orders", 0): 30})
    cluster.close()
    copy_once(keys(source, target))
    assert records(target, "A.orders")[0][20:] == [(at - 10, one) for at, one in records(source, "orders")[0]]


class FailingRunner(ThreadRunner):
    """Lanes that end in the middle, before they have copied anything."""

    def run(self, shares: Sequence[Share], ended: threading.Event) -> list[LaneOutcome]:
        return [
            LaneOutcome(share.lane, failure="it is away", code=ErrorCode.UNKNOWN_SERVER_ERROR)
            for share in shares
        ]


class Waits(threading.Event):
    """Notes how long it is waited for, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.times_s: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.times_s.append(timeout or 0.0)
        return False


def test_a_lane_that_always_fails_is_taken_over_less_and_less_often(world):
    source, target = world
    make_topic(source, "orders")
    runner, ended = FailingRunner(), Waits()
    flow = Flow(mirror_config(keys(source, target)).flow("A", "B"), runner)
    flow.prepare()
    for _ in range(5):
        flow.cycle(ended)
    flow.close()
    runner.close()
    assert len(ended.times_s) == 5
    assert ended.times_s[4] > 4 * ended.times_s[0] > 0
