"""The file system seam: the same behaviour on the machine's files and in memory, and the faults of the latter."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import pytest

from ottla.log.fs import Fs, OsFs
from ottla.log.types import WouldBlock
from ottla.testing.memfs import MemFs


@pytest.fixture(params=["os", "memory"])
def fs_and_root(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Fs, str]:
    if request.param == "os":
        return OsFs(), str(tmp_path)
    fs = MemFs()
    fs.mkdir("/root")
    return fs, "/root"


def test_appends_are_read_back_and_truncated(fs_and_root: tuple[Fs, str]) -> None:
    fs, root = fs_and_root
    file = fs.open(f"{root}/a", create=True)
    assert file.append([b"one", memoryview(b"two")]) == 6
    assert bytes(file.pread(4, 1)) == b"netw"
    assert bytes(file.pread(10, 4)) == b"wo"
    assert bytes(file.pread(6, 0, nowait=True)) == b"onetwo"
    file.truncate(3)
    file.append([b"!"])
    assert fs.read_bytes(f"{root}/a") == b"one!"
    assert file.size() == fs.stat(f"{root}/a").size == 4
    file.close()
    with pytest.raises(OSError) as caught:
        file.pread(1, 0)
    assert caught.value.errno == errno.EBADF


def test_names_are_made_renamed_and_removed(fs_and_root: tuple[Fs, str]) -> None:
    fs, root = fs_and_root
    fs.mkdir(f"{root}/d/e", parents=True)
    fs.mkdir(f"{root}/d")  # there already: fine
    fs.write_bytes(f"{root}/d/f", b"x")
    fs.write_atomic(f"{root}/d/f", b"y")
    assert [tuple(e) for e in sorted(fs.entries(f"{root}/d"))] == [("e", True), ("f", False)]
    fs.rename(f"{root}/d", f"{root}/g")
    assert fs.read_bytes(f"{root}/g/f") == b"y"
    assert not fs.exists(f"{root}/d")
    fs.remove(f"{root}/g/f")
    fs.remove(f"{root}/g/f")  # gone already: fine
    fs.rmtree(f"{root}/g")
    fs.rmtree(f"{root}/g")
    assert fs.listdir(root) == []
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/nothing")
    with pytest.raises(FileNotFoundError):
        fs.read_bytes(f"{root}/nothing")


def test_a_lock_is_held_by_one(fs_and_root: tuple[Fs, str]) -> None:
    fs, root = fs_and_root
    lock = fs.lock(f"{root}/.lock")
    assert lock is not None
    assert fs.lock(f"{root}/.lock") is None
    lock.release()
    again = fs.lock(f"{root}/.lock")
    assert again is not None
    again.release()


def test_more_buffers_than_one_system_call_takes(fs_and_root: tuple[Fs, str]) -> None:
    fs, root = fs_and_root
    file = fs.open(f"{root}/many", create=True)
    buffers = [b"%04d" % n for n in range(3000)]
    assert file.append(buffers) == 12000
    assert bytes(file.pread(20000, 0)) == b"".join(buffers)


def test_a_reader_keeps_its_descriptor_while_the_file_is_closed(tmp_path: Path) -> None:
    """Reads in threads go on while the loop closes and reopens: no descriptor is closed under them."""
    fs = OsFs()
    file = fs.open(f"{tmp_path}/a", create=True)
    file.append([b"x" * 4096])
    current = [file]
    stop = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        while not stop.is_set():
            reading = current[0]
            try:
                assert bytes(reading.pread(4096, 0)) == b"x" * 4096
            except OSError as e:
                if e.errno != errno.EBADF or reading._fd is None:  # type: ignore[attr-defined]
                    continue
                failures.append(e)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for n in range(300):
        replacement = fs.open(f"{tmp_path}/a")
        old, current[0] = current[0], replacement
        old.close()
        other = fs.open(f"{tmp_path}/other{n % 3}", create=True)  # would take over a number closed too early
        other.append([b"y" * 4096])
        other.close()
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_memory_reads_that_would_block_say_so() -> None:
    fs = MemFs()
    file = fs.open("/a", create=True)
    file.append([b"abc"])
    fs.evict("/a")
    with pytest.raises(WouldBlock):
        file.pread(3, 0, nowait=True)
    assert bytes(file.pread(3, 0)) == b"abc"
    assert bytes(file.pread(3, 0, nowait=True)) == b"abc"


def test_memory_faults_and_a_full_disk() -> None:
    fs = MemFs()
    file = fs.open("/a", create=True)
    fs.space = 4
    file.append([b"abc"])
    with pytest.raises(OSError) as full:
        file.append([b"de"])
    assert full.value.errno == errno.ENOSPC
    assert fs.read_bytes("/a") == b"abc"

    def fail(operation: str, path: str) -> None:
        if operation == "fsync":
            raise OSError(errno.EIO, "broken", path)

    fs.fault = fail
    with pytest.raises(OSError):
        file.fsync()


def test_a_crash_keeps_what_was_synced_and_may_lose_the_rest() -> None:
    fs = MemFs()
    fs.mkdir("/d")
    kept = fs.open("/d/kept", create=True)
    kept.append([b"synced"])
    kept.fsync()
    fs.fsync_dir("/d")
    fs.fsync_dir("/")
    kept.append([b" unsynced"])
    fs.open("/d/new", create=True).append([b"never synced"])
    outcomes = set()
    for seed in range(200):
        after = fs.crash(random.Random(seed))
        data = after.read_bytes("/d/kept")
        assert data.startswith(b"synced")
        outcomes.add((len(data), after.exists("/d/new")))
    assert {(6, True), (6, False), (15, True)} <= outcomes
    assert fs.kill().read_bytes("/d/kept") == b"synced unsynced"
