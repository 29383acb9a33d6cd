"""How much work a run does: the full form goes by the goals, the quick one takes minutes, the tiny one only runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes that rows go by."""

    name: str
    rounds: int
    """Turns of each system in the rows that matter most; others take fewer."""
    small_mb: int
    """Payload of a throughput run with records of 100 B."""
    large_mb: int
    """The same with records of 1 kB."""
    seconds: int
    """Runs that go by time rather than by amount."""
    cold_gb: float
    """The backlog that is read from disk while latency is measured."""
    compact_mb: int
    """What is compacted while latency is measured."""
    log_gb: tuple[float, ...]
    """Sizes of the log at which throughput is measured."""
    curve: tuple[int, ...]
    """Numbers of partitions over which throughput is drawn."""
    restart: tuple[int, ...]
    """Numbers of partitions with which a broker is restarted."""

    @property
    def few_rounds(self) -> int:
        return min(self.rounds, 2)

    def records(self, size: int) -> int:
        return (self.small_mb if size < 500 else self.large_mb) * 1_000_000 // size


FULL = Scale(
    name="full",
    rounds=2,
    small_mb=120,
    large_mb=500,
    seconds=5,
    cold_gb=5,
    compact_mb=600,
    log_gb=(1, 5, 20),
    curve=(1, 10, 100, 1000, 5000),
    restart=(1000, 5000),
)
QUICK = Scale(
    name="quick",
    rounds=2,
    small_mb=50,
    large_mb=100,
    seconds=3,
    cold_gb=0.5,
    compact_mb=100,
    log_gb=(0.2, 1),
    curve=(1, 10, 100, 1000),
    restart=(1000,),
)
TINY = Scale(
    name="tiny",
    rounds=1,
    small_mb=5,
    large_mb=10,
    seconds=1,
    cold_gb=0.05,
    compact_mb=20,
    log_gb=(0.02, 0.05),
    curve=(1, 10),
    restart=(20,),
)
"""Only to check that the rows work; its figures mean nothing."""

SCALES = {scale.name: scale for scale in (FULL, QUICK, TINY)}
