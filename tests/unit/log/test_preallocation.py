"""Space that is set aside for files that grow fast: for which, how much, and that nothing else of the file changes."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ottla.log.fs import NEVER, OsFile, OsFs, fallocate
from ottla.log.preallocation import (
    AHEAD_S,
    CHUNK_BYTES,
    FIRST_LOOK_BYTES,
    SMALLEST_BYTES,
    SpaceReserver,
)
from ottla.log.segment import Segment, SegmentSettings
from ottla.log.write_gate import WriteGate
from ottla.testing.virtual_clock import VirtualClock

LIMIT = 1 << 30


class Later(Executor):
    """Keeps what it is given until the test says so."""

    def __init__(self) -> None:
        self.work: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.work.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run(self) -> None:
        work, self.work = self.work, []
        for future, call in work:
            future.set_result(call())


class Scene:
    """A file that grows by hand, and what was set aside for it."""

    def __init__(self, path: Path) -> None:
        self.clock = VirtualClock()
        self.gate = WriteGate(self.clock, None)
        self.executor = Later()
        self.reserved: list[tuple[int, int]] = []
        self.error: OSError | None = None
        self.room = SpaceReserver(
            self.clock, self.gate, lambda call: call(), executor=self.executor, reserve=self._reserve
        )
        fs = OsFs()
        fs.use_preallocation(self.room)
        self.file: OsFile = fs.open(str(path), create=True)

    def _reserve(self, fd: int, offset: int, size: int) -> None:
        self.reserved.append((offset, size))
        if self.error is not None:
            raise self.error


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "file")
    yield made
    made.file.close()


def grow_fast(scene: Scene) -> int:
    """Two looks, so that its speed is known; where to look next."""
    at = scene.file.preallocate(FIRST_LOOK_BYTES, LIMIT)
    scene.clock.advance(0.1)
    return scene.file.preallocate(at, LIMIT)


def test_a_file_that_grows_fast_gets_room_behind_a_closed_gate(scene: Scene) -> None:
    at = grow_fast(scene)
    assert not scene.gate.admits(1)
    scene.executor.run()
    assert scene.gate.admits(1)
    start = 2 * FIRST_LOOK_BYTES
    assert scene.reserved == [(start, start)], "as much as it has"
    assert start < at < 2 * start
    at = scene.file.preallocate(at, LIMIT)
    scene.executor.run()
    ((offset, size),) = scene.reserved[1:]
    assert offset == 2 * start
    assert offset < at < offset + size
    scene.file.preallocate(LIMIT // 2, LIMIT)
    scene.executor.run()
    assert scene.reserved[2:] == [(LIMIT // 2, CHUNK_BYTES)], "but not more than a chunk"


def test_the_files_beside_it_are_made_with_it_and_those_that_are_there_stay(
    scene: Scene, tmp_path: Path
) -> None:
    there, missing = tmp_path / "there", tmp_path / "missing"
    there.write_bytes(b"as it was")
    at = scene.file.preallocate(FIRST_LOOK_BYTES, LIMIT)
    scene.file.preallocate(at, LIMIT, (str(there), str(missing)))
    assert not missing.exists()
    scene.executor.run()
    assert (there.read_bytes(), missing.read_bytes()) == (b"as it was", b"")


def test_a_directory_that_is_gone_is_let_be(scene: Scene, tmp_path: Path) -> None:
    at = scene.file.preallocate(FIRST_LOOK_BYTES, LIMIT)
    scene.file.preallocate(at, LIMIT, (str(tmp_path / "gone" / "index"),))
    scene.executor.run()
    assert scene.gate.admits(1)


def test_it_gets_what_it_would_need_for_a_few_seconds(scene: Scene) -> None:
    size = 100 << 20
    scene.file.preallocate(size, LIMIT)
    scene.clock.advance(5)
    size += 10 << 20
    at = scene.file.preallocate(size, LIMIT)
    scene.executor.run()
    assert scene.reserved == [(size, 2 * AHEAD_S << 20)]
    assert size < at < size + (2 * AHEAD_S << 20)


def test_a_file_that_grows_slowly_gets_none(scene: Scene) -> None:
    at = FIRST_LOOK_BYTES
    for _ in range(10):
        at = scene.file.preallocate(at, LIMIT)
        scene.clock.advance(1 + AHEAD_S * FIRST_LOOK_BYTES / SMALLEST_BYTES)
    assert at == 11 * FIRST_LOOK_BYTES
    assert scene.executor.work == []


def test_nothing_is_set_aside_beyond_what_the_file_may_take(scene: Scene) -> None:
    limit = 3 * FIRST_LOOK_BYTES + 7
    at = scene.file.preallocate(FIRST_LOOK_BYTES, limit)
    assert scene.file.preallocate(at, limit) == NEVER
    scene.executor.run()
    assert scene.reserved == [(2 * FIRST_LOOK_BYTES, FIRST_LOOK_BYTES + 7)]
    assert scene.file.preallocate(limit, limit) == NEVER


@pytest.mark.parametrize(("number", "again"), [(errno.EOPNOTSUPP, False), (errno.ENOSPC, True)])
def test_a_disk_that_cannot_is_no_error(scene: Scene, number: int, again: bool) -> None:
    scene.error = OSError(number, "no")
    at = grow_fast(scene)
    scene.executor.run()
    assert scene.gate.admits(1)
    scene.file.preallocate(at, LIMIT)
    scene.executor.run()
    assert len(scene.reserved) == (2 if again else 1)
    assert scene.gate.admits(1)


def test_what_other_threads_write_gets_none(scene: Scene) -> None:
    with ThreadPoolExecutor(1) as cleaner:
        assert cleaner.submit(grow_fast, scene).result() == NEVER
    assert scene.executor.work == []


def test_a_file_that_was_closed_meanwhile_is_let_be(scene: Scene) -> None:
    grow_fast(scene)
    scene.file.close()
    scene.executor.run()
    assert scene.reserved == []
    assert scene.gate.admits(1)


def test_the_file_keeps_its_size_and_gives_back_what_it_did_not_use(tmp_path: Path) -> None:
    reserve = fallocate()
    if reserve is None:
        pytest.skip("this system has no such call")
    path = tmp_path / "file"
    file = OsFs().open(str(path), create=True)
    file.append([b"before"])
    try:
        file.reserve_space(reserve, 6, 1 << 20, ())
    except OSError as error:
        pytest.skip(f"this file system cannot: {error}")
    file.preallocated_until = 6 + (1 << 20)
    assert path.stat().st_size == 6
    assert path.stat().st_blocks * 512 >= 1 << 20
    file.append([b" and after"])
    assert bytes(file.pread(100, 0)) == b"before and after"
    file.release_preallocation()
    assert path.read_bytes() == b"before and after"
    assert path.stat().st_blocks * 512 < 1 << 20
    file.close()


def test_a_segment_asks_when_it_has_grown_and_gives_back_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    given_back: list[int] = []

    def preallocate(self: OsFile, size: int, limit: int, beside: Sequence[str]) -> int:
        asked.append((size, limit))
        assert [Path(path).name for path in beside] == [f"{0:020}.index", f"{0:020}.timeindex"]
        return size + FIRST_LOOK_BYTES

    monkeypatch.setattr(OsFile, "preallocate", preallocate)
    monkeypatch.setattr(
        OsFile, "release_preallocation", lambda self: given_back.append(os.fstat(self.fileno()).st_size)
    )
    segment = Segment.create(OsFs(), str(tmp_path), 0, SegmentSettings(4096, 1 << 20, LIMIT))
    piece = bytes(1 << 20)
    for n in range(9):
        segment.append([piece], [(len(piece), n, n)])
    assert asked == [(4 << 20, LIMIT), (8 << 20, LIMIT)]
    segment.close()
    assert given_back == [9 << 20]
