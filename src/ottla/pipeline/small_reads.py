"""Small batches of a stream are read by the process that plans them, and Spark gets their rows with the plan.

Otherwise each batch waits for a Python worker, however little it reads. A read counts as small by its offsets and by
how long recent ones took; one that turns out large, or fails, is left to tasks.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger(__name__)

MOST_OFFSETS: Final = 2_000
MOST_BYTES: Final = 2 << 20
"""The most that is read here, as rows for Spark; tasks read more than that faster."""
FETCH_BYTES: Final = 1 << 20
"""The most of one response of a broker."""
MOST_SECONDS: Final = 0.1
"""How long a read may take: several tasks share what takes longer."""

_ALWAYS_S: Final = 0.02
"""What every read may take, whatever its size: requests to brokers, the loading of a step."""
_REMEMBERED: Final = 8


class SmallReads:
    """Learns from each read how long the next one may take.

    >>> SmallReads().expects(offsets=10)
    True
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds_per_offset: deque[float] = deque(maxlen=_REMEMBERED)

    def expects(self, offsets: int) -> bool:
        """Whether a read of so many offsets is likely to be small."""
        if not 0 < offsets <= MOST_OFFSETS:
            return False
        slowest = max(self._seconds_per_offset, default=0.0)
        if offsets * slowest <= MOST_SECONDS:
            return True
        # One slow read leaves one batch to tasks: the first one, for example, loads libraries.
        self._seconds_per_offset.remove(slowest)
        return False

    def collect(self, offsets: int, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch] | None:
        """The rows of a read; None if it is for tasks to do."""
        begun = self._clock()
        found: list[pa.RecordBatch] = []
        try:
            for batch in self._within_bytes(batches):
                found.append(batch)
        except _TooLarge:
            self._learn(offsets, MOST_SECONDS)
            return None
        except Exception:
            # Tasks meet the same failure, and report it as Spark does.
            _logger.debug("a small batch could not be read where it was planned", exc_info=True)
            return None
        self._learn(offsets, self._clock() - begun - _ALWAYS_S)
        return found

    def _learn(self, offsets: int, seconds: float) -> None:
        self._seconds_per_offset.append(max(0.0, seconds) / offsets)

    def _within_bytes(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        size = 0
        for batch in batches:
            size += batch.nbytes
            if size > MOST_BYTES:
                raise _TooLarge
            yield batch


class _TooLarge(Exception):
    """The rows are more than this process should pass on."""
