"""What a run of a connector gets from its worker: settings of clients, stores, limits, and how to report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.admin.settings import ClusterSettings
from ottla.connect.config.definitions import ConfigValues
from ottla.connect.config.overrides import ClientTuning
from ottla.connect.failures import TaskFailed
from ottla.connect.run.progress import Progress
from ottla.connect.spi import ReadLimit
from ottla.connect.stores import OffsetStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.connect.run.chain import ChainSpec


@dataclass(slots=True)
class RunContext:
    """One run of one connector."""

    name: str
    group_id: str
    """The worker's group: part of transactional ids."""
    config: Mapping[str, str] = field(repr=False)
    """With providers' values filled in."""
    values: ConfigValues = field(repr=False)
    """The framework's keys of the connector, parsed."""
    settings: ClusterSettings
    chain: ChainSpec
    limit: ReadLimit
    offsets: OffsetStore | None = None
    exactly_once: bool = True
    fence: int = 0
    """How many producers of earlier tasks have to be fenced."""
    tuning: ClientTuning = field(default_factory=ClientTuning)
    lineage: int = 0
    """Of a sink: the lineage that its last reset began, which a group without offsets cannot hold."""
    poll_s: float = 0.2
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    topic_creation: bool = True
    fenced: Callable[[int], None] = lambda count: None
    """Records how many producers the next start has to fence."""
    uses_topic: Callable[[str], None] = lambda topic: None
    stopping: StopSignal = field(default_factory=lambda: StopSignal())
    progress: Progress = field(default_factory=Progress)
    spark: Callable[[], SparkSession] | None = None
    """Gives the Spark session; None where there is none."""
    inline_max_bytes: int = 1 << 20
    jobs_elsewhere: bool = False
    """Whether this is a resident task: large cycles are then left to the worker, which can make jobs of them."""


def session_for(context: RunContext, kind: str) -> Callable[[], SparkSession]:
    """The session for a connector that needs the JVM; TaskFailed where the worker has none."""
    if context.spark is None:
        raise TaskFailed(
            f"{kind} reads and writes with Spark: start the worker with --master local[2], or set ottla.spark.master"
        )
    return context.spark


class LargeCycle(Exception):
    """A resident task has planned a cycle that the worker should make a job of. Nothing was written."""


class StopSignal(threading.Event):
    """Says that a run should pause or end. One listener is called at once, wherever the run is."""

    def __init__(self) -> None:
        super().__init__()
        self._listener: Callable[[], None] | None = None

    def on_set(self, listener: Callable[[], None] | None) -> None:
        """Calls a function each time that the signal is set; None for none."""
        self._listener = listener

    def set(self) -> None:
        """Sets the signal."""
        super().set()
        listener = self._listener
        if listener is not None:
            listener()
