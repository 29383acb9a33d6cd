"""The supervisor: starts, stops and restarts the connectors that belong to this worker, as the state says.

Changes arrive on a queue, so that no caller waits for a connector that takes its time to stop.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.connect import formats
from ottla.connect.backing import Backing
from ottla.connect.config.connector import framework_keys
from ottla.connect.config.definitions import ConfigValues
from ottla.connect.config.overrides import client_settings, client_tuning
from ottla.connect.config.secrets import secrets_of
from ottla.connect.config.worker import WorkerConfig
from ottla.connect.failures import ConnectError
from ottla.connect.herder import Herder
from ottla.connect.offsets import stored_lineage
from ottla.connect.run.context import RunContext, StopSignal
from ottla.connect.run.runner import Backoff, ConnectorRunner, Prepared, Run
from ottla.connect.spi import Connector, ReadLimit, SinkConnector, SourceConnector
from ottla.connect.state import STOPPED, Change, Status
from ottla.connect.stores import OffsetStore, TopicOffsetStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.connect.run.resident_pool import ResidentPool

_logger = logging.getLogger(__name__)

_CONVERTER_KEYS: Final = ("key.converter", "value.converter", "header.converter")


@dataclass(slots=True)
class _TaskReports:
    """The last report of a connector's tasks, written again when the leader has put other tasks in force."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    last: tuple[str, str | None] | None = None


@dataclass(slots=True)
class _Running:
    runner: ConnectorRunner
    version: int
    reports: _TaskReports


class Supervisor:
    """Owns the runners of a worker. `owns` says which connectors belong to it."""

    def __init__(
        self,
        config: WorkerConfig,
        herder: Herder,
        backing: Backing,
        store_of: Callable[[Mapping[str, str]], OffsetStore],
        resolve: Callable[[Mapping[str, str]], tuple[dict[str, str], list[str]]],
    ) -> None:
        self._config = config
        self._herder = herder
        self._backing = backing
        self._store_of = store_of
        self._resolve = resolve
        self._running: dict[str, _Running] = {}
        self._zombies: dict[str, ConnectorRunner] = {}
        """Runs that did not end in time. STOPPED is reported when they have ended."""
        self._queue: queue.Queue[Change | None] = queue.Queue()
        self._thread = threading.Thread(target=self._main, name="supervisor", daemon=True)
        self.owns: Callable[[str], bool] = lambda name: True
        self.generation: Callable[[], int] = lambda: 0
        self.worker_id = ""
        self.spark: Callable[[], SparkSession] | None = None
        self.residents: ResidentPool | None = None

    def start(self) -> None:
        """Starts the thread that applies changes."""
        self._thread.start()

    def changed(self, change: Change) -> None:
        """A record changed something."""
        self._queue.put(change)

    def runner(self, name: str) -> ConnectorRunner | None:
        """The runner of a connector, if it runs here."""
        found = self._running.get(name)
        return found.runner if found is not None else None

    def stop(self) -> None:
        """Stops all connectors."""
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _main(self) -> None:
        while (change := self._queue.get()) is not None:
            try:
                self._apply(change)
            except Exception:
                _logger.exception("connector %s could not be changed", change.name)
        timeout_s = self._config.values["task.shutdown.graceful.timeout.ms"] / 1000
        for name in list(self._running):
            self._halt(name, timeout_s)

    def _apply(self, change: Change) -> None:
        name = change.name
        if change.what == "restart":
            self._restart(name, change.include_tasks, change.only_failed)
            return
        with self._backing.lock:
            state = self._backing.state
            there = name in state.connectors and self.owns(name)
            target, version = state.targets.get(name), state.versions.get(name, 0)
        self._publish_if_leading(name, target)
        running = self._running.get(name)
        if change.what == "tasks":
            if running is not None and there:
                self._report_tasks(name, running.reports)
            return
        if running is not None and (not there or target == STOPPED or running.version != version):
            self._halt(name, self._config.values["task.shutdown.graceful.timeout.ms"] / 1000)
            running = None
        if change.what == "deleted" and self._herder.leader_url() is None:
            self._herder.remove_statuses(name, connector=True)
        if not there or target is None:
            return
        if target == STOPPED and name in self._zombies:
            return
        if target == STOPPED:
            self._herder.put_status(name, self._status("STOPPED", None, name))
            self._herder.remove_statuses(name, connector=False)
        elif running is None:
            self._launch(name, target, version)
        else:
            running.runner.set_target(target)

    def _restart(self, name: str, include_tasks: bool, only_failed: bool) -> None:
        running = self._running.get(name)
        if running is None:
            return
        with self._backing.lock:
            state = self._backing.state
            status = state.statuses.get(name)
            failed = status is not None and status.state == "FAILED"
            tasks_failed = any(one.state in ("FAILED", "RESTARTING") for _, one in state.tasks_of(name))
        if failed or (include_tasks and (tasks_failed or not only_failed)):
            running.runner.restart()

    def _report_tasks(
        self, name: str, reports: _TaskReports, new: tuple[str, str | None] | None = None
    ) -> None:
        """Writes a new report of the tasks, or the last one once more."""
        with reports.lock:
            reports.last = new or reports.last
            if reports.last is not None:
                self._herder.put_task_statuses(name, self._status(*reports.last, name))

    def _launch(self, name: str, target: str, version: int) -> None:
        reports = _TaskReports()

        def report(what: str, state: str, trace: str | None) -> None:
            with self._backing.lock:
                state_now = self._backing.state
                if state_now.versions.get(name, 0) != version or not self.owns(name):
                    return
                known = state_now.statuses.get(name)
                if known is not None and known.generation > self.generation():
                    return  # another worker has it: this one was away, and does not know yet
            if what == "connector":
                self._herder.put_status(name, self._status(state, trace, name))
            else:
                self._report_tasks(name, reports, (state, trace))

        values = self._config.values
        backoff = Backoff(
            values["ottla.restart.backoff.ms"] / 1000, values["ottla.restart.backoff.max.ms"] / 1000
        )
        runner = ConnectorRunner(
            name,
            lambda stop: self._prepare(name, stop),
            report,
            target,
            backoff,
            contested=self._config.distributed,
        )
        self._running[name] = _Running(runner, version, reports)
        runner.start()

    def _halt(self, name: str, timeout_s: float) -> None:
        running = self._running.pop(name)
        if running.runner.stop(timeout_s):
            return
        _logger.warning(
            "connector %s did not stop within %.0f s: its transactions get fenced", name, timeout_s
        )
        self._zombies[name] = running.runner

        def wait() -> None:
            running.runner.stop(threading.TIMEOUT_MAX)
            if self._zombies.get(name) is running.runner:
                del self._zombies[name]
                self.changed(Change("config", name))

        threading.Thread(target=wait, name=f"zombie-{name}", daemon=True).start()

    def _status(self, state: str, trace: str | None, name: str) -> Status:
        try:
            config = self._herder.known(name)
            version = self._herder.plugins.find(config.get("connector.class", ""), "source", "sink").version
        except ConnectError:
            version = None
        return Status(state, self.worker_id, self.generation(), trace, version)

    def make(self, name: str, config: Mapping[str, str]) -> tuple[Connector, dict[str, str], list[str]]:
        """The connector of a configuration, the configuration with providers' values, and those values."""
        resolved, secrets = self._resolve(config)
        connector = self._herder.plugins.connector(resolved["connector.class"])(resolved)
        return connector, resolved, secrets

    def _prepare(self, name: str, stopping: StopSignal) -> Prepared:
        raw = self._herder.known(name)
        connector, config, secrets = self.make(name, raw)
        values = {key: one.value for key, one in framework_keys(connector.kind).validate(config).items()}
        self.publish_tasks(name, raw, connector)
        context = self._context(name, config, values, connector)
        context.stopping = stopping
        # Arrow takes a third of a worker's memory: one without connectors does without it.
        from ottla.connect.run.sink import SinkRun
        from ottla.connect.run.source import SourceRun

        if isinstance(connector, SourceConnector):
            context.offsets = self._store_of(config)
            own = connector.own_run(context)
            run = own or self._placed(config, context, connector, lambda: SourceRun(context, connector))
        else:
            assert isinstance(connector, SinkConnector)
            context.lineage = stored_lineage(self._store_of(config), name)
            run = self._placed(config, context, connector, lambda: SinkRun(context, connector))
        return Prepared(run, secrets_of(config, secrets), context.progress)

    def _placed(
        self,
        config: dict[str, str],
        context: RunContext,
        connector: SourceConnector | SinkConnector,
        here: Callable[[], Run],
    ) -> Run:
        """The run in a resident Spark task, or in this process where there is none or the offsets are in a file."""
        store = context.offsets
        in_topic = store is None or isinstance(store, TopicOffsetStore)
        if self.residents is None or connector.needs_jvm or not in_topic:
            return here()
        from ottla.connect.run.resident_pool import ResidentRun
        from ottla.connect.run.resident_task import Order

        return ResidentRun(self.residents, Order.of(config["connector.class"], context), context, here)

    def _publish_if_leading(self, name: str, target: str | None) -> None:
        """In a cluster only the leader writes task configurations, also of connectors that run elsewhere."""
        if not self._config.distributed or target in (None, STOPPED) or self._herder.leader_url() is not None:
            return
        try:
            raw = self._herder.known(name)
            self.publish_tasks(name, raw, self.make(name, raw)[0])
        except ConnectError as error:
            _logger.warning("connector %s has no tasks yet: %s", name, error)

    def publish_tasks(self, name: str, raw: Mapping[str, str], connector: Connector) -> None:
        """Puts the tasks of a connector in force. They hold the keys as they were given, no provider's value."""
        if self._herder.leader_url() is not None:
            return
        most = int(framework_keys(connector.kind).validate(connector.config)["tasks.max"].value)
        count = max(1, min(most, len(connector.task_configs(most))))
        self._herder.put_tasks(name, [{**raw, "task.class": connector.task_class} for _ in range(count)])

    def _context(
        self, name: str, config: dict[str, str], values: ConfigValues, connector: Connector
    ) -> RunContext:
        from ottla.connect.run.chain import ChainSpec

        worker = self._config
        with self._backing.lock:
            fence = self._backing.state.fencing.get(name, 0)
            tasks = len(self._backing.state.tasks.get(name, []))
        converters = {
            key: value for key, value in worker.originals.items() if key.startswith(_CONVERTER_KEYS)
        }
        if values.get("transaction.boundary.interval.ms", 0) is None:
            values = {**values, "transaction.boundary.interval.ms": worker.values["offset.flush.interval.ms"]}
        return RunContext(
            name=name,
            group_id=worker.group_id,
            config=config,
            values=values,
            settings=client_settings(worker, config, connector.kind),
            tuning=client_tuning(worker, config, connector.kind),
            chain=ChainSpec(
                name,
                config,
                converters,
                tuple(worker.values["plugin.path"] or ()),
                is_sink=connector.kind == "sink",
            ),
            limit=ReadLimit(worker.values["ottla.cycle.max.records"], worker.values["ottla.cycle.max.bytes"]),
            exactly_once=worker.exactly_once,
            fence=max(fence, tasks),
            poll_s=worker.values["ottla.poll.interval.ms"] / 1000,
            topic_creation=bool(worker.values["topic.creation.enable"]),
            fenced=lambda count: self._fenced(name, count),
            uses_topic=lambda topic: self._uses_topic(name, topic),
            spark=self.spark,
            inline_max_bytes=worker.values["ottla.inline.max.bytes"],
        )

    def _fenced(self, name: str, count: int) -> None:
        if self._herder.leader_url() is None:
            self._herder.put_fencing(name, count)

    def _uses_topic(self, name: str, topic: str) -> None:
        if not self._config.values["topic.tracking.enable"]:
            return
        with self._backing.lock:
            if topic in self._backing.state.topics.get(name, {}):
                return
        now_ms = time.time_ns() // 1_000_000
        self._backing.write_statuses([formats.active_topic(topic, name, 0, now_ms)])
