"""Limits and splits of the reader: no offset is lost or read twice, whatever the sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the pipeline needs Spark's libraries: make setup-spark")

from ottla.admin.cluster import Cluster
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.fetching import OffsetRange
from ottla.pipeline.reader_offsets import OffsetPlanner, from_json, split, to_json
from ottla.pipeline.reader_options import parse_options
from ottla.pipeline.writer import Place

places = st.builds(Place, st.sampled_from("abc"), st.integers(0, 5))
sizes = st.dictionaries(places, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=8)


def planner(**options: str) -> OffsetPlanner:
    base = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a,b,c"}
    parsed = parse_options({**base, **options}, streaming=True)
    return OffsetPlanner(parsed, Cluster(parsed.settings))


@given(sizes, st.integers(1, 3000))
def test_a_limit_is_kept_and_every_batch_gets_on(given_sizes, most) -> None:
    start = {place: begin for place, (begin, _) in given_sizes.items()}
    end = {place: begin + size for place, (begin, size) in given_sizes.items()}
    limited = planner().limited(start, end, most)
    assert set(limited) == set(end)
    assert all(start[place] <= limited[place] <= end[place] for place in end)
    available = sum(end.values()) - sum(start.values())
    assert sum(limited.values()) - sum(start.values()) == min(available, most)
    assert planner().available(start, end) == available


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 1000)), max_size=6),
    st.integers(0, 20),
    st.integers(0, 200),
)
def test_pieces_cover_their_ranges(starts, least, most) -> None:
    ranges = [OffsetRange("a", number, start, start + size) for number, (start, size) in enumerate(starts)]
    pieces = split(ranges, least, most)
    covered = [(one.partition, offset) for one in pieces for offset in range(one.start, one.end)]
    assert covered == [(one.partition, offset) for one in ranges for offset in range(one.start, one.end)]
    assert all(one.start < one.end for one in pieces)
    if most:
        assert all(one.end - one.start <= most for one in pieces)


def test_a_large_partition_is_cut_into_more_pieces_than_a_small_one() -> None:
    pieces = split([OffsetRange("a", 0, 0, 900), OffsetRange("a", 1, 0, 100)], 10, 0)
    assert [one.partition for one in pieces].count(0) == 9
    assert len(pieces) == 10


@given(st.dictionaries(places, st.integers(0, 2**62)))
def test_offsets_come_back_from_a_checkpoint(offsets) -> None:
    assert from_json(to_json(offsets)) == offsets


def test_lost_records_are_an_error_unless_asked_otherwise() -> None:
    here, gone = Place("a", 0), Place("a", 1)
    with pytest.raises(
        PipelineError, match=r"a-0 ends at offset 5, and the read had come to 9.*failOnDataLoss"
    ):
        planner().ranges({here: 9}, {here: 5})
    with pytest.raises(PipelineError, match="a-1 does not exist any more"):
        planner().ranges({here: 1, gone: 1}, {here: 5})
    calm = planner(failOnDataLoss="false")
    assert calm.ranges({here: 9, gone: 3}, {here: 5}) == []
    assert calm.ranges({here: 1, gone: 3}, {here: 5}) == [OffsetRange("a", 0, 1, 5)]
