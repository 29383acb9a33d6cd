"""Where lanes run: in threads of this process, or as tasks of Spark. The lanes are the same."""

from __future__ import annotations

import logging
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

from ottla.admin.cluster import Cluster
from ottla.errors import ErrorCode
from ottla.mirror.lanes import LaneOutcome, Share, run_lane

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

_REPORT: Final = "outcome binary"
_RETRIED: Final = "Spark started a lane a second time within one cycle"


class Runner(Protocol):
    """Runs one cycle of lanes."""

    @property
    def most_lanes(self) -> int | None:
        """How many lanes are worth it; None if `tasks.max` alone decides."""

    def run(self, shares: Sequence[Share], ended: threading.Event) -> list[LaneOutcome]:
        """All outcomes, also of lanes that failed."""

    def close(self) -> None:
        """Closes connections."""


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ThreadRunner:
    """Lanes as threads, with connections that stay open between cycles.

    One lane reads and writes at the same time and takes all its partitions in one request. Threads share an
    interpreter: with more lanes than cores the same records cost more requests and more CPU.
    """

    def __init__(self, most_lanes: int | None = None) -> None:
        self.most_lanes = most_lanes or max(1, _cores() - 1)
        self._open: dict[tuple[int, str, str], tuple[Cluster, Cluster]] = {}

    def run(self, shares: Sequence[Share], ended: threading.Event) -> list[LaneOutcome]:
        """All outcomes."""
        if not shares:
            return []
        with ThreadPoolExecutor(len(shares), "mirror-lane") as pool:
            return list(pool.map(lambda share: self._run(share, ended), shares))

    def _run(self, share: Share, ended: threading.Event) -> LaneOutcome:
        key = share.lane, str(share.source.bootstrap), str(share.target.bootstrap)
        if key not in self._open:
            self._open[key] = Cluster(share.source), Cluster(share.target)
        source, target = self._open[key]
        outcome = run_lane(share, source, target, ended.is_set)
        if outcome.failure is not None:
            # Responses may still arrive that no request waits for.
            self._open.pop(key)
            source.close()
            target.close()
        return outcome

    def close(self) -> None:
        """Closes all connections."""
        for pair in self._open.values():
            for one in pair:
                one.close()
        self._open.clear()


class SparkRunner:
    """Lanes as tasks of one Spark job a cycle. Records pass neither the JVM nor the driver."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        context = session.sparkContext
        # The cores of a cluster come and go; those of this machine do not.
        local = (context.master or "").startswith("local")
        self.most_lanes: int | None = context.defaultParallelism if local else None
        self._said_waiting = False

    def run(self, shares: Sequence[Share], ended: threading.Event) -> list[LaneOutcome]:
        """All outcomes; if the job is lost, every lane of it has failed."""
        if not shares or ended.is_set():
            return []
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from ottla.pipeline.executors import explained_waiting

        count = len(shares)
        task = _task([pickle.dumps(share) for share in shares])
        try:
            with explained_waiting(self._session):
                rows = self._session.range(0, count, 1, count).mapInArrow(task, _REPORT).collect()
            found: list[LaneOutcome] = [pickle.loads(row["outcome"]) for row in rows]
        except (Py4JError, PySparkException, OSError, EOFError) as error:
            said = (str(error).splitlines() or [type(error).__name__])[0][:300]
            return [
                LaneOutcome(share.lane, (), f"the Spark job was lost: {said}", ErrorCode.UNKNOWN_SERVER_ERROR)
                for share in shares
            ]
        self._say_waiting(count)
        reported = {one.lane for one in found}
        return found + [
            LaneOutcome(share.lane, (), "the Spark task gave no report", ErrorCode.UNKNOWN_SERVER_ERROR)
            for share in shares
            if share.lane not in reported
        ]

    def _say_waiting(self, count: int) -> None:
        cores = self._session.sparkContext.defaultParallelism
        if count > cores and not self._said_waiting:
            self._said_waiting = True
            _logger.warning("Spark has %d cores for %d lanes: they take turns, lower tasks.max", cores, count)

    def close(self) -> None:
        """Nothing: the session belongs to its maker."""


def _task(shares: Sequence[bytes]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        from ottla.pipeline.failures import TaskRetried
        from ottla.pipeline.tasks import brokers_for, forget_brokers

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() > 0:
            # The first attempt may still be writing: the driver fences both and reads the tails.
            raise TaskRetried(_RETRIED)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                share: Share = pickle.loads(shares[number])
                source, target = brokers_for(share.source), brokers_for(share.target)
                outcome = run_lane(share, source, target, lambda: False)
                if outcome.failure is not None:
                    forget_brokers(share.source)
                    forget_brokers(share.target)
                yield pa.RecordBatch.from_arrays(
                    [pa.array([pickle.dumps(outcome)], pa.binary())], names=["outcome"]
                )

    return copy
