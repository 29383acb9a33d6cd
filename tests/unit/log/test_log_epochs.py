"""Leader epochs: assigning, ends of epochs, truncation from both sides, and the checkpoint file."""

from __future__ import annotations

import pytest

from ottla.log.leader_epochs import LeaderEpochCache, epoch_at
from ottla.testing.memfs import MemFs

FILE = "/p/leader-epoch-checkpoint"


@pytest.fixture
def fs() -> MemFs:
    fs = MemFs()
    fs.mkdir("/p")
    return fs


def filled(fs: MemFs) -> LeaderEpochCache:
    cache = LeaderEpochCache(fs, "/p")
    for epoch, offset in ((0, 0), (2, 10), (5, 30)):
        cache.assign(epoch, offset)
    cache.write()
    return cache


def test_the_file_is_kafkas(fs: MemFs) -> None:
    filled(fs)
    assert fs.read_bytes(FILE) == b"0\n3\n0 0\n2 10\n5 30\n"
    loaded = LeaderEpochCache.load(fs, "/p", exists=True)
    assert loaded.entries == ((0, 0), (2, 10), (5, 30))


def test_an_epoch_reaches_the_file_with_its_first_record(fs: MemFs) -> None:
    """A broker that becomes leader of thousands of partitions does not write thousands of files for it."""
    cache = filled(fs)
    cache.assign(7, 40)
    assert cache.unwritten
    assert fs.read_bytes(FILE) == b"0\n3\n0 0\n2 10\n5 30\n"
    cache.write()
    assert not cache.unwritten
    assert fs.read_bytes(FILE) == b"0\n4\n0 0\n2 10\n5 30\n7 40\n"


def test_a_known_epoch_is_not_assigned_again(fs: MemFs) -> None:
    cache = filled(fs)
    cache.assign(5, 40)
    assert cache.entries[-1] == (5, 30)
    cache.assign(5, 25)  # it began earlier than thought
    assert cache.entries == ((0, 0), (2, 10), (5, 25))


def test_an_epoch_that_contradicts_later_ones_replaces_them(fs: MemFs) -> None:
    cache = filled(fs)
    cache.assign(3, 8)
    assert cache.entries == ((0, 0), (3, 8))


def test_ends_of_epochs(fs: MemFs) -> None:
    cache = filled(fs)
    assert cache.end_offset_for(5, 99) == (5, 99)
    assert cache.end_offset_for(4, 99) == (2, 30)
    assert cache.end_offset_for(2, 99) == (2, 30)
    assert cache.end_offset_for(1, 99) == (0, 10)
    assert cache.end_offset_for(6, 99) == (-1, -1)
    assert cache.end_offset_for(-1, 99) == (-1, -1)
    assert LeaderEpochCache(fs, "/p").end_offset_for(0, 0) == (-1, -1)
    cache.truncate_from_start(20)
    assert cache.end_offset_for(1, 99) == (1, 20)


def test_epoch_of_an_offset(fs: MemFs) -> None:
    cache = filled(fs)
    assert [epoch_at(cache.entries, o) for o in (0, 9, 10, 29, 30, 99)] == [0, 0, 2, 2, 5, 5]
    cache.truncate_from_start(20)
    assert epoch_at(cache.entries, 5) == -1


def test_truncation(fs: MemFs) -> None:
    cache = filled(fs)
    cache.truncate_from_end(30)
    assert cache.entries == ((0, 0), (2, 10))
    cache.truncate_from_start(12)
    assert cache.entries == ((2, 12),)
    assert fs.read_bytes(FILE) == b"0\n1\n2 12\n"
    cache.clear()
    assert cache.latest_epoch == -1
    assert fs.read_bytes(FILE) == b"0\n0\n"


@pytest.mark.parametrize("damaged", [b"", b"0\n", b"1\n1\n0 0\n", b"0\n1\n7 4", b"0\n1\nx y\n", b"\xff\xfe"])
def test_a_damaged_file_counts_as_empty(fs: MemFs, damaged: bytes) -> None:
    fs.write_bytes(FILE, damaged)
    assert LeaderEpochCache.load(fs, "/p", exists=True).entries == ()


def test_a_file_between_two_versions_has_the_rows_of_the_older_one(fs: MemFs) -> None:
    """Rows are added in place: a crash may find the new count with the old rows, or half of a new row."""
    old, new = b"0\n1\n0 0\n", b"0\n2\n0 0\n2 1000\n"
    for cut in range(len(old), len(new)):
        for text in (new[:cut], old + new[len(old) : cut], new[:cut] + bytes(len(new) - cut)):
            fs.write_bytes(FILE, text)
            cache = LeaderEpochCache.load(fs, "/p", exists=True)
            assert cache.entries == ((0, 0),)
            cache.assign(3, 20)
            cache.write()
            assert fs.read_bytes(FILE) == b"0\n2\n0 0\n3 20\n"


def test_added_rows_are_written_in_place_and_others_by_replacement(fs: MemFs) -> None:
    operations: list[str] = []
    cache = LeaderEpochCache(fs, "/p")
    fs.fault = lambda operation, path: operations.append(operation)
    for epoch in range(11):
        cache.assign(epoch, 10 * epoch)
        cache.write()
        assert LeaderEpochCache.load(fs, "/p", exists=True).entries == cache.entries
    # A count of two digits moves the rows.
    assert operations.count("rename") == 1
    cache.truncate_from_end(50)
    assert operations.count("rename") == 2
