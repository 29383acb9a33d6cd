"""What a run has done so far: counters and the last events, for REST and for `ottla connectors status`."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ottla.json_types import JsonObject

_WINDOW_S: Final = 60.0


@dataclass(slots=True)
class Progress:
    """The counters of one connector on one worker."""

    records: int = 0
    cycles: int = 0
    jobs: int = 0
    """Cycles that ran as Spark jobs."""
    resident: int = 0
    """Cycles that ran in resident Spark tasks."""
    skipped: int = 0
    bytes: int = 0
    last_cycle_ms: float = 0.0
    last_cycle_at_ms: int | None = None
    last_error: str | None = None
    next_retry_at_ms: int | None = None
    lag: str | None = None
    _recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=1000))

    def cycle(self, records: int, took_s: float) -> None:
        """Takes note of a committed cycle."""
        self.records += records
        self.cycles += 1
        self.last_cycle_ms = round(took_s * 1000, 3)
        self.last_cycle_at_ms = time.time_ns() // 1_000_000
        self.last_error = self.next_retry_at_ms = None
        self._recent.append((time.monotonic(), records))

    def rate(self) -> float:
        """Records per second, over the last minute, or since the first cycle in it."""
        now = time.monotonic()
        recent = [(at, records) for at, records in self._recent if at >= now - _WINDOW_S]
        return sum(records for _, records in recent) / max(1.0, now - recent[0][0]) if recent else 0.0

    def json(self) -> JsonObject:
        """For REST."""
        return {
            "records": self.records,
            "records_per_second": round(self.rate(), 1),
            "bytes": self.bytes,
            "cycles": self.cycles,
            "spark_jobs": self.jobs,
            "resident_cycles": self.resident,
            "skipped_records": self.skipped,
            "last_cycle_ms": self.last_cycle_ms,
            "last_cycle_at": self.last_cycle_at_ms,
            "last_error": self.last_error,
            "next_retry_at": self.next_retry_at_ms,
            "lag": self.lag,
        }
