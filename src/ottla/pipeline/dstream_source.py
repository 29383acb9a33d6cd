"""The frame of both sources of DStreams, on the driver: each batch is planned once and written down before it runs.

A source says what a new batch reads and how a task reads it. Batches, their log, the lock and the checkpoint are here.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from ottla.pipeline.batch_log import BatchLog
from ottla.pipeline.dstream_context import (
    Restorable,
    Settings,
    checked_for_checkpoint,
    oldest_needed_ms,
    running_context,
    time_ms,
)
from ottla.pipeline.jvm import java_streaming

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.streaming import StreamingContext

    from ottla.pipeline.jvm import JavaObject

B = TypeVar("B", bound=msgspec.Struct)


class BatchSource(Restorable, ABC, Generic[B]):
    """A source whose batch, computed again by a second output or after a restart, reads the same records."""

    def __init__(
        self,
        kind: type[B],
        settings: Settings,
        ssc: StreamingContext | None,
        directory: str | None,
    ) -> None:
        super().__init__()
        self._kind = kind
        self._settings = settings
        self._ssc = ssc
        self._directory = directory
        self._log: BatchLog[B] | None = None
        self._lock = threading.Lock()

    def state(self) -> Mapping[str, object]:
        """The arguments that every source has; the batches are in the log."""
        return {"settings": checked_for_checkpoint(self._settings), "directory": self.directory}

    @property
    def directory(self) -> str | None:
        """Where the source keeps its files: in the checkpoint directory, if the context has one."""
        if self._directory is None and self._ssc is not None:
            checkpoints = java_streaming(self._ssc).checkpointDir()
            if checkpoints is not None:
                self._directory = f"{checkpoints}/ottla-{type(self).__name__}-{self.identity}"
        return self._directory

    def batch(self, at: datetime, tick: RDD[object]) -> RDD[object]:
        """The RDD of a batch. A second call for the same time reads the same records."""
        at_ms = time_ms(at)
        with self._lock:
            self.changed = True
            log = self._opened_log()
            running = running_context()
            if running is not None:
                self._attach(tick.context, running)
            found = log.get(at_ms)
            if found is None:
                found = self._new_batch(at_ms, tick.context, log.newest)
                log.put(at_ms, found)
            if running is not None:
                before_ms = oldest_needed_ms(running, tick.context, at_ms)
                self._forgotten(log.forget(before_ms), log.newest)
        return self._rdd(found, tick)

    def _opened_log(self) -> BatchLog[B]:
        if self._log is None:
            where = self.directory
            self._log = BatchLog(self._kind, None if where is None else f"{where}-batches")
        return self._log

    @abstractmethod
    def _attach(self, context: SparkContext, running: JavaObject) -> None:
        """The streaming context runs: start what runs beside it. Called for each batch."""

    @abstractmethod
    def _new_batch(self, at_ms: int, context: SparkContext, newest: B | None) -> B:
        """What a batch reads that never ran before; `newest` is the batch before it."""

    def _forgotten(self, batches: Sequence[B], newest: B | None) -> None:
        """Spark cannot ask for these batches again."""

    @abstractmethod
    def _rdd(self, batch: B, tick: RDD[object]) -> RDD[object]:
        """The records of a batch."""
