"""The status of an application: the numbers of its last batch, in a file that other processes can read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ottla.streams.errors import StreamsError
from ottla.streams.type_variables import Unknown

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Status(TypedDict, total=False):
    """The content of `status.json`; the numbers are those of the last micro-batch."""

    application_id: str
    pid: int
    running: bool
    directory: str
    batch: int | None
    rows_per_second: float | None
    input_rows: int | None
    batch_ms: int | None
    state_rows: int
    lag: int
    time: str | None
    topics: dict[str, TopicStatus]
    ui: str | None
    error: str


class TopicStatus(TypedDict):
    """A source topic in the last micro-batch: records read, and records that wait."""

    rows: int
    lag: int


def status_of(query: StreamingQuery, application_id: str, directory: Path) -> Status:
    """The status of a query of this process."""
    status: Status = {
        "application_id": application_id,
        "pid": os.getpid(),
        "running": query.isActive,
        "directory": str(directory),
    }
    progress = query.lastProgress
    if progress is not None:
        shown: Mapping[str, Unknown] = (
            json.loads(progress.json) if hasattr(progress, "json") else dict(progress)
        )
        status["batch"] = shown.get("batchId")
        status["batch_ms"] = shown.get("durationMs", {}).get("triggerExecution")
        status["input_rows"], status["rows_per_second"] = _read(shown)
        status["state_rows"] = sum(one.get("numRowsTotal", 0) for one in shown.get("stateOperators", []))
        status["lag"] = _lag(shown)
        status["time"] = shown.get("timestamp")
        status["topics"] = _topics(shown)
    return status


def write_status(status: Status, directory: Path) -> None:
    """Replaces the status file of an application in one step."""
    directory.mkdir(parents=True, exist_ok=True)
    beside = directory / "status.new"
    beside.write_text(json.dumps(status, indent=1))
    os.replace(beside, directory / "status.json")


def read_status(directory: Path) -> Status:
    """The last status of a running or stopped application."""
    path = directory / "status.json"
    if not path.exists():
        raise StreamsError(f"there is no application {directory.name} in {directory.parent}")
    status: Status = json.loads(path.read_text())
    if status.get("running"):
        status["running"] = _is_alive(status["pid"])
    return status


def request_stop(directory: Path) -> None:
    """Makes a running application stop after its current step."""
    read_status(directory)
    (directory / "stop").write_text("")


def _read(progress: Mapping[str, Unknown]) -> tuple[int | None, float | None]:
    """The offsets that the last batch has read, in all and per second.

    Spark counts the rows of a source, which are not records where the source runs the first stage. Its own figures
    are the only ones for the first batch of a run from the beginning.
    """
    sources = progress.get("sources", [])
    took_ms = progress.get("durationMs", {}).get("triggerExecution")
    if not took_ms or not all(source.get("startOffset") for source in sources):
        return progress.get("numInputRows"), progress.get("processedRowsPerSecond")
    rows = sum(topic["rows"] for topic in _topics(progress).values())
    return rows, rows * 1000 / took_ms


def _lag(progress: Mapping[str, Unknown]) -> int:
    """The number of records in the topics beyond the last batch, when it was planned."""
    waiting = 0
    for source in progress.get("sources", []):
        latest, done = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
        waiting += sum(max(0, offset - done.get(place, offset)) for place, offset in latest.items())
    return waiting


def _topics(progress: Mapping[str, Unknown]) -> dict[str, TopicStatus]:
    """Records of the last batch and records beyond it, by topic."""
    found: dict[str, TopicStatus] = {}
    for source in progress.get("sources", []):
        names = ("startOffset", "endOffset", "latestOffset")
        start, end, latest = (_offsets(source.get(name)) for name in names)
        for place, offset in end.items():
            topic = found.setdefault(place[0], {"rows": 0, "lag": 0})
            topic["rows"] += max(0, offset - start.get(place, offset))
            topic["lag"] += max(0, latest.get(place, offset) - offset)
    return found


def _offsets(shown: str | dict[str, dict[str, int]] | None) -> dict[tuple[str, str], int]:
    """Spark's offsets by topic and partition; Spark gives them as JSON or as JSON in a string."""
    known = json.loads(shown) if isinstance(shown, str) else shown or {}
    return {(topic, number): offset for topic, ends in known.items() for number, offset in ends.items()}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
