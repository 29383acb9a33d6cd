"""Opening directories as crashes, kills and Apache Kafka leave them."""

from __future__ import annotations

import struct
import zlib

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.testing.memfs import MemFs
from unit.log.log_rig import NOW, PATH, Rig, batch, records_of

LOG = f"{PATH}/00000000000000000000.log"
INDEX = f"{PATH}/00000000000000000000.index"


def written(count: int = 10, **overrides: object) -> Rig:
    rig = Rig(**overrides)
    for n in range(count):
        rig.append(f"{n}", timestamp=NOW + n)
    return rig


def mem(rig: Rig) -> MemFs:
    assert isinstance(rig.fs, MemFs)
    return rig.fs


def expected(count: int) -> list[tuple[int, str]]:
    return [(n, str(n)) for n in range(count)]


def test_after_a_kill_everything_that_was_appended_is_there() -> None:
    rig = written(10, segment_bytes=300)
    log = rig.open(clean=False, fs=mem(rig).kill())
    assert records_of(log) == expected(10)
    assert rig.report.truncated_bytes == 0
    assert rig.append("10") == 10


def test_after_a_clean_end_nothing_is_scanned() -> None:
    rig = written(10, segment_bytes=300)
    rig.log.close()
    log = rig.open(clean=True)
    assert rig.report.recovered_segments == 0
    assert log.recovery_point == 10
    assert records_of(log) == expected(10)
    assert rig.append("10") == 10


@pytest.mark.parametrize("cut", range(1, 70, 7))
def test_a_torn_tail_is_cut_off(cut: int) -> None:
    rig = written(10)
    file = rig.fs.open(LOG)
    file.truncate(file.size() - cut)
    log = rig.open(clean=False)
    gone = 1
    assert records_of(log) == expected(10 - gone)
    assert rig.append("again") == 10 - gone
    assert records_of(rig.open(clean=False))[-1] == (10 - gone, "again")


def test_zeros_at_the_end_are_cut_off() -> None:
    rig = written(10)
    size = rig.fs.stat(LOG).size
    rig.fs.open(LOG).append([bytes(10_000)])
    log = rig.open(clean=False)
    assert records_of(log) == expected(10)
    assert rig.fs.stat(LOG).size == size
    assert rig.report.truncated_bytes == 10_000


def test_any_flipped_bit_in_unflushed_batches_is_found() -> None:
    """Everything counts: offsets and epochs lie outside the checksum, but a wrong one does not pass."""
    rig = written(4)
    size = rig.fs.stat(LOG).size // 4
    for bit in range(size * 8, size * 4 * 8, 5):
        fs = mem(rig).kill()
        fs.flip_bit(LOG, bit)
        damaged = bit // 8 // size
        again = Rig()
        log = again.open(clean=False, fs=fs)
        assert records_of(log) == expected(damaged), f"bit {bit}"


def test_damage_in_the_middle_takes_what_comes_after() -> None:
    rig = written(20, segment_bytes=300)
    second = rig.log.segments[1]
    mem(rig).flip_bit(second.path, (second.size - 1) * 8)
    bases = [segment.base_offset for segment in rig.log.segments]
    log = rig.open(clean=False)
    assert log.log_end_offset == bases[2] - 1
    assert records_of(log) == expected(bases[2] - 1)
    assert [segment.base_offset for segment in log.segments] == bases[:2]
    assert rig.report.deleted_segments == len(bases) - 2


def test_segments_below_the_recovery_point_are_not_scanned() -> None:
    rig = written(20, segment_bytes=300)
    bases = [segment.base_offset for segment in rig.log.segments]
    rig.open(clean=False, recovery_point=bases[3])
    assert rig.report.recovered_segments == len(bases) - 3
    assert records_of(rig.log) == expected(20)
    assert rig.log.recovery_point == bases[3]


def test_missing_indexes_are_rebuilt_even_after_a_clean_end() -> None:
    rig = written(50, segment_bytes=1000, index_interval_bytes=0)
    rig.log.close()
    before = {name: rig.fs.read_bytes(f"{PATH}/{name}") for name in rig.names() if "index" in name}
    for name in before:
        rig.fs.remove(f"{PATH}/{name}")
    log = rig.open(clean=True)
    assert records_of(log) == expected(50)
    log.close()
    for name, data in before.items():
        assert rig.fs.read_bytes(f"{PATH}/{name}") == data, name


def test_rebuilt_indexes_are_those_that_appending_made() -> None:
    rig = written(200, segment_bytes=5000, index_interval_bytes=300)
    killed = mem(rig).kill()
    rig.log.close()
    by_appending = {n: rig.fs.read_bytes(f"{PATH}/{n}") for n in rig.names() if n.endswith("index")}
    rig.open(clean=False, fs=killed)
    rig.log.close()
    rebuilt = {n: rig.fs.read_bytes(f"{PATH}/{n}") for n in rig.names() if n.endswith("index")}
    assert rebuilt == by_appending


def test_orphans_and_leftovers_of_deletions_are_removed() -> None:
    rig = written(5)
    rig.log.close()
    fs = rig.fs
    fs.write_bytes(f"{PATH}/00000000000000000099.index", b"12345678")
    fs.write_bytes(f"{PATH}/00000000000000000099.timeindex", b"")
    fs.write_bytes(f"{PATH}/00000000000000000077.log.deleted", b"x")
    fs.write_bytes(f"{PATH}/00000000000000000000.log.cleaned", b"x")
    fs.write_bytes(f"{PATH}/00000000000000000000-0000000001.checkpoint.deleted", b"x")
    log = rig.open(clean=True)
    assert records_of(log) == expected(5)
    assert sorted(rig.report.removed_files) == [
        "00000000000000000000.log.cleaned",
        "00000000000000000077.log.deleted",
        "00000000000000000099.index",
        "00000000000000000099.timeindex",
    ]


def test_an_interrupted_swap_is_finished() -> None:
    rig = written(20, segment_bytes=300)
    segments = list(rig.log.segments)
    rig.log.close()
    kept = rig.fs.read_bytes(segments[0].path)
    rig.fs.write_bytes(f"{PATH}/00000000000000000000.log.swap", kept + rig.fs.read_bytes(segments[1].path))
    rig.fs.write_bytes(f"{PATH}/00000000000000000000.index.swap", b"")
    rig.fs.write_bytes(f"{PATH}/00000000000000000000.timeindex.swap", b"")
    log = rig.open(clean=True)
    assert [s.base_offset for s in log.segments] == [s.base_offset for s in segments if s is not segments[1]]
    assert records_of(log) == expected(20)
    assert not [name for name in rig.names() if name.endswith(".swap")]


def test_a_swap_that_had_only_begun_is_undone() -> None:
    rig = written(20, segment_bytes=300)
    segments = list(rig.log.segments)
    rig.log.close()
    rig.fs.write_bytes(f"{segments[2].path}.swap", b"")
    rig.fs.write_bytes(f"{segments[0].path}.cleaned", b"")
    log = rig.open(clean=True)
    assert records_of(log) == expected(20)
    assert not [name for name in rig.names() if name.endswith((".swap", ".cleaned"))]


def test_the_start_of_the_log_is_kept() -> None:
    rig = written(10)
    log = rig.open(clean=False, log_start_offset=4)
    assert records_of(log) == [(n, str(n)) for n in range(4, 10)]


def test_a_log_that_ends_before_its_start_begins_anew() -> None:
    rig = written(10)
    log = rig.open(clean=False, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert rig.append("new") == 50


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_directory_is_an_empty_log(clean: bool) -> None:
    rig = Rig()
    rig.log.close()
    for name in rig.names():
        rig.fs.remove(f"{PATH}/{name}")
    log = rig.open(clean=clean, log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert rig.append("x") == 7


def test_epochs_are_found_again_in_the_batches() -> None:
    rig = Rig()
    for n in range(6):
        rig.append(str(n), epoch=n // 2)
    rig.fs.remove(f"{PATH}/leader-epoch-checkpoint")
    log = rig.open(clean=False)
    assert log.leader_epochs.entries == ((0, 0), (1, 2), (2, 4))
    assert rig.fs.read_bytes(f"{PATH}/leader-epoch-checkpoint") == b"0\n3\n0 0\n1 2\n2 4\n"


def test_epochs_past_the_end_are_forgotten() -> None:
    rig = written(3)
    rig.log.assign_epoch_start_offset(5, 3)
    log = rig.open(clean=False)
    assert log.leader_epochs.entries == ((0, 0),)


def test_a_crashed_kafkas_preallocated_indexes_are_taken() -> None:
    rig = written(50, index_interval_bytes=0)
    rig.log.close()
    for suffix in ("index", "timeindex"):
        rig.fs.open(f"{PATH}/00000000000000000000.{suffix}").append([bytes(1 << 20)])
    log = rig.open(clean=False)
    assert records_of(log) == expected(50)
    rig.log.close()
    assert rig.fs.stat(INDEX).size == 49 * 8
    log = rig.open(clean=True)
    assert records_of(log) == expected(50)


def test_gaps_of_compaction_are_no_damage() -> None:
    rig = Rig(cleanup_policy="compact")
    for offset in (0, 5, 90):
        rig.log.append_as_follower(batch("x", base_offset=offset, partition_leader_epoch=0))
    log = rig.open(clean=False)
    assert log.log_end_offset == 91
    assert [offset for offset, _ in records_of(log)] == [0, 5, 90]


def test_old_message_formats_are_refused_not_destroyed() -> None:
    rig = written(1)
    value = b"of long ago, when messages had no batches around them"
    message = struct.pack(">bbqi i", 1, 0, NOW, -1, len(value)) + value
    raw = struct.pack(">qiI", 0, len(message) + 4, zlib.crc32(message)) + message
    rig.fs.write_bytes(LOG, raw)
    with pytest.raises(ApiException) as caught:
        rig.open(clean=False)
    assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert rig.fs.read_bytes(LOG) == raw
