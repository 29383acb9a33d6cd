"""The tail of a target after an unclean end, compared with the source's next records."""

from __future__ import annotations

import pytest

from ottla.mirror.copying import pieces_of
from ottla.mirror.failures import PartitionStopped
from ottla.mirror.runs import Run
from ottla.mirror.tails import Tail, TailQuestion, compare, compare_compacted
from ottla.pipeline.writer import Place
from ottla.records.batch import LOG_APPEND_TIME, build_batch, read_header
from ottla.records.codecs import Compression
from ottla.records.record import Record


def batch(offsets: list[int], values: str | None = None, **more) -> bytes:
    """A batch whose records hold letters; by default those of their offsets."""
    letters = values or "".join(chr(ord("a") + offset) for offset in offsets)
    records = [Record(at, 1000, None, letter.encode()) for at, letter in zip(offsets, letters, strict=True)]
    return build_batch(records, **more)


def tail_of(source: list[bytes], target: list[bytes], *, begin: int = 0, resume: bool = False) -> Tail:
    question = TailQuestion(Place("t", 0), Place("A.t", 0), 0, 0, 1 << 20, resume)
    tail = Tail(begin, 0)
    pieces = (piece for data in source for piece in pieces_of(data, 0, read_header(data), begin, 1 << 20))
    compare(tail, question, ((data, 0, read_header(data)) for data in target), pieces)
    return tail


def test_batches_that_arrived_are_skipped():
    source = [batch([0, 1, 2]), batch([5, 6]), batch([7])]
    tail = tail_of(source, [batch([0, 1, 2]), batch([3, 4], "fg")])
    assert (tail.upstream, tail.records) == (7, 5)
    assert list(tail.runs) == [Run(0, 0, 3), Run(5, 3, 2)]


def test_a_codec_or_time_of_the_targets_own_is_no_difference():
    target = [batch([0, 1, 2], compression=Compression.ZSTD)]
    assert tail_of([batch([0, 1, 2])], target).upstream == 3
    late = [batch([0, 1, 2], timestamp_type=LOG_APPEND_TIME, append_time=99)]
    assert tail_of([batch([0, 1, 2])], late).upstream == 3


def test_a_part_of_a_batch_that_was_split():
    tail = tail_of([batch([0, 1, 2, 3])], [batch([0, 1])])
    assert (tail.upstream, list(tail.runs)) == (2, [Run(0, 0, 2)])


def test_another_record_stops_the_partition_or_is_passed_over():
    source, target = [batch([0, 1, 2])], [batch([0, 1, 2, 3], "axbc")]
    with pytest.raises(
        PartitionStopped, match=r"A\.t-0 holds at offset 1 another record than t-0 at offset 1"
    ):
        tail_of(source, target)
    tail = tail_of(source, target, resume=True)
    assert (tail.upstream, tail.records, tail.foreign) == (3, 3, 1)
    assert list(tail.runs) == [Run(0, 0, 1), Run(1, 2, 2)]


def test_records_that_the_source_has_deleted_since():
    """The target has a to d, the source has only c and later ones."""
    tail = tail_of([batch([2, 3]), batch([4])], [batch([0, 1]), batch([2, 3])], begin=2)
    assert (tail.upstream, tail.records, tail.foreign) == (4, 2, 2)
    with pytest.raises(PartitionStopped):
        tail_of([batch([2, 3, 4])], [batch([0, 1]), batch([2, 3], "cx")], begin=2)


def keyed(*records: tuple[int, str, str]) -> bytes:
    """A batch of (offset, key, value)."""
    return build_batch([Record(at, 1000, key.encode(), value.encode()) for at, key, value in records])


def compacted(source: list[bytes], target: list[bytes], *, begin: int = 0, resume: bool = False) -> Tail:
    question = TailQuestion(Place("t", 0), Place("A.t", 0), 0, 0, 1 << 20, resume, compacts=True)
    tail = Tail(begin, 0)
    pieces = (piece for data in source for piece in pieces_of(data, 0, read_header(data), begin, 1 << 20))
    compare_compacted(tail, question, ((data, 0, read_header(data)) for data in target), pieces)
    return tail


def test_records_that_the_sources_cleaner_has_removed_since():
    target = [keyed((0, "a", "1"), (1, "b", "1"), (2, "a", "2"), (3, "c", "1"))]
    source = [keyed((1, "b", "1"), (3, "c", "1"), (4, "a", "3"), (5, "d", "1"))]
    tail = compacted(source, target)
    assert (tail.upstream, tail.records, tail.foreign) == (4, 2, 2)
    assert list(tail.runs) == [Run(1, 1, 3)]


def test_records_that_the_targets_cleaner_has_removed_are_not_copied_twice():
    source = [keyed((0, "a", "1"), (1, "b", "1"), (2, "a", "2"), (3, "c", "1"))]
    target = [keyed((1, "b", "1"), (2, "a", "2"))]
    assert compacted(source, target).upstream == 3
    assert compacted(source, []).upstream == 0, "an empty tail says nothing"


def test_a_record_of_others_in_a_compacted_copy_stops_the_partition():
    source = [keyed((0, "a", "1"), (1, "b", "1"))]
    foreign = [keyed((0, "a", "1"), (1, "x", "9"), (2, "b", "1"))]
    with pytest.raises(
        PartitionStopped, match=r"A\.t-0 holds at offset 1 a record that its other side lacks"
    ):
        compacted(source, foreign)
    assert (tail := compacted(source, foreign, resume=True)).upstream == 2 and tail.foreign == 1
    with pytest.raises(PartitionStopped, match=r"t-0 holds at offset 0 a record"):
        compacted(source, [keyed((1, "b", "1"))])
    # Deleted at the source's beginning since: in order.
    assert compacted([keyed((1, "b", "1"))], [keyed((0, "a", "1"), (1, "b", "1"))], begin=1).upstream == 2
