"""Counting back: the last records of two sides are pairs, wherever each side has gaps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.mirror.earlier import Stretch, paired
from ottla.mirror.runs import RunMap

stretches = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=8)


def laid_out(drawn: list[tuple[int, int]]) -> list[Stretch]:
    found, at = [], 0
    for gap, count in drawn:
        at += gap
        found.append((at, count))
        at += count
    return found


def offsets(some: list[Stretch]) -> list[int]:
    return [first + number for first, count in some for number in range(count)]


@given(stretches, stretches)
def test_the_last_record_is_the_last_the_one_before_it_the_one_before(ours, theirs):
    mine, twins = laid_out(ours), laid_out(theirs)
    count = min(len(offsets(mine)), len(offsets(twins)))
    expected = list(zip(offsets(mine)[-count:], offsets(twins)[-count:], strict=True)) if count else []
    runs = paired(mine, twins)
    assert [(run.upstream + at, run.downstream + at) for run in runs for at in range(run.span)] == expected
    known = RunMap(runs)
    assert [known.translate(upstream) for upstream, _ in expected] == [there for _, there in expected]
