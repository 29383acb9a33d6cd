"""The herder: decides what REST requests mean for connectors, and writes the records that make it so.

It knows the replayed state and how to write records. Running connectors is the supervisor's part.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from ottla.connect import formats
from ottla.connect.backing import Backing
from ottla.connect.config.connector import ConfigInfos, validate_connector
from ottla.connect.config.worker import WorkerConfig
from ottla.connect.failures import AlreadyExists, BadRequest, ConnectError, NotFound
from ottla.connect.plugins import Plugins
from ottla.connect.state import PAUSED, STARTED, STOPPED, ConnectorStatus, PartStatus, Status
from ottla.json_types import JsonObject

_logger = logging.getLogger(__name__)

_TARGETS: Final = {"RUNNING": STARTED, "PAUSED": PAUSED, "STOPPED": STOPPED}
Resolve = Callable[[Mapping[str, str]], dict[str, str]]


class Forbidden(ConnectError):
    """A request that the configuration of the worker forbids."""


class NotLeader(ConnectError):
    """Only the leader may do this; `url` is where it is, if that is known."""

    def __init__(self, message: str, url: str | None) -> None:
        super().__init__(message)
        self.url = url


class Herder:
    """Connectors as REST sees them. Safe for several threads."""

    def __init__(self, config: WorkerConfig, plugins: Plugins, backing: Backing, resolve: Resolve) -> None:
        self.config = config
        self.plugins = plugins
        self._backing = backing
        self._resolve = resolve
        self.leader_url: Callable[[], str | None] = lambda: None
        """The leader's address; None if this worker leads."""

    # -- reading

    def connectors(self) -> list[str]:
        """The names of all connectors."""
        with self._backing.lock:
            return sorted(self._backing.state.connectors)

    def known(self, name: str, message: str = "Connector {} not found") -> dict[str, str]:
        """The configuration of a connector; NotFound if there is none."""
        with self._backing.lock:
            found = self._backing.state.connectors.get(name)
            if found is None:
                raise NotFound(message.format(name))
            return dict(found)

    def info(self, name: str) -> JsonObject:
        """Kafka's ConnectorInfo."""
        config = self.known(name)
        with self._backing.lock:
            tasks = self._backing.state.tasks.get(name, [])
            return {
                "name": name,
                "config": config,
                "tasks": [{"connector": name, "task": number} for number in range(len(tasks))],
                "type": self.type_of(config),
            }

    def type_of(self, config: Mapping[str, str]) -> str:
        """Source or sink; "unknown" if its class is not here."""
        try:
            return self.plugins.find(config.get("connector.class", ""), "source", "sink").kind
        except NotFound:
            return "unknown"

    def status(self, name: str) -> ConnectorStatus:
        """Kafka's ConnectorStateInfo."""
        with self._backing.lock:
            state = self._backing.state
            found = state.statuses.get(name)
            if found is None:
                raise NotFound(f"No status found for connector {name}")
            return {
                "name": name,
                "connector": found.json(),
                "tasks": [{"id": number, **one.json()} for number, one in state.tasks_of(name)],
                "type": self.type_of(state.connectors.get(name, {})),
            }

    def tasks(self, name: str) -> list[JsonObject]:
        """The configurations of a connector's tasks."""
        self.known(name)
        with self._backing.lock:
            return [
                {"id": {"connector": name, "task": number}, "config": dict(one)}
                for number, one in enumerate(self._backing.state.tasks.get(name, []))
            ]

    def task_status(self, name: str, task: int) -> PartStatus:
        """The status of a task."""
        with self._backing.lock:
            found = self._backing.state.task_statuses.get((name, task))
        if found is None:
            raise NotFound(f"No status found for task {name}-{task}")
        return {"id": task, **found.json()}

    def target(self, name: str) -> str:
        """What a connector should do."""
        with self._backing.lock:
            return self._backing.state.targets.get(name, STARTED)

    # -- configurations

    def validate(self, config: Mapping[str, str | None]) -> ConfigInfos:
        """The validation of a configuration, with providers' values."""
        given = {key: value for key, value in config.items() if value is not None}
        try:
            resolved: dict[str, str | None] = dict(self._resolve(given))
        except ConnectError as error:
            raise BadRequest(str(error)) from None
        resolved.update({key: None for key, value in config.items() if value is None})
        return validate_connector(self.plugins, resolved, self.config.originals)

    def put_config(
        self, name: str, config: Mapping[str, str | None], *, replace: bool, initial_state: str | None = None
    ) -> tuple[bool, JsonObject]:
        """Creates a connector, or changes it if `replace`; tells whether it is new, and what it is now."""
        target = None
        if initial_state is not None:
            if initial_state.upper() not in _TARGETS:
                raise BadRequest(f"initial_state is one of {', '.join(_TARGETS)}, not {initial_state}")
            target = _TARGETS[initial_state.upper()]
        found = self.validate(config)
        found.raise_errors()
        for text in found.unknown:
            _logger.warning("connector %s: the key %s", name, text)
        self.must_lead("Only the leader can set connector configs.")
        with self._backing.lock:
            there = name in self._backing.state.connectors
        if there and not replace:
            raise AlreadyExists(f"Connector {name} already exists")
        entries = [formats.connector_config(name, config)]
        if target is not None:
            entries.insert(0, formats.target_state(name, target))
        self._backing.write_configs(entries)
        return not there, self.info(name)

    def patch_config(self, name: str, patch: Mapping[str, str | None]) -> JsonObject:
        """Changes some keys; a null removes one."""
        merged: dict[str, str | None] = {**self.known(name), **patch}
        config = {key: value for key, value in merged.items() if value is not None}
        return self.put_config(name, config, replace=True)[1]

    def delete(self, name: str) -> None:
        """Deletes a connector; its offsets stay."""
        self.must_lead("Only the leader can delete connector configs.")
        self.known(name)
        self._backing.write_configs([formats.connector_config(name, None), formats.target_state(name, None)])

    def set_target(self, name: str, target: str) -> None:
        """Pauses, resumes or stops a connector."""
        self.known(name, "Unknown connector {}")
        self.must_lead(f"Only the leader can transition connectors to the {target} state.")
        if target == STOPPED:
            self._backing.write_configs(
                [formats.tasks_committed(name, 0), formats.target_state(name, target)]
            )
        elif self.target(name) != target:
            self._backing.write_configs([formats.target_state(name, target)])

    def put_tasks(self, name: str, configs: list[dict[str, str]]) -> None:
        """Puts task configurations in force, unless they are already."""
        with self._backing.lock:
            if self._backing.state.tasks.get(name) == configs:
                return
        entries = [formats.task_config(name, number, one) for number, one in enumerate(configs)]
        self._backing.write_configs([*entries, formats.tasks_committed(name, len(configs))])

    def put_fencing(self, name: str, count: int) -> None:
        """Records how many producers the next start has to fence."""
        with self._backing.lock:
            if self._backing.state.fencing.get(name) == count:
                return
        self._backing.write_configs([formats.fencing(name, count)])

    # -- restarts

    def restart_plan(self, name: str, *, include_tasks: bool, only_failed: bool) -> ConnectorStatus:
        """Asks for a restart; the status, with RESTARTING for what is restarted."""
        self.known(name, "Unknown connector: {}")
        self.must_lead("Only the leader can process restart requests.")
        try:
            shown = self.status(name)
        except NotFound:
            raise NotFound(f"Status for connector {name} not found") from None
        if not only_failed or shown["connector"]["state"] == "FAILED":
            shown["connector"]["state"] = "RESTARTING"
        for task in shown["tasks"] if include_tasks else ():
            if not only_failed or task["state"] == "FAILED":
                task["state"] = "RESTARTING"
        self._backing.write_configs(
            [formats.restart_request(name, include_tasks=include_tasks, only_failed=only_failed)]
        )
        return shown

    def restart(self, name: str) -> None:
        """Restarts a connector without its tasks."""
        self.known(name, "Unknown connector: {}")
        self.must_lead("Only the leader can process restart requests.")
        self._backing.write_configs([formats.restart_request(name, include_tasks=False, only_failed=False)])

    def restart_task(self, name: str, task: int) -> None:
        """Restarts a task."""
        self.known(name, "Unknown connector: {}")
        with self._backing.lock:
            there = task < len(self._backing.state.tasks.get(name, []))
        if not there:
            raise NotFound(f"Unknown task: {name}-{task}")
        self.must_lead("Only the leader can process restart requests.")
        self._backing.write_configs([formats.restart_request(name, include_tasks=True, only_failed=False)])

    # -- topics

    def topics(self, name: str) -> JsonObject:
        """The topics that a connector uses."""
        if not self.config.values["topic.tracking.enable"]:
            raise Forbidden("Topic tracking is disabled.")
        with self._backing.lock:
            return {name: {"topics": sorted(self._backing.state.topics.get(name, {}))}}

    def reset_topics(self, name: str) -> None:
        """Forgets them."""
        if not self.config.values["topic.tracking.enable"]:
            raise Forbidden("Topic tracking is disabled.")
        if not self.config.values["topic.tracking.allow.reset"]:
            raise Forbidden("Topic tracking reset is disabled.")
        with self._backing.lock:
            topics = list(self._backing.state.topics.get(name, {}))
        self._backing.write_statuses([formats.no_active_topic(topic, name) for topic in topics])

    # -- statuses

    def put_status(self, name: str, status: Status) -> None:
        """Writes the status of a connector."""
        self._backing.write_statuses([formats.status_of_connector(name, status.encode())])

    def put_task_statuses(self, name: str, status: Status) -> None:
        """Writes the status of all tasks of a connector, and removes those of tasks that are no more."""
        with self._backing.lock:
            # A leader on another worker may not have written them yet.
            count = max(1, len(self._backing.state.tasks.get(name, [])))
            old = [number for number, _ in self._backing.state.tasks_of(name) if number >= count]
        entries = [formats.status_of_task(name, number, status.encode()) for number in range(count)]
        self._backing.write_statuses(entries + [formats.status_of_task(name, number, None) for number in old])

    def remove_statuses(self, name: str, *, connector: bool) -> None:
        """Removes the statuses of a connector's tasks, and its own."""
        with self._backing.lock:
            tasks = [number for number, _ in self._backing.state.tasks_of(name)]
            topics = list(self._backing.state.topics.get(name, {})) if connector else []
        entries = [formats.status_of_task(name, number, None) for number in tasks]
        entries += [formats.no_active_topic(topic, name) for topic in topics]
        if connector:
            entries.append(formats.status_of_connector(name, None))
        self._backing.write_statuses(entries)

    def must_lead(self, message: str) -> None:
        """NotLeader if another worker leads."""
        url = self.leader_url()
        if url is not None:
            raise NotLeader(message, url)
