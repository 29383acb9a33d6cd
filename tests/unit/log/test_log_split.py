"""Segments whose offsets overflow, as old versions of Kafka wrote them, are split when the log is opened."""

from __future__ import annotations

import pytest

from ottla.log.segment import MAX_RELATIVE_OFFSET
from ottla.testing.memfs import MemFs
from unit.log.log_rig import PATH, Rig, batch, records_of, stamped

FAR = MAX_RELATIVE_OFFSET + 10
"""An offset that does not fit into the first segment."""
FARTHER = 2 * FAR + 5
WRITTEN = [(0, "a"), (1, "b"), (FAR, "c"), (FAR + 1, "d"), (FARTHER, "e")]
NAMES = [f"{offset:020d}.log" for offset in (0, FAR, FARTHER)]


def overflowing(offsets: list[tuple[int, str]] = WRITTEN) -> Rig:
    """A log whose only segment holds all of these records, each in its own batch."""
    rig = Rig()
    rig.log.close()
    file = rig.fs.open(f"{PATH}/{0:020d}.log", create=True, truncate=True)
    file.append([stamped(batch(value), offset, 0) for offset, value in offsets])
    file.fsync()
    file.close()
    return rig


def logs(rig: Rig) -> list[str]:
    return sorted(name for name in rig.names() if name.endswith(".log"))


@pytest.mark.parametrize("clean", [True, False])
def test_an_overflowing_segment_is_split_and_nothing_is_lost(clean: bool) -> None:
    rig = overflowing()
    log = rig.open(clean=clean, recovery_point=FARTHER + 1, gaps_below=FARTHER + 1)
    assert records_of(log) == WRITTEN
    assert logs(rig) == NAMES
    assert rig.report.split_segments == 1
    assert rig.report.truncated_bytes == 0
    assert [name for name in rig.names() if name.endswith((".cleaned", ".swap"))] == []
    assert rig.append("f") == FARTHER + 1
    log.close()
    again = rig.open(clean=True, recovery_point=FARTHER + 2)
    assert rig.report.split_segments == 0
    assert records_of(again) == [*WRITTEN, (FARTHER + 1, "f")]


def test_a_segment_whose_first_batch_overflows_gets_another_name() -> None:
    rig = overflowing([(FAR, "c"), (FARTHER, "e")])
    log = rig.open(clean=True, recovery_point=FARTHER + 1)
    assert records_of(log) == [(FAR, "c"), (FARTHER, "e")]
    assert logs(rig) == NAMES[1:]


def test_a_gap_alone_is_no_overflow() -> None:
    rig = overflowing([(0, "a"), (MAX_RELATIVE_OFFSET, "b")])
    log = rig.open(clean=True, recovery_point=FAR)
    assert records_of(log) == [(0, "a"), (MAX_RELATIVE_OFFSET, "b")]
    assert logs(rig) == NAMES[:1]
    assert rig.report.split_segments == 0


class KilledError(BaseException):
    """Raised out of a file operation, as a kill would end it."""


@pytest.mark.parametrize("after", range(14))
def test_a_split_that_is_killed_is_finished_or_undone(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = overflowing()
    fs = rig.fs
    assert isinstance(fs, MemFs)
    left = after

    def counted(name: str) -> None:
        real = getattr(fs, name)

        def call(*arguments: object, **options: object) -> object:
            nonlocal left
            if left == 0:
                raise KilledError
            left -= 1
            return real(*arguments, **options)

        monkeypatch.setattr(fs, name, call)

    for name in ("rename", "remove", "fsync_dir"):
        counted(name)
    bounds = {"recovery_point": FARTHER + 1, "gaps_below": FARTHER + 1}
    try:
        rig.open(clean=False, **bounds)
    except KilledError:
        monkeypatch.undo()
    log = rig.open(clean=False, fs=fs.kill(), **bounds)
    assert records_of(log) == WRITTEN
    assert logs(rig) == NAMES
