"""The page cache of the machine, read from `/proc/vmstat`: how near writers are to being throttled by the kernel."""

from __future__ import annotations

import os
from typing import Final

from ottla.log.write_gate import Probe

_VMSTAT: Final = "/proc/vmstat"
_VMSTAT_BYTES: Final = 32 << 10


def page_cache_probe(path: str = _VMSTAT) -> Probe | None:
    """Return a function that reads the share of dirty pages, or None where the system does not report it."""

    def probe() -> float:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(fd, _VMSTAT_BYTES)
        finally:
            os.close(fd)
        waiting = _figure(text, b"nr_dirty ") + _figure(text, b"nr_writeback ")
        # Linux lets writers run freely up to the middle between its two thresholds.
        limits = _figure(text, b"nr_dirty_background_threshold ") + _figure(text, b"nr_dirty_threshold ")
        return 2 * waiting / limits if limits else 0.0

    try:
        probe()
    except (OSError, ValueError):
        return None
    return probe


def _figure(text: bytes, name: bytes) -> int:
    start = text.index(b"\n" + name) + 1 + len(name)
    return int(text[start : text.index(b"\n", start)])
