"""Comparing a copy with its source, and turning a flow around: the parts that need no cluster."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.mirror.comparing import Comparison, Held, match, same_record, spread
from ottla.mirror.config import FlowConfig, mirror_config
from ottla.mirror.failover import reversed_note, turned_flow
from ottla.mirror.failures import MirrorError
from ottla.mirror.ledger import Note
from ottla.mirror.runs import Run, RunMap, reversed_runs
from ottla.pipeline.writer import Place
from ottla.records.record import Record

PLACE, REMOTE = Place("orders", 0), Place("orders", 0)


def held(offset: int, value: bytes, time_ms: int = 1, *, keeps_time: bool = True) -> Held:
    return Held(Record(offset, time_ms, None, value), keeps_time)


def compare(
    ours: Iterable[Held], theirs: Iterable[Held], runs: Iterable[Run], *, compacts: bool = False
) -> Comparison:
    found = Comparison(PLACE, REMOTE)
    match(found, iter(ours), iter(theirs), RunMap(runs), compacts=compacts)
    return found


def test_records_are_paired_across_gaps() -> None:
    # A marker at offset 2 of the source: its copy has none.
    ours = [held(0, b"a"), held(1, b"b"), held(3, b"c")]
    theirs = [held(0, b"a"), held(1, b"b"), held(2, b"c")]
    found = compare(ours, theirs, [Run(0, 0, 2), Run(3, 2, 1)])
    assert (found.equal, found.differences, found.source_records, found.target_records) == (3, 0, 3, 3)


def test_a_changed_a_missing_and_a_foreign_record_differ() -> None:
    ours = [held(0, b"a"), held(1, b"b"), held(2, b"c")]
    changed = compare(ours, [held(0, b"a"), held(1, b"x"), held(2, b"c")], [Run(0, 0, 3)])
    assert (changed.equal, changed.differences) == (2, 1)
    assert changed.first_difference == "orders-0 offset 1 is not the record at offset 1 of orders-0"
    missing = compare(ours, [held(0, b"a"), held(2, b"c")], [Run(0, 0, 3)])
    assert missing.first_difference == "orders-0 offset 1 has no copy"
    foreign = compare(ours, [*ours, held(3, b"d")], [Run(0, 0, 3)])
    assert foreign.first_difference == "orders-0 offset 3 is the copy of no record"


def test_compaction_at_one_side_is_no_difference() -> None:
    ours = [held(1, b"b"), held(2, b"c")]
    theirs = [held(0, b"a"), held(2, b"c")]
    found = compare(ours, theirs, [Run(0, 0, 3)], compacts=True)
    assert (found.equal, found.compacted, found.differences) == (1, 2, 0)


def test_times_count_where_no_broker_sets_its_own() -> None:
    assert not same_record(held(0, b"a", 1), held(0, b"a", 2))
    assert same_record(held(0, b"a", 1), held(0, b"a", 2, keeps_time=False))


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 50))
def test_a_sample_lies_in_its_range_with_both_ends(start: int, length: int, count: int) -> None:
    found = spread(start, start + length, count)
    assert len(found) <= max(count, 0) and found == sorted(set(found))
    assert all(start <= offset < start + length for offset in found)
    if length and count > 1:
        assert found[0] == start and found[-1] == start + length - 1


@st.composite
def run_maps(draw: st.DrawFn) -> list[Run]:
    """Runs as copying makes them: gaps at either side between them."""
    upstream = downstream = 0
    found: list[Run] = []
    for _ in range(draw(st.integers(1, 8))):
        upstream += draw(st.integers(0, 5))
        downstream += draw(st.integers(0, 5))
        span = draw(st.integers(1, 6))
        found.append(Run(upstream, downstream, span))
        upstream, downstream = upstream + span, downstream + span
    return found


@given(run_maps())
def test_a_flow_that_is_turned_around_translates_back(runs: list[Run]) -> None:
    there, back = RunMap(runs), RunMap(reversed_runs(runs))
    for run in there:
        for number in range(run.span):
            assert back.translate(run.downstream + number) == there.translate_back(run.downstream + number)
    assert list(RunMap(reversed_runs(back))) == list(there)


def test_a_note_that_is_turned_around() -> None:
    turned = reversed_note(Note(offset=99, target=79, lane=3, open=True, topic_id="one"), "two")
    assert turned == Note(offset=79, target=99, topic_id="two")
    with pytest.raises(MirrorError, match="MirrorMaker 2"):
        reversed_note(Note(offset=99), "two")


def flow(policy: str) -> FlowConfig:
    keys = {
        "clusters": "A, B",
        "A.bootstrap.servers": "a:1",
        "B.bootstrap.servers": "b:1",
        "A->B.enabled": "true",
        "replication.policy.class": policy,
    }
    return mirror_config(keys).flow("A", "B")


def test_the_way_back_of_a_flow() -> None:
    back = turned_flow(flow("IdentityReplicationPolicy"))
    assert (back.name, back.source_settings.bootstrap) == ("B->A", (("b", 1),))
