"""The state of a Connect cluster: the replay of the records of the config topic and the status topic. No I/O.

Transitions of a connector: its config record creates it, `target-state` says what it should do, `commit` puts task
configurations in force, a null config deletes it. Statuses say what workers observe.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Final, NotRequired, TypedDict, TypeVar

from ottla.connect import formats
from ottla.json_types import Json, JsonObject, JsonTypeError, as_object, as_text, to_int

_logger = logging.getLogger(__name__)

STARTED: Final = "STARTED"
PAUSED: Final = "PAUSED"
STOPPED: Final = "STOPPED"
TARGETS: Final = (STARTED, PAUSED, STOPPED)

K = TypeVar("K")


class PartStatus(TypedDict):
    """The status of a connector or a task, as REST shows it."""

    state: str
    worker_id: str
    trace: NotRequired[str]
    version: NotRequired[str]
    id: NotRequired[int]
    """The number of a task; a connector has none."""


class ConnectorStatus(TypedDict):
    """Kafka's ConnectorStateInfo."""

    name: str
    connector: PartStatus
    tasks: list[PartStatus]
    type: str


@dataclass(frozen=True, slots=True)
class Status:
    """What a worker says of a connector or a task."""

    state: str
    worker_id: str
    generation: int = 0
    trace: str | None = None
    version: str | None = None

    def json(self) -> PartStatus:
        """As REST shows it."""
        shown: PartStatus = {"state": self.state, "worker_id": self.worker_id}
        if self.trace is not None:
            shown["trace"] = self.trace
        if self.version is not None:
            shown["version"] = self.version
        return shown

    def encode(self) -> bytes:
        """As the status topic has it."""
        return formats.status(self.state, self.worker_id, self.generation, self.trace, self.version)


@dataclass(frozen=True, slots=True)
class Change:
    """What a replayed record means for a worker: `what` is config, target, tasks, deleted, restart or logger."""

    what: str
    name: str
    level: str = ""
    """Of a logger."""
    include_tasks: bool = False
    only_failed: bool = False


@dataclass(slots=True)
class ClusterState:
    """The connectors, their targets and tasks, and all statuses."""

    connectors: dict[str, dict[str, str]] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    tasks: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    fencing: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    """How often each connector's configuration was written: a run of an older one must end."""
    statuses: dict[str, Status] = field(default_factory=dict)
    task_statuses: dict[tuple[str, int], Status] = field(default_factory=dict)
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    session_key: JsonObject | None = None
    _waiting_tasks: dict[str, dict[int, dict[str, str]]] = field(default_factory=dict)
    _foreign: set[bytes] = field(default_factory=set)

    # -- the config topic

    def replay_config(self, key: bytes, value: bytes | None) -> Change | None:
        """Applies a record of the config topic; tells what it changed."""
        name = key.decode("utf-8", "replace")
        found = _parsed(value)
        if value is not None and found is None:
            self._skip(key, "config")
            return None
        for prefix, handler in (
            (formats.CONNECTOR, self._replay_connector),
            (formats.TARGET_STATE, self._replay_target),
            (formats.FENCING, self._replay_fencing),
            (formats.COMMIT, self._replay_commit),
            (formats.RESTART, self._replay_restart),
            (formats.LOGGER, self._replay_logger),
            (formats.TASK, self._replay_task),
        ):
            if name.startswith(prefix):
                try:
                    return handler(name.removeprefix(prefix), found)
                except (KeyError, TypeError, ValueError, AttributeError):
                    self._skip(key, "config")
                    return None
        if name == formats.SESSION_KEY:
            self.session_key = found
        else:
            self._skip(key, "config")
        return None

    def _skip(self, key: bytes, topic: str) -> None:
        if key not in self._foreign and len(self._foreign) < 1000:
            self._foreign.add(key)
            _logger.warning("a record of the %s topic is not ours and is skipped: key %r", topic, key[:100])

    def _replay_connector(self, name: str, found: JsonObject | None) -> Change | None:
        if found is None:
            self.connectors.pop(name, None)
            self.targets.pop(name, None)
            self.tasks.pop(name, None)
            self._waiting_tasks.pop(name, None)
            self.fencing.pop(name, None)
            return Change("deleted", name)
        self.connectors[name] = _texts(found["properties"])
        self.targets.setdefault(name, STARTED)
        self.versions[name] = self.versions.get(name, 0) + 1
        return Change("config", name)

    def _replay_target(self, name: str, found: JsonObject | None) -> Change | None:
        if found is None:
            self.targets.pop(name, None)
            if name in self.connectors:
                self.targets[name] = STARTED
            return None
        state = found.get("state.v2") or found["state"]
        if state not in TARGETS:
            _logger.error("the target state %s of connector %s is unknown: it is ignored", state, name)
            return None
        self.targets[name] = state
        return Change("target", name) if name in self.connectors else None

    def _replay_task(self, name: str, found: JsonObject | None) -> Change | None:
        connector, _, number = name.rpartition("-")
        waiting = self._waiting_tasks.setdefault(connector, {})
        if found is None:
            waiting.pop(int(number), None)
        else:
            waiting[int(number)] = _texts(found["properties"])
        return None

    def _replay_commit(self, name: str, found: JsonObject | None) -> Change | None:
        if found is None:
            return None
        count = to_int(found["tasks"])
        waiting = self._waiting_tasks.pop(name, {})
        held = self.tasks.get(name, [])
        merged = {**dict(enumerate(held)), **waiting}
        if any(number not in merged for number in range(count)):
            _logger.error(
                "connector %s has %d tasks, but not all of their configurations: none is used", name, count
            )
            return None
        self.tasks[name] = [merged[number] for number in range(count)]
        return Change("tasks", name)

    def _replay_restart(self, name: str, found: JsonObject | None) -> Change | None:
        if found is None or name not in self.connectors:
            return None
        return Change(
            "restart",
            name,
            include_tasks=bool(found["include-tasks"]),
            only_failed=bool(found["only-failed"]),
        )

    def _replay_fencing(self, name: str, found: JsonObject | None) -> Change | None:
        if found is None:
            self.fencing.pop(name, None)
        else:
            self.fencing[name] = to_int(found["task-count"])
        return None

    def _replay_logger(self, name: str, found: JsonObject | None) -> Change | None:
        return Change("logger", name, str(found["level"])) if found else None

    # -- the status topic

    def replay_status(self, key: bytes, value: bytes | None) -> None:
        """Applies a record of the status topic."""
        name = key.decode("utf-8", "replace")
        found = _parsed(value)
        if value is not None and found is None:
            self._skip(key, "status")
            return
        try:
            if name.startswith(formats.STATUS_TOPIC):
                self._replay_topic(name.removeprefix(formats.STATUS_TOPIC), found)
            elif name.startswith(formats.STATUS_CONNECTOR):
                _put(self.statuses, name.removeprefix(formats.STATUS_CONNECTOR), found)
            elif name.startswith(formats.STATUS_TASK):
                connector, _, number = name.removeprefix(formats.STATUS_TASK).rpartition("-")
                _put(self.task_statuses, (connector, int(number)), found)
            else:
                self._skip(key, "status")
        except (KeyError, TypeError, ValueError):
            self._skip(key, "status")

    def _replay_topic(self, name: str, found: JsonObject | None) -> None:
        topic, _, connector = name.partition(":connector-")
        if found is None:
            self.topics.get(connector, {}).pop(topic, None)
        else:
            self.topics.setdefault(connector, {})[topic] = to_int(
                as_object(found["topic"])["discoverTimestamp"]
            )

    def tasks_of(self, name: str) -> list[tuple[int, Status]]:
        """The statuses of a connector's tasks, by number."""
        found = [(at, one) for (owner, at), one in self.task_statuses.items() if owner == name]
        return sorted(found, key=lambda one: one[0])


def _parsed(value: bytes | None) -> JsonObject | None:
    try:
        found = json.loads(value) if value is not None else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _texts(value: Json) -> dict[str, str]:
    if not isinstance(value, dict):
        raise JsonTypeError("the properties of a configuration must be an object")
    return {str(key): one for key, one in value.items()}


def _text(value: Json) -> str | None:
    return None if value is None else as_text(value)


def _put(table: dict[K, Status], key: K, found: JsonObject | None) -> None:
    if found is None:
        table.pop(key, None)
        return
    table[key] = Status(
        str(found["state"]),
        str(found["worker_id"]),
        to_int(found.get("generation") or 0),
        _text(found.get("trace")),
        _text(found.get("version")),
    )
