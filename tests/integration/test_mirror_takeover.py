"""Groups that stand where MirrorMaker 2 had copied, which notes no offsets of the target."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from integration.mirror_world import (
    Content,
    commit,
    committed,
    copy_once,
    keys,
    make_topic,
    mark_as_copied,
    next_record,
    produce,
    records,
    transactions,
    write_file,
)
from ottla.cli.main import main
from ottla.pipeline.fetching import READ_COMMITTED, READ_UNCOMMITTED
from ottla.pipeline.writer import Place

ORDERS, COPY = Place("orders", 0), Place("A.orders", 0)


@pytest.fixture
def world(start_ottla_broker):
    return start_ottla_broker("source").bootstrap, start_ottla_broker("target").bootstrap


def copied_one_by_one(source: str, target: str, isolation: int, *, twice: int = 0) -> int:
    """What a mirror of records leaves behind: no gaps, a note, and perhaps records that it wrote twice.

    Returns the offset after the last copied one.
    """
    held = records(source, "orders", isolation)[0]
    make_topic(target, "A.orders")
    write_as_they_are(target, held[: len(held) - 20] + held[len(held) - 20 - twice :])
    last = held[-1][0]
    mark_as_copied(keys(source, target), ORDERS, last)
    return last + 1


def write_as_they_are(target: str, held: Iterable[tuple[int, Content]]) -> None:
    producer = Producer({"bootstrap.servers": target, "compression.type": "zstd"})
    for _, (key, value, headers, time_ms) in held:
        producer.produce("A.orders", key=key, value=value, headers=list(headers), timestamp=time_ms)
    assert producer.flush(60) == 0


def verdict(file: str, command: str) -> int:
    return CliRunner().invoke(main, ["mirror", command, file]).exit_code


@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
def test_positions_before_the_takeover_are_counted_back(world, tmp_path, isolation):
    source, target = world
    make_topic(source, "orders")
    produce(source, "orders", 60, codec="lz4")
    transactions(source, "orders", 6, size=10)
    produce(source, "orders", 60, codec="gzip", start=500)
    end = copied_one_by_one(source, target, isolation)
    produce(source, "orders", 40, start=1000)
    places = [0, 1, 59, 60, 83, 100, 127, end - 1, end, end + 7]
    if isolation == READ_COMMITTED:
        # In an aborted transaction, which a mirror that does not know of commits copies as well.
        places.append(75)
    for place in places:
        commit(source, f"at-{place}", {ORDERS: place})
    # MirrorMaker 2 had brought one group to a place further back.
    commit(target, "at-100", {COPY: 30})
    copy_once(keys(source, target))
    held, copies = records(source, "orders")[0], records(target, "A.orders")[0]
    for place in places:
        assert next_record(copies, committed(target, f"at-{place}")[COPY]) == next_record(held, place), place
    file = str(write_file(tmp_path / "mm2.properties", keys(source, target)))
    assert (verdict(file, "verify"), verdict(file, "drill")) == (0, 0)


def test_a_position_is_not_guessed_where_records_were_written_twice(world, tmp_path):
    source, target = world
    make_topic(source, "orders")
    produce(source, "orders", 200)
    copied_one_by_one(source, target, READ_COMMITTED, twice=3)
    commit(source, "before", {ORDERS: 50})
    commit(source, "behind", {ORDERS: 185})
    commit(target, "before", {COPY: 40})
    copy_once(keys(source, target))
    assert committed(target, "before") == {COPY: 40}, "where MirrorMaker 2 had put it"
    assert committed(target, "behind") == {COPY: 188}, "counted back to less far"
    file = str(write_file(tmp_path / "mm2.properties", keys(source, target)))
    assert verdict(file, "drill") == 1


def test_a_group_in_a_gap_before_the_takeover_goes_on_with_the_first_new_record(world):
    source, target = world
    make_topic(source, "orders")
    produce(source, "orders", 30)
    transactions(source, "orders", 2, size=10)
    end = copied_one_by_one(source, target, READ_COMMITTED)
    # A transaction that MirrorMaker 2 read, and of which it copied nothing: an aborted one and markers.
    mark_as_copied(keys(source, target), ORDERS, 51)
    commit(source, "billing", {ORDERS: end + 1})
    produce(source, "orders", 10, start=1000)
    copy_once(keys(source, target))
    held, copies = records(source, "orders")[0], records(target, "A.orders")[0]
    assert next_record(copies, committed(target, "billing")[COPY]) == next_record(held, end + 1)


def test_positions_in_what_mirrormaker_copied_between_two_runs_of_ours(world):
    source, target = world
    make_topic(source, "orders")
    produce(source, "orders", 60)
    copy_once(keys(source, target))
    transactions(source, "orders", 5, size=10)
    held = records(source, "orders")[0]
    write_as_they_are(target, held[60:])
    mark_as_copied(keys(source, target), ORDERS, held[-1][0])
    places = [10, 60, 65, 71, 75, 83, 95, held[-1][0]]
    for place in places:
        commit(source, f"at-{place}", {ORDERS: place})
    copy_once(keys(source, target))
    copies = records(target, "A.orders")[0]
    for place in places:
        assert next_record(copies, committed(target, f"at-{place}")[COPY]) == next_record(held, place), place
