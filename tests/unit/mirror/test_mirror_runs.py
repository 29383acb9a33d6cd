"""The map of runs: translation of every offset against a model of two logs with gaps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.mirror.runs import Run, RunMap

# Steps of a model log: a record that is copied, an offset that only the source has (a marker, an aborted or removed
# record), and one that only the target has (the marker of a takeover).
STEPS = st.lists(st.sampled_from(["record", "record", "record", "source", "target"]), max_size=80)


def copied(steps: list[str], first: int) -> tuple[RunMap, list[tuple[int, int]], int, int]:
    """The map, the pairs of offsets of all records, and the two ends."""
    upstream, downstream = first, 0
    runs, pairs = RunMap([Run(first, 0, 0)]), []
    for step in steps:
        if step == "record":
            runs.add(upstream, downstream, 1)
            pairs.append((upstream, downstream))
        upstream += step != "target"
        downstream += step != "source"
    return runs, pairs, upstream, downstream


def next_at(pairs: list[tuple[int, int]], offset: int, side: int) -> tuple[int, int] | None:
    return next((pair for pair in pairs if pair[side] >= offset), None)


@settings(deadline=None)
@given(STEPS, st.integers(0, 1000))
def test_every_offset_is_translated_to_the_next_record(steps, first):
    runs, pairs, end, _ = copied(steps, first)
    for offset in range(max(0, first - 2), end + 2):
        translated = runs.translate(offset)
        assert translated is not None
        assert next_at(pairs, translated, 1) == next_at(pairs, offset, 0)


@settings(deadline=None)
@given(STEPS)
def test_the_way_back_gives_the_next_record_too(steps):
    runs, pairs, _, end = copied(steps, 5)
    for offset in range(end + 2):
        back = runs.translate_back(offset)
        assert back is not None
        assert next_at(pairs, back, 0) == next_at(pairs, offset, 1)


@settings(deadline=None)
@given(STEPS, st.lists(st.integers(0, 79), max_size=4))
def test_what_was_written_in_parts_is_read_back_whole(steps, cuts):
    """Runs are stored after each cycle by their first offset: a run that grew replaces its earlier record."""
    upstream, downstream, stored = 0, 0, {}
    runs = RunMap()
    for number, step in enumerate(steps):
        if step == "record":
            runs.add(upstream, downstream, 1)
        upstream += step != "target"
        downstream += step != "source"
        if number in cuts:
            stored |= {run.upstream: run for run in runs.take_changed()}
    stored |= {run.upstream: run for run in runs.take_changed()}
    assert list(RunMap(stored.values())) == list(runs)
    assert runs.take_changed() == []


def test_a_log_without_gaps_is_one_run():
    runs = RunMap()
    for first in range(0, 1000, 10):
        runs.add(first, first, 10)
    assert list(runs) == [Run(0, 0, 1000)]


def test_what_is_known_already_changes_nothing():
    runs = RunMap([Run(0, 0, 10), Run(12, 10, 5)])
    runs.add(12, 10, 3)
    runs.add(14, 12, 5)
    assert list(runs) == [Run(0, 0, 10), Run(12, 10, 7)]


def test_runs_below_the_log_start_are_dropped_but_for_the_last():
    runs = RunMap([Run(0, 0, 10), Run(12, 10, 5), Run(20, 15, 5)])
    assert runs.drop_below(18) == [Run(0, 0, 10)], "offsets 18 and 19 are after the second run"
    assert runs.drop_below(100) == [Run(12, 10, 5)]
    runs.add(25, 20, 1)
    assert runs.take_changed() == [Run(20, 15, 6)]
