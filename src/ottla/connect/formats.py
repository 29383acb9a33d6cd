"""The keys and values of the three topics, byte for byte as Kafka Connect writes them: JSON without schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.connect.data.java_text import Ordered, to_json
from ottla.json_types import Json

CONNECTOR: Final = "connector-"
TARGET_STATE: Final = "target-state-"
TASK: Final = "task-"
COMMIT: Final = "commit-"
RESTART: Final = "restart-connector-"
FENCING: Final = "tasks-fencing-"
LOGGER: Final = "logger-cluster-"
SESSION_KEY: Final = "session-key"
STATUS_CONNECTOR: Final = "status-connector-"
STATUS_TASK: Final = "status-task-"
STATUS_TOPIC: Final = "status-topic-"


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of one of the topics; a value of None is a tombstone."""

    key: bytes
    value: bytes | None


def _entry(key: str, value: Json) -> Entry:
    return Entry(key.encode(), None if value is None else to_json(value).encode())


def connector_config(name: str, config: Mapping[str, str | None] | None) -> Entry:
    """A connector's configuration; None deletes it."""
    value = None if config is None else Ordered(properties=dict(config))
    return _entry(CONNECTOR + name, value)


def target_state(name: str, state: str | None) -> Entry:
    """STARTED, PAUSED or STOPPED. Readers before KIP-875 look at `state` only and take STOPPED for PAUSED."""
    if state is None:
        return _entry(TARGET_STATE + name, None)
    old = "PAUSED" if state == "STOPPED" else state
    return _entry(TARGET_STATE + name, Ordered({"state": old, "state.v2": state}))


def task_config(name: str, task: int, config: Mapping[str, str]) -> Entry:
    """The configuration of a task; the entry of `tasks_committed` puts it in force."""
    return _entry(f"{TASK}{name}-{task}", Ordered(properties=dict(config)))


def tasks_committed(name: str, tasks: int) -> Entry:
    """Puts the task configurations before it in force."""
    return _entry(COMMIT + name, Ordered(tasks=tasks))


def restart_request(name: str, *, include_tasks: bool, only_failed: bool) -> Entry:
    """A request to restart a connector or its tasks."""
    return _entry(RESTART + name, Ordered({"include-tasks": include_tasks, "only-failed": only_failed}))


def fencing(name: str, task_count: int) -> Entry:
    """How many producers of source tasks have to be fenced before new ones start."""
    return _entry(FENCING + name, Ordered({"task-count": task_count}))


def logger_level(logger: str, level: str) -> Entry:
    """The level of a logger on all workers."""
    return _entry(LOGGER + logger, Ordered(level=level))


def status(state: str, worker_id: str, generation: int, trace: str | None, version: str | None) -> bytes:
    """The value of a status."""
    value = Ordered(state=state, trace=trace, worker_id=worker_id, generation=generation, version=version)
    return to_json(value).encode()


def status_of_connector(name: str, value: bytes | None) -> Entry:
    """The status of a connector."""
    return Entry(f"{STATUS_CONNECTOR}{name}".encode(), value)


def status_of_task(name: str, task: int, value: bytes | None) -> Entry:
    """The status of a task."""
    return Entry(f"{STATUS_TASK}{name}-{task}".encode(), value)


def active_topic(topic: str, name: str, task: int, found_ms: int) -> Entry:
    """A topic that a connector uses."""
    inner = Ordered(name=topic, connector=name, task=task, discoverTimestamp=found_ms)
    return _entry(f"{STATUS_TOPIC}{topic}:connector-{name}", Ordered(topic=inner))


def no_active_topic(topic: str, name: str) -> Entry:
    """Removes a topic from those that a connector uses."""
    return _entry(f"{STATUS_TOPIC}{topic}:connector-{name}", None)


def offset_key(name: str, partition_json: str) -> bytes:
    """The key of a source offset: the connector's name and the partition."""
    return f"[{to_json(name)},{partition_json}]".encode()


def offset_value(offset: Mapping[str, Json] | None) -> bytes | None:
    """The value of a source offset; None resets it."""
    return None if offset is None else to_json(dict(offset)).encode()


def parse_offset_key(key: bytes) -> tuple[str, str] | None:
    """The connector's name and the partition as JSON; None if the record is not an offset."""
    try:
        found = json.loads(key)
    except ValueError:
        return None
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[0], str):
        return None
    if found[1] is not None and not isinstance(found[1], dict):
        return None
    return found[0], to_json(found[1])
