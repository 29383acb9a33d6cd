"""The process that runs both pipelines, as two Streams applications in one Spark session.

It tells its parent what happens in lines of JSON, and ends when it is asked to or when its parent is gone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.demo.topics import CLICKS, CLICKS_PER_WINDOW, LINES, WORD_COUNTS
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.progress import describe
from ottla.streams import StreamsApp, StreamsBuilder, StreamsError, StreamsSettings, tumbling

if TYPE_CHECKING:
    from ottla.pipeline.jars import Progress

WORD_COUNT_APPLICATION: Final = "demo-word-count"
CLICKS_APPLICATION: Final = "demo-click-count"
WINDOW: Final = timedelta(seconds=10)
GRACE: Final = timedelta(seconds=5)

_TRIGGER_MS: Final = 2_000
_LOOK_S: Final = 0.5
_STOP_S: Final = 3.0
_RESTARTS: Final = 5
"""Failures in a row with no batch between them. A busy machine is enough for one: a worker has ten seconds to start."""
_SPARK: Final = {
    "spark.driver.memory": "1g",
    # A demo may run for days: Spark's pages forget what is old.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.sql.ui.retainedExecutions": "50",
}

Tell = Callable[[dict[str, Any]], None]


def word_count() -> StreamsBuilder:
    """How often each word was said."""
    b = StreamsBuilder()
    (
        b.stream(LINES)
        .flat_map_values(lambda line: line.lower().split())
        .group_by(lambda _, word: word)
        .count(store="word-counts")
        .to_stream()
        .to(WORD_COUNTS, value_serde="json")
    )
    return b


def clicks_per_window() -> StreamsBuilder:
    """Clicks per page and ten seconds; a click may come five seconds late."""
    b = StreamsBuilder()
    (
        b.stream(CLICKS, value_serde="json")
        .group_by(lambda _, click: click["page"], key_serde=str)
        .windowed_by(tumbling(WINDOW, grace=GRACE))
        .count(store="clicks-per-window")
        .to_stream(lambda page, _: window_key(page.key, page.start), name="by-window")
        .to(CLICKS_PER_WINDOW, key_serde=str, value_serde="json")
    )
    return b


def window_key(page: str, start_ms: int) -> str:
    """A page and the beginning of a window, for people to read."""
    return f"{page}@{datetime.fromtimestamp(start_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _progress(tell: Tell) -> Progress:
    """Passes the progress of a download on to the parent."""
    started_s = time.monotonic()

    def progress(name: str, done: int, total: int | None) -> None:
        tell({"progress": describe(name, done, total, time.monotonic() - started_s)})

    return progress


def run(bootstrap_servers: str, state_dir: Path, tell: Tell) -> None:
    """Start both, and look after them until SIGTERM."""
    from ottla.pipeline import spark_session
    from ottla.pipeline.session import session_settings

    master = os.environ.get("SPARK_MASTER") or "local[2]"
    tell({"doing": "looking for Java and fetching the Kafka connector's jars"})
    session_settings(master, progress=_progress(tell))
    tell({"doing": "starting Spark"})
    scratch = state_dir / "scratch"
    # Of a process that was killed; one that ends by itself cleans up.
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    spark = spark_session("ottla-demo", master=master, settings={**_SPARK, "spark.local.dir": str(scratch)})
    tell({"ui": spark.sparkContext.uiWebUrl})
    settings = StreamsSettings(bootstrap_servers, master=master, state_dir=state_dir, trigger_ms=_TRIGGER_MS)
    apps = [
        StreamsApp(word_count(), WORD_COUNT_APPLICATION, settings).start(),
        StreamsApp(clicks_per_window(), CLICKS_APPLICATION, settings).start(),
    ]
    tell({"running": [app.application_id for app in apps]})
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    failures: Counter[str] = Counter()
    try:
        while apps and not stopping.is_set():
            apps = [app for app in apps if _look_after(app, failures, tell)]
    finally:
        _stop(apps)


def _stop(apps: list[StreamsApp]) -> None:
    """End the queries, so that no transaction stays open. Spark itself ends with this process, by its own hooks."""
    deadline = time.monotonic() + _STOP_S
    stops = [threading.Thread(target=app.stop, daemon=True) for app in apps]
    for stop in stops:
        stop.start()
    for stop in stops:
        stop.join(max(0.0, deadline - time.monotonic()))


def _look_after(app: StreamsApp, failures: Counter[str], tell: Tell) -> bool:
    """Wait a moment; start it again if it failed, where it stopped. False when it was stopped from outside."""
    name = app.application_id
    try:
        if not app.wait(timeout_s=_LOOK_S):
            return True
    except StreamsError as problem:
        went_well = app.query is not None and app.query.lastProgress is not None
        failures[name] = 1 if went_well else failures[name] + 1
        if failures[name] > _RESTARTS:
            raise
        tell({"again": f"{name} failed and is started again ({problem})"})
        app.start()
        return True
    tell({"stopped": name})
    return False


def _end_with_parent() -> None:
    """Nothing is ever said on standard input: its end is the parent's."""
    # Not through sys.stdin, whose lock a thread must not hold when the interpreter ends.
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def main(bootstrap_servers: str, state_dir: str) -> int:
    # Whatever else writes to standard output (Spark, Python workers) belongs into the log.
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def tell(what: dict[str, Any]) -> None:
        told.write(json.dumps(what) + "\n")

    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        run(bootstrap_servers, Path(state_dir).resolve(), tell)
    except (PipelineError, StreamsError) as problem:
        tell({"failed": str(problem)})
        return 1
    return 0


if __name__ == "__main__":
    # Not through the interpreter's own end, which waits for calls into Spark that do not matter any more.
    os._exit(main(*sys.argv[1:]))
