"""The process: memory, CPU, files, garbage collection, and how long its event loop was held up."""

from __future__ import annotations

import gc
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla import __version__
from ottla.metrics import names
from ottla.metrics.sinks import Labels, Sink
from ottla.records.codecs import SECONDS, Compression

if TYPE_CHECKING:
    from ottla.net.watchdog import LoopWatchdog

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


class GarbageCollections:
    """Counts and times the runs of Python's collector, through its own callbacks."""

    __slots__ = ("_began", "runs", "seconds")

    def __init__(self) -> None:
        self._began = 0.0
        self.runs = [0, 0, 0]
        self.seconds = [0.0, 0.0, 0.0]

    def start(self) -> None:
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
            return
        generation = info["generation"]
        self.runs[generation] += 1
        self.seconds[generation] += time.perf_counter() - self._began


class ProcessMetrics:
    """Reads the operating system's numbers about this process."""

    def __init__(self, node_id: int, watchdog: LoopWatchdog | None, collections: GarbageCollections) -> None:
        self._watchdog = watchdog
        self._collections = collections
        self._build = Labels(
            ("version", __version__),
            ("python", ".".join(map(str, sys.version_info[:3]))),
            ("node_id", str(node_id)),
        )
        self._started_at = _started_at()
        self._most_memory = _most_memory()

    def read(self, sink: Sink) -> Iterator[None]:
        """All families."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        sink.one(names.PROCESS_CPU, round(usage.ru_utime + usage.ru_stime, 3))
        sink.one(names.PROCESS_START, self._started_at)
        virtual, resident = _memory()
        sink.one(names.PROCESS_RESIDENT, resident)
        sink.one(names.PROCESS_VIRTUAL, virtual)
        sink.one(names.PROCESS_FDS, _open_files())
        sink.one(names.PROCESS_MAX_FDS, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        sink.one(names.JVM_MEMORY, resident, Labels(("area", "heap")))
        sink.one(names.JVM_MEMORY_MAX, self._most_memory, Labels(("area", "heap")))
        self._garbage(sink)
        sink.one(names.JVM_THREADS, threading.active_count())
        read, written = _disk()
        sink.one(names.DISK_READ, read)
        sink.one(names.DISK_WRITE, written)
        sink.all(
            names.CODEC_SECONDS,
            [
                (Labels(("codec", Compression(codec).name.lower()), ("direction", way)), round(seconds, 6))
                for (codec, way), seconds in sorted(SECONDS.copy().items())
                if codec in Compression.__members__.values()
            ],
        )
        sink.one(names.BUILD_INFO, 1, self._build)
        if self._watchdog is not None:
            sink.buckets(names.STALLS, self._watchdog.delays.counts, round(self._watchdog.delays.sum_s, 6))
            sink.one(names.LONGEST_STALL, round(self._watchdog.longest_s, 6))
        yield

    def _garbage(self, sink: Sink) -> None:
        collections = self._collections
        generations = [(Labels(("gc", f"Python generation {n}")), n) for n in range(len(collections.runs))]
        sink.summaries(
            names.JVM_GC,
            [(labels, round(collections.seconds[n], 6), collections.runs[n]) for labels, n in generations],
        )


def _started_at() -> float:
    """When the process started, in seconds since the epoch."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        boot = next(
            line.split()[1] for line in Path("/proc/stat").read_text().splitlines() if line[:5] == "btime"
        )
        return int(boot) + ticks / _TICKS
    except (OSError, ValueError, StopIteration, IndexError):
        return time.time() - time.process_time()


def _memory() -> tuple[int, int]:
    """Virtual and resident bytes."""
    try:
        pages = Path("/proc/self/statm").read_text().split()
        return int(pages[0]) * _PAGE_BYTES, int(pages[1]) * _PAGE_BYTES
    except (OSError, ValueError):
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return 0, kilobytes if sys.platform == "darwin" else kilobytes * 1024


def _most_memory() -> int:
    """The bytes that this process may take: its cgroup's limit, or all of the machine's."""
    machine = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    try:
        limit = _CGROUP_LIMIT.read_text().strip()
    except OSError:
        return machine
    return min(int(limit), machine) if limit.isdecimal() else machine


def _open_files() -> int:
    try:
        # Newer Linux counts them in the size of the directory; a list of thousands would hold up the event loop.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return 0


def _disk() -> tuple[int, int]:
    """Bytes that the system read from disks for this process, and wrote."""
    try:
        fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(fields["read_bytes"]), int(fields["write_bytes"])
    except (OSError, ValueError, KeyError):
        return 0, 0
