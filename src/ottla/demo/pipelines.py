"""The process that runs the pipelines, as three Streams applications in one Spark session.

It reports to its parent in lines of JSON, and ends after SIGTERM or when its parent has ended.
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
from typing import TYPE_CHECKING, Final

from ottla.demo.topics import CLICKS, CLICKS_PER_WINDOW, LINES, ORDERS, ORDERS_PER_ITEM, WORD_COUNTS
from ottla.parent_process import in_thread_when_parent_ends
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.progress import describe
from ottla.streams import StreamsApp, StreamsBuilder, StreamsError, StreamsSettings, tumbling

if TYPE_CHECKING:
    from ottla.pipeline.jars import Progress

WORD_COUNT_APPLICATION: Final = "demo-word-count"
CLICKS_APPLICATION: Final = "demo-click-count"
ORDERS_APPLICATION: Final = "demo-order-count"
WINDOW: Final = timedelta(seconds=10)
GRACE: Final = timedelta(seconds=5)

_TRIGGER_MS: Final = 2_000
_LOOK_S: Final = 0.5
_STOP_S: Final = 3.0
_RESTARTS: Final = 5
"""Failures in a row without a batch in between. A busy machine can cause one: a worker has ten seconds to start."""
_SPARK: Final = {
    "spark.driver.memory": "1g",
    # A demo may run for days: Spark's UI keeps only recent jobs.
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.sql.ui.retainedExecutions": "50",
}

Report = Callable[[dict[str, object]], None]


def word_count() -> StreamsBuilder:
    """Count each word."""
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
    """Count clicks per page in windows of ten seconds; a click may come five seconds late."""
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


def changes_per_item() -> StreamsBuilder:
    """Count the changes of the table `orders` per item."""
    b = StreamsBuilder()
    (
        b.stream(ORDERS, value_serde="json")
        .group_by(lambda _, order: order["item"], key_serde=str)
        .count(store="changes-per-item")
        .to_stream()
        .to(ORDERS_PER_ITEM, key_serde=str, value_serde="json")
    )
    return b


def window_key(page: str, start_ms: int) -> str:
    """Return a readable key of a page and the start of a window."""
    return f"{page}@{datetime.fromtimestamp(start_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _progress(report: Report) -> Progress:
    """Return a function that reports the progress of a download to the parent."""
    started_s = time.monotonic()

    def progress(name: str, done: int, total: int | None) -> None:
        report({"progress": describe(name, done, total, time.monotonic() - started_s)})

    return progress


def run(bootstrap_servers: str, state_dir: Path, report: Report) -> None:
    """Run the applications until SIGTERM."""
    from ottla.pipeline import spark_session
    from ottla.pipeline.session import session_settings

    master = os.environ.get("SPARK_MASTER") or "local[2]"
    report({"doing": "looking for Java and fetching the Kafka connector's jars"})
    session_settings(master, progress=_progress(report))
    report({"doing": "starting Spark"})
    scratch = state_dir / "scratch"
    # A killed process leaves its scratch files; one that ends by itself removes them.
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    spark = spark_session("ottla-demo", master=master, settings={**_SPARK, "spark.local.dir": str(scratch)})
    report({"ui": spark.sparkContext.uiWebUrl})
    settings = StreamsSettings(bootstrap_servers, master=master, state_dir=state_dir, trigger_ms=_TRIGGER_MS)
    apps = [
        StreamsApp(word_count(), WORD_COUNT_APPLICATION, settings).start(),
        StreamsApp(clicks_per_window(), CLICKS_APPLICATION, settings).start(),
        StreamsApp(changes_per_item(), ORDERS_APPLICATION, settings).start(),
    ]
    report({"running": [app.application_id for app in apps]})
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    failures: Counter[str] = Counter()
    try:
        while apps and not stopping.is_set():
            apps = [app for app in apps if _look_after(app, failures, report)]
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


def _look_after(app: StreamsApp, failures: Counter[str], report: Report) -> bool:
    """Wait a moment, and restart the application if it failed. Returns False if it was stopped from outside."""
    name = app.application_id
    try:
        if not app.wait(timeout_s=_LOOK_S):
            return True
    except StreamsError as problem:
        went_well = app.query is not None and app.query.lastProgress is not None
        failures[name] = 1 if went_well else failures[name] + 1
        if failures[name] > _RESTARTS:
            raise
        report({"again": f"{name} failed and was restarted ({problem})"})
        app.start()
        return True
    report({"stopped": name})
    return False


def main(bootstrap_servers: str, state_dir: str) -> int:
    # Other output to standard output (Spark, Python workers) belongs into the log.
    parent = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def report(what: dict[str, object]) -> None:
        parent.write(json.dumps(what) + "\n")

    in_thread_when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        run(bootstrap_servers, Path(state_dir).resolve(), report)
    except (PipelineError, StreamsError) as problem:
        report({"failed": str(problem)})
        return 1
    return 0


if __name__ == "__main__":
    # A normal exit of the interpreter would wait for calls into Spark that no longer matter.
    os._exit(main(*sys.argv[1:]))
