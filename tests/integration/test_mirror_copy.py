"""A mirror between two brokers: the same records in the same order, and groups at the same records."""

from __future__ import annotations

import pytest

from integration.mirror_world import (
    CODECS,
    assert_same_records,
    commit,
    committed,
    copy_once,
    keys,
    make_topic,
    next_record,
    produce,
    records,
    transactions,
)
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
