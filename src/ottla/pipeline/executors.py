"""Says what a job waits for when the Spark cluster gives it no executor: Spark itself would only wait."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ottla.pipeline.jvm import java_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

PATIENCE_S: Final = 20.0
_MEMORY: Final = "spark.executor.memory"
_CORES: Final = "spark.executor.cores"


@contextmanager
def explained_waiting(session: SparkSession, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Around a job: if it still runs after a while and there is no executor, the log says so and how to help."""
    if (session.sparkContext.master or "").startswith("local"):
        yield
        return
    timer = threading.Timer(patience_s, say_if_none, (session, patience_s))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def executors(session: SparkSession) -> int:
    """How many executors the session has now."""
    # The driver has a block manager too, and is counted.
    return int(java_context(session.sparkContext).getExecutorMemoryStatus().size()) - 1


def say_if_none(session: SparkSession, patience_s: float) -> None:
    """Log that there is no executor, and what would bring one."""
    if executors(session) > 0:
        return
    conf = session.sparkContext.getConf()
    _logger.warning(
        "Spark has had no executor for %.0f s: no worker of %s has %s of memory and %s free. Start a worker, or set %s"
        " and %s lower",
        patience_s,
        session.sparkContext.master,
        conf.get(_MEMORY, "1g"),
        f"{conf.get(_CORES, '1')} core(s)",
        _MEMORY,
        _CORES,
    )
