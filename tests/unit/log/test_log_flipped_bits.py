"""A bit of a closed log's file flips on the disk. The log must notice it, or serve what it served before."""

from __future__ import annotations

import random

import pytest

from ottla.errors import ApiException
from ottla.log.types import AppendOrigin
from ottla.records.batch import HEADER_SIZE, check_crc, iter_batches, iter_records
from ottla.testing.memfs import MemFs
from unit.log.log_rig import PATH, Rig, idempotent, marker, records_of

OUTSIDE_THE_CHECKSUM = 21
"""Offset, length, leader epoch, magic and the checksum itself stand before what it covers."""


@pytest.fixture(scope="module")
def rig() -> Rig:
    """Three segments with plain, idempotent and transactional records of six epochs."""
    rig = Rig(segment_bytes=700, index_interval_bytes=1)
    for n in range(6):
        rig.append(f"plain {n}", f"more {n}", epoch=n)
        rig.replicate(idempotent(n, f"idempotent {n}", pid=7), epoch=n)
        rig.replicate(idempotent(n, f"transactional {n}", pid=9, is_transactional=True), epoch=n)
        rig.append_raw(marker(9, commit=n % 2 == 0), epoch=n, origin=AppendOrigin.COORDINATOR)
    rig.log.close()
    return rig


def opened(rig: Rig, fs: MemFs, *, clean: bool) -> Rig:
    other = Rig(MemFs())
    other.config, other.now_ms = rig.config, rig.now_ms
    other.open(clean=clean, fs=fs)
    other.log.high_watermark = other.log.log_end_offset
    return other


def files(rig: Rig, *suffixes: str) -> list[str]:
    paths = [f"{PATH}/{name}" for name in rig.names() if name.endswith(suffixes)]
    return [path for path in paths if rig.fs.stat(path).size]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", ["index", ".snapshot", "leader-epoch-checkpoint"])
def test_everything_is_served_whatever_is_damaged_beside_the_segments(
    rig: Rig, suffix: str, clean: bool
) -> None:
    expected = records_of(opened(rig, rig.fs.kill(), clean=clean).log)  # type: ignore[attr-defined]
    assert len(expected) == 24
    draw = random.Random(suffix)
    for path in files(rig, suffix):
        for _ in range(8):
            fs = rig.fs.kill()  # type: ignore[attr-defined]
            fs.flip_bit(path, draw.randrange(fs.stat(path).size * 8))
            assert records_of(opened(rig, fs, clean=clean).log) == expected, path


def test_recovery_cuts_a_log_before_the_damage(rig: Rig) -> None:
    expected = records_of(opened(rig, rig.fs.kill(), clean=False).log)  # type: ignore[attr-defined]
    draw = random.Random(1)
    for path in files(rig, ".log"):
        for _ in range(12):
            fs = rig.fs.kill()  # type: ignore[attr-defined]
            fs.flip_bit(path, draw.randrange(fs.stat(path).size * 8))
            log = opened(rig, fs, clean=False).log
            assert records_of(log) == [one for one in expected if one[0] < log.log_end_offset]


def test_a_damaged_record_of_a_closed_segment_is_never_served_as_a_good_one(rig: Rig) -> None:
    """As in Kafka the old segments are not read when a log opens. Readers and followers find the wrong checksum."""
    expected = dict(records_of(opened(rig, rig.fs.kill(), clean=True).log))  # type: ignore[attr-defined]
    draw = random.Random(2)
    for path in files(rig, ".log"):
        data = rig.fs.read_bytes(path)
        for position, header in iter_batches(data):
            fs = rig.fs.kill()  # type: ignore[attr-defined]
            begin = position + OUTSIDE_THE_CHECKSUM
            fs.flip_bit(path, draw.randrange(begin * 8, (position + header.size_in_bytes) * 8))
            log = opened(rig, fs, clean=True).log
            for start in range(0, log.log_end_offset, 3):
                try:
                    piece = log.read(start, 1 << 20).records
                except ApiException:
                    continue
                for at, found in iter_batches(piece) if len(piece) >= HEADER_SIZE else ():
                    if not check_crc(piece, at, found):
                        break
                    for record in iter_records(piece, at, found):
                        value = (record.value or b"").decode()
                        assert found.is_control or expected[record.offset] == value


@pytest.mark.parametrize("field", ["offset", "length", "magic", "delta", "value"])
def test_a_flipped_bit_in_the_last_batch_does_not_move_the_end_of_the_log(rig: Rig, field: str) -> None:
    """The offset is not under the checksum. Its highest bits moved the end of the log by up to 2^62.

    A small gap is no damage: the topic may have been compacted before.
    """
    path = files(rig, ".log")[-1]
    expected = records_of(opened(rig, rig.fs.kill(), clean=True).log)  # type: ignore[attr-defined]
    *_, (position, header) = iter_batches(rig.fs.read_bytes(path))
    begin, size = {
        "offset": (0, 4),
        "length": (8, 4),
        "magic": (16, 1),
        "delta": (23, 4),
        "value": (61, header.size_in_bytes - 61),
    }[field]
    for bit in range((position + begin) * 8, (position + begin + size) * 8, 5):
        fs = rig.fs.kill()  # type: ignore[attr-defined]
        fs.flip_bit(path, bit)
        other = opened(rig, fs, clean=True)
        assert other.log.log_end_offset == header.base_offset
        assert records_of(other.log) == [one for one in expected if one[0] < header.base_offset]
        assert other.report.truncated_bytes == header.size_in_bytes
