"""The machine: what it is, and the limits that no broker on it can pass."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from crc32c import crc32c

from ottla.interpreter import description
from ottla.testing.apache import VERSION as KAFKA_VERSION

_CHUNK = 1 << 20
_TOTAL = 1 << 30
_SINK = """
import socket, sys
taken = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
room = memoryview(bytearray(1 << 20))
while taken.recv_into(room):
    pass
taken.send(b"!")
"""


def facts() -> dict[str, Any]:
    """Return what the figures of this run depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9, 1),
        "kernel": platform.release(),
        "python": description(),
        "java": _java_version(),
        "kafka": KAFKA_VERSION,
        "librdkafka": f"confluent-kafka {metadata.version('confluent-kafka')}",
        "uvloop": metadata.version("uvloop"),
        "commit": _commit(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def ready_memory(directory: Path, size: int) -> None:
    """Free this much memory.

    A virtual machine gives what it does not use back to its host; writing a file to memory that has to be fetched
    again costs ten times as much, and whose turn it is then would pay for it.
    """
    piece = bytes(_CHUNK)
    with tempfile.TemporaryFile(prefix="ottla-memory-", dir=directory) as file:
        for _ in range(-(-size // _CHUNK)):
            os.write(file.fileno(), piece)


def limits() -> dict[str, float]:
    """GB/s by name."""
    with tempfile.NamedTemporaryFile(prefix="ottla-limits-") as file:
        descriptor = file.fileno()
        return {
            "CRC-32C": _rate(_crc),
            "loopback TCP": _rate(_loopback),
            "page cache write": _rate(lambda: _write(descriptor)),
            "page cache read": _rate(lambda: _read(descriptor)),
        }


def _rate(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return _TOTAL / (time.perf_counter() - begin) / 1e9


def _crc() -> None:
    chunk = bytes(_CHUNK)
    for _ in range(_TOTAL // _CHUNK):
        crc32c(chunk)


def _write(descriptor: int) -> None:
    chunk = bytes(_CHUNK)
    for _ in range(_TOTAL // _CHUNK):
        os.write(descriptor, chunk)


def _read(descriptor: int) -> None:
    room = bytearray(_CHUNK)
    for n in range(_TOTAL // _CHUNK):
        os.preadv(descriptor, [room], n * _CHUNK)


def _loopback() -> None:
    chunk = bytes(_CHUNK)
    with socket.create_server(("127.0.0.1", 0)) as door:
        sink = subprocess.Popen([sys.executable, "-c", _SINK, str(door.getsockname()[1])])
        with door.accept()[0] as source:
            for _ in range(_TOTAL // _CHUNK):
                source.sendall(chunk)
            source.shutdown(socket.SHUT_WR)
            source.recv(1)
        sink.wait()


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def _first_line(*words: str) -> str:
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30)
    except OSError:
        return "unknown"
    return (done.stdout.splitlines() or ["unknown"])[0].strip()


def _java_version() -> str:
    return _first_line("java", "-version")


def _commit() -> str:
    return _first_line("git", "rev-parse", "--short", "HEAD")
