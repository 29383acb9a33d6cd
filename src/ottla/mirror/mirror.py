"""A whole mirror: its flows, each with a thread that drives the copying and one for groups, settings and heartbeats."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.retries import Backoff
from ottla.connect.failures import ConnectError
from ottla.errors import ApiException
from ottla.mirror.acls import sync_acls
from ottla.mirror.config import FlowConfig, MirrorConfig
from ottla.mirror.failures import LaneFenced, MirrorError, passes
from ottla.mirror.flow import Flow, FlowProgress
from ottla.mirror.groups import GroupSync
from ottla.mirror.heartbeats import Heartbeats
from ottla.mirror.runners import Runner, ThreadRunner
from ottla.mirror.topics import sync_configs

_logger = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 15.0
_TICK_S: Final = 0.25
_ONCE_PATIENCE_S: Final = 120.0
"""How long a mirror that runs once waits for clusters that do not answer."""

MakeRunner = Callable[[FlowConfig], Runner]


class Interval:
    """A job that is due now and then."""

    def __init__(self, every_s: float, job: Callable[[], object]) -> None:
        self._every_s = every_s
        self._job = job
        self._due_s = 0.0

    def run_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._due_s:
            self._job()
            self._due_s = now + self._every_s


@dataclass(slots=True)
class FlowDriver:
    """Drives one flow until it is ended, and starts it again after failures that pass."""

    config: FlowConfig
    make_runner: MakeRunner
    ended: threading.Event
    once: bool = False
    flow: Flow | None = None
    failure: str | None = None
    prepared: threading.Event = field(default_factory=threading.Event)
    failing_since_s: float | None = None

    def run(self) -> None:
        """Returns when ended, when a flow that runs once is done, or with `failure` when it cannot go on."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while not self.ended.is_set():
            try:
                if self.config.enabled:
                    self._mirror()
                else:
                    self._beat_only()
                return
            except (MirrorError, ConnectError, LaneFenced) as error:
                self.failure = str(error)
                _logger.error("%s: %s", self.config.name, error)
                return
            except ApiException as error:
                if self._is_final(error):
                    self.failure = str(error)
                    _logger.error("%s: %s", self.config.name, error)
                    return
                pause_s = backoff.next_s()
                _logger.warning("%s: %s; again in %.1f s", self.config.name, error, pause_s)
                self.ended.wait(pause_s)
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"
                _logger.exception("%s ends", self.config.name)
                return

    def _is_final(self, error: ApiException) -> bool:
        """Whether waiting helps no more: the error does not pass, or a run that is to end soon has waited enough."""
        if not passes(error.code):
            return True
        now_s = time.monotonic()
        if self.failing_since_s is None:
            self.failing_since_s = now_s
        return self.once and now_s - self.failing_since_s > _ONCE_PATIENCE_S

    def _mirror(self) -> None:
        runner = self.make_runner(self.config)
        flow = self.flow = Flow(self.config, runner)
        side = Side(flow)
        clean = False
        try:
            flow.prepare()
            self.prepared.set()
            self.failing_since_s = None
            if self.once:
                self._copy_once(flow)
                side.finish()
            else:
                side.start()
                self._follow(flow)
                side.last()
            clean = True
        finally:
            side.stop()
            flow.close(clean=clean)
            runner.close()

    def _copy_once(self, flow: Flow) -> None:
        until = flow.ends()
        while not self.ended.is_set():
            flow.cycle(self.ended, until)
            left = [
                place
                for place, end in until.items()
                if place in flow.partitions
                and flow.partitions[place].stopped is None
                and flow.partitions[place].position.upstream < end
            ]
            if not left:
                return

    def _follow(self, flow: Flow) -> None:
        refresh = Interval(max(1, self.config.number("refresh.topics.interval.seconds")), flow.refresh_topics)
        refresh.run_if_due()
        while not self.ended.is_set():
            flow.cycle(self.ended)
            if self.config.flag("refresh.topics.enabled"):
                refresh.run_if_due()
            if not any(state.stopped is None for state in flow.partitions.values()):
                self.ended.wait(1.0)

    def _beat_only(self) -> None:
        """A flow that mirrors nothing still sends the heartbeats that the other direction copies."""
        self.prepared.set()
        if self.once:
            return
        beats = Heartbeats(self.config)
        every_s = max(1, self.config.number("emit.heartbeats.interval.seconds"))
        try:
            while not self.ended.is_set():
                beats.beat()
                self.ended.wait(every_s)
        finally:
            beats.close()


def groups_every_s(config: FlowConfig) -> float:
    """How often groups are looked at: one look serves their checkpoints and their positions at the target."""
    both = ("sync.group.offsets", "emit.checkpoints")
    return max(
        1, min(config.number(f"{one}.interval.seconds") for one in both if config.flag(f"{one}.enabled"))
    )


class Side:
    """Groups, settings, access and heartbeats of a flow, beside its copying."""

    def __init__(self, flow: Flow) -> None:
        config = flow.config
        self._flow = flow
        self._config = config
        self._source = Cluster(config.source_settings)
        self._target = Cluster(config.target_settings)
        self._groups = GroupSync(flow)
        self._beats = Heartbeats(config)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mirror-side-{config.name}", daemon=True)
        self._jobs: list[tuple[str, Interval]] = [
            (name, Interval(every_s, job)) for name, every_s, job in self._wanted()
        ]

    def _wanted(self) -> list[tuple[str, float, Callable[[], object]]]:
        config, flow = self._config, self._flow
        wanted: list[tuple[str, float, Callable[[], object]]] = []

        def every_s(key: str) -> float:
            return max(1, config.number(f"{key}.interval.seconds"))

        if config.flag("emit.heartbeats.enabled"):
            wanted.append(("heartbeats", every_s("emit.heartbeats"), self._beats.beat))
        if config.flag("sync.group.offsets.enabled") or config.flag("emit.checkpoints.enabled"):
            wanted.append(("groups", groups_every_s(config), self._groups.sync))
        if config.flag("sync.topic.configs.enabled"):

            def sync() -> None:
                sync_configs(config, self._source, self._target, dict(flow.topics))

            wanted.append(("settings of topics", every_s("sync.topic.configs"), sync))
        if config.flag("sync.topic.acls.enabled"):

            def acls() -> None:
                sync_acls(config, self._source, self._target, set(flow.topics))

            wanted.append(("access", every_s("sync.topic.acls"), acls))
        return wanted

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(_TICK_S):
            self._run_due()

    def _run_due(self) -> None:
        for name, job in self._jobs:
            try:
                job.run_if_due()
            except (ApiException, ConnectError) as error:
                # It is due again at the next tick: a failure never ends it in silence.
                _logger.warning("%s: %s: %s", self._config.name, name, error)
                self._ended.wait(1.0)

    def finish(self) -> None:
        """Everything once, for a mirror that runs once."""
        for name, job in self._jobs:
            backoff, deadline_s = Backoff(_FIRST_PAUSE_S, 5.0), time.monotonic() + _ONCE_PATIENCE_S
            while True:
                try:
                    job.run_if_due()
                    break
                except ApiException as error:
                    if not passes(error.code) or time.monotonic() > deadline_s:
                        raise MirrorError(f"{self._config.name}: {name}: {error}") from error
                self._ended.wait(backoff.next_s())

    def last(self) -> None:
        """Ends, with the last positions of groups."""
        self._join()
        if self._config.flag("sync.group.offsets.enabled"):
            try:
                self._groups.sync()
            except ApiException as error:
                _logger.warning("%s: the last positions of groups: %s", self._config.name, error)

    def _join(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(60.0)

    def stop(self) -> None:
        """Ends, and closes connections."""
        self._join()
        self._groups.close()
        self._beats.close()
        self._source.close()
        self._target.close()


class Mirror:
    """The flows of a file that run in this process."""

    def __init__(
        self,
        config: MirrorConfig,
        *,
        targets: Sequence[str] | None = None,
        once: bool = False,
        make_runner: MakeRunner | None = None,
    ) -> None:
        self.ended = threading.Event()
        made = make_runner or (lambda _: ThreadRunner())
        config.copying_into(targets)
        self.drivers = [FlowDriver(flow, made, self.ended, once) for flow in config.flows_into(targets)]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begins all flows."""
        for driver in self.drivers:
            thread = threading.Thread(target=driver.run, name=f"mirror-{driver.config.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether all flows have ended within the time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Ends all flows cleanly."""
        self.ended.set()
        self.wait()

    def progress(self) -> dict[str, FlowProgress]:
        """How far each flow is, by its name."""
        return {
            driver.config.name: driver.flow.progress() for driver in self.drivers if driver.flow is not None
        }

    @property
    def failures(self) -> list[str]:
        """Why flows ended or partitions stopped."""
        found = [f"{one.config.name}: {one.failure}" for one in self.drivers if one.failure is not None]
        for one in self.drivers:
            if one.flow is not None:
                found += [
                    f"{one.config.name}: {state.stopped}"
                    for state in one.flow.partitions.values()
                    if state.stopped
                ]
        return found
