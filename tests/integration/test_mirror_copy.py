"""A mirror between two brokers: the same records in the same order, and groups at the same records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from integration.mirror_world import (
    CODECS,
    Content,
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
    transactions,
)
from ottla.mirror import lanes
from ottla.mirror.config import mirror_config
from ottla.mirror.flow import Flow
from ottla.mirror.formats import Heartbeat
from ottla.mirror.mirror import Mirror
from ottla.mirror.runners import ThreadRunner
from ottla.pipeline.writer import Place


@pytest.fixture
def world(start_ottla_broker):
    source, target = start_ottla_broker("source"), start_ottla_broker("target")
    return source.bootstrap, target.bootstrap


def test_records_of_all_codecs_arrive_with_equal_offsets(world):
    source, target = world
    make_topic(source, "orders", 2)
    for number, codec in enumerate(CODECS):
        produce(source, "orders", 120, codec=codec, start=1000 * number)
    work = copy_once(keys(source, target))
    assert assert_same_records(source, "orders", target, "A.orders") == 600
    assert records(source, "orders") == records(target, "A.orders"), "no gaps at the source: equal offsets"
    (flow,) = [one.flow for one in work.drivers]
    assert sum(state.rebuilt for state in flow.partitions.values()) == 0, "no batch was opened"
    produce(source, "orders", 50, start=9000)
    copy_once(keys(source, target))
    assert records(source, "orders") == records(target, "A.orders"), "a second run goes on, without a marker"


def test_a_mirror_in_one_process_has_no_more_lanes_than_pay(world):
    source, target = world
    make_topic(source, "orders", 3)
    produce(source, "orders", 30)
    config = mirror_config(keys(source, target, tasks__max="3")).flow("A", "B")
    runner = ThreadRunner(most_lanes=2)
    flow = Flow(config, runner)
    try:
        flow.prepare()
        flow.cycle(threading.Event(), flow.ends())
        assert {state.lane for state in flow.partitions.values()} == {0, 1}
    finally:
        flow.close()
        runner.close()
    assert assert_same_records(source, "orders", target, "A.orders") == 30
    assert ThreadRunner().most_lanes >= 1


def test_small_reads_of_a_following_mirror_are_paced_and_those_of_a_copy_are_not(world, monkeypatch):
    source, target = world
    make_topic(source, "orders")
    produce(source, "orders", 30)
    pauses: list[float] = []
    watched = SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append)
    monkeypatch.setattr(lanes, "time", watched)
    copy_once(keys(source, target))
    assert pauses == []
    produce(source, "orders", 30, start=100)
    work = Mirror(mirror_config(keys(source, target)))
    work.start()
    deadline = time.monotonic() + 120
    while not pauses:
        assert time.monotonic() < deadline and not work.failures
        threading.Event().wait(0.02)
    work.stop()
    assert assert_same_records(source, "orders", target, "A.orders") == 60


def test_aborted_transactions_stay_behind_and_groups_point_to_the_same_record(world):
    source, target = world
    make_topic(source, "orders")
    produce(source, "orders", 30)
    transactions(source, "orders", 6)
    produce(source, "orders", 30, start=500)
    held = records(source, "orders")[0]
    end = held[-1][0] + 1
    for offset in range(0, end + 1, 3):
        commit(source, f"group-{offset}", {Place("orders", 0): offset})
    copy_once(keys(source, target))
    assert assert_same_records(source, "orders", target, "A.orders") == len(held)
    copies = records(target, "A.orders")[0]
    assert [at for at, _ in copies] == list(range(len(held))), "neither markers nor aborted records"
    for offset in range(0, end + 1, 3):
        position = committed(target, f"group-{offset}")[Place("A.orders", 0)]
        assert next_record(copies, position) == next_record(held, offset)


@pytest.mark.slow
def test_a_mirror_that_follows_finds_new_topics_and_sends_heartbeats(world):
    source, target = world
    make_topic(source, "orders")
    given = keys(source, target, emit__heartbeats__enabled="true", refresh__topics__interval__seconds="1")
    work = Mirror(mirror_config(given))
    work.start()
    cluster = connect(target)

    def held(topic: str) -> list[Content]:
        if topic not in {one.name for one in cluster.metadata(None).topics}:
            return []
        return [one for part in records(target, topic).values() for _, one in part]

    def wait_for(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert not work.failures, work.failures
            assert time.monotonic() < deadline
            threading.Event().wait(0.1)

    try:
        produce(source, "orders", 20)
        wait_for(lambda: len(held("A.orders")) == 20)
        make_topic(source, "paid")
        produce(source, "paid", 10)
        wait_for(lambda: len(held("A.paid")) == 10)
        wait_for(lambda: held("heartbeats") and held("A.heartbeats"))
    finally:
        work.stop()
    for topic, flow in (("heartbeats", ("A", "B")), ("A.heartbeats", ("B", "A"))):
        key, value, _, _ = held(topic)[0]
        beat = Heartbeat.parse(key, value)
        assert (beat.source, beat.target) == flow
    cluster.close()
    assert assert_same_records(source, "paid", target, "A.paid") == 10
