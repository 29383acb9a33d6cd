"""MirrorMaker 2's three connectors in a Connect worker of the target: the copying, the groups and the heartbeats of a
flow, each with its own life. The worker's offsets topic holds the notes, so that REST shows, alters and resets them.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.admin.cluster import Cluster
from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.failures import ConfigInvalid, ConnectError
from ottla.connect.spi import Finding, SourceConnector, SourceReader
from ottla.json_types import Json
from ottla.mirror.config import DEFAULTS, FlowConfig, flow_config
from ottla.mirror.failures import LaneFenced, MirrorError
from ottla.mirror.flow import Flow
from ottla.mirror.groups import Copy, GroupSync
from ottla.mirror.heartbeats import Heartbeats
from ottla.mirror.ledger import RunsLog
from ottla.mirror.mirror import Interval, Side, groups_every_s
from ottla.mirror.runners import Runner, SparkRunner, ThreadRunner
from ottla.pipeline.failures import SinkFenced
from ottla.pipeline.writer import Place

if TYPE_CHECKING:
    from ottla.connect.run.context import RunContext
    from ottla.connect.run.runner import Run

_OURS: Final = ("clusters", "enabled", "name", "ottla.spark.master")
_MM2_DEFAULTS: Final = {
    "sync.group.offsets.enabled": "false",
    "sync.group.offsets.interval.seconds": "60",
    "emit.checkpoints.interval.seconds": "60",
}
"""Under Java's class names its defaults hold, also where `ottla mirror` has others."""
_SIDES: Final = ("source", "target")
_PARTS: Final = ("emit.heartbeats.enabled", "emit.checkpoints.enabled", "sync.group.offsets.enabled")


def connector_flow(config: Mapping[str, str]) -> FlowConfig:
    """The flow of a connector's keys; MirrorError with a sentence if they are wrong."""
    aliases = {side: config.get(f"{side}.cluster.alias", side) for side in _SIDES}
    if aliases["source"] == aliases["target"]:
        raise MirrorError(f"source.cluster.alias and target.cluster.alias are both '{aliases['source']}'")
    keys = dict(_MM2_DEFAULTS)
    for key, value in config.items():
        side, _, rest = key.partition(".")
        if side in _SIDES and rest.startswith("cluster."):
            if rest != "cluster.alias":
                keys[f"{aliases[side]}.{rest.removeprefix('cluster.')}"] = value
        elif side in _SIDES and rest.startswith(("consumer.", "producer.", "admin.")):
            keys[f"{aliases[side]}.{rest}"] = value
        else:
            keys[key] = value
    keys[f"{aliases['source']}->{aliases['target']}.enabled"] = config.get("enabled", "true")
    return flow_config(keys, aliases["source"], aliases["target"])


class _MirrorPart(SourceConnector):
    """What the three have in common."""

    @classmethod
    def config_def(cls) -> ConfigDef:
        """The clusters, and the keys of a flow."""
        known = {**DEFAULTS, **_MM2_DEFAULTS}
        servers = [
            ConfigKey(f"{side}.cluster.bootstrap.servers", importance="HIGH", documentation=f"The {side}")
            for side in _SIDES
        ]
        aliases = [
            ConfigKey(
                f"{side}.cluster.alias", default=side, importance="HIGH", documentation=f"Name of the {side}"
            )
            for side in _SIDES
        ]
        rest = [
            ConfigKey(key, default=value)
            for key, value in known.items()
            if key not in _OURS and key != "tasks.max"
        ]
        return ConfigDef([*servers, *aliases, ConfigKey("enabled", "BOOLEAN", True), *rest])

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, list[str]]:
        """A wrong flow is an error of the key that its sentence begins with."""
        try:
            if all(f"{side}.cluster.bootstrap.servers" in config for side in _SIDES):
                connector_flow(config)
        except MirrorError as error:
            said = str(error)
            named = said.partition("->")[2].partition(".")[2].partition("=")[0]
            return {named if named in config else "source.cluster.alias": [said]}
        return {}

    def flow(self) -> FlowConfig:
        """The flow that it has a part of."""
        try:
            return connector_flow(self.config)
        except MirrorError as error:
            raise ConfigInvalid(str(error)) from None

    def reader(self) -> SourceReader:
        """None: a mirror copies batches, it gives no records."""
        raise ConnectError("a mirror copies whole batches: its records cannot be looked at here")

    def check(self) -> list[Finding]:
        """Whether both clusters answer."""
        flow = self.flow()
        found = []
        for alias, settings in ((flow.source, flow.source_settings), (flow.target, flow.target_settings)):
            cluster = Cluster(settings)
            try:
                found.append(Finding(True, f"{alias} answers: {len(cluster.nodes())} brokers"))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
                found.append(Finding(False, f"{alias} does not answer: {error}"))
            finally:
                cluster.close()
        return found

    @abstractmethod
    def own_run(self, context: RunContext) -> Run:
        """Its part of the flow."""


class MirrorSource(_MirrorPart):
    """`org.apache.kafka.connect.mirror.MirrorSourceConnector`: topics with their records, settings and access."""

    java_classes = ("org.apache.kafka.connect.mirror.MirrorSourceConnector",)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One for each lane."""
        return [dict(self.config) for _ in range(max_tasks)]

    def own_run(self, context: RunContext) -> Run:
        """The copying."""
        flow = self.flow()
        store = context.offsets
        notes = store.topic if store is not None else None
        if notes is None:
            raise ConfigInvalid("a mirror keeps its notes in the worker's offsets topic: run it distributed")
        values = {**flow.values, **dict.fromkeys(_PARTS, "false")}
        own = replace(flow, values=values, connector=context.name, notes_topic=notes)
        return _CopyRun(context, own) if flow.enabled else _IdleRun(context)

    def check_offset(self, partition: Mapping[str, Json] | None, offset: Mapping[str, Json] | None) -> None:
        """A partition names cluster, topic and number; an offset is the last one that is done."""
        wanted = {"cluster": str, "topic": str, "partition": int}
        for key, kind in wanted.items():
            if partition is None or not isinstance(partition.get(key), kind):
                raise ConnectError(
                    f"a partition of a mirror has {', '.join(wanted)}: '{key}' is missing or wrong"
                )
        if offset is not None and (not isinstance(offset.get("offset"), int) or offset["offset"] < 0):  # type: ignore[operator]
            raise ConnectError("an offset of a mirror is {'offset': n} with n of 0 or more")


class MirrorCheckpoint(_MirrorPart):
    """`org.apache.kafka.connect.mirror.MirrorCheckpointConnector`: positions of groups, as checkpoints and at the
    target."""

    java_classes = ("org.apache.kafka.connect.mirror.MirrorCheckpointConnector",)

    def own_run(self, context: RunContext) -> Run:
        """The groups."""
        flow = self.flow()
        wanted = flow.flag("emit.checkpoints.enabled") or flow.flag("sync.group.offsets.enabled")
        return _GroupsRun(context, flow) if flow.enabled and wanted else _IdleRun(context)


class MirrorHeartbeat(_MirrorPart):
    """`org.apache.kafka.connect.mirror.MirrorHeartbeatConnector`: a sign of life at the target."""

    java_classes = ("org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",)

    def own_run(self, context: RunContext) -> Run:
        """The heartbeats. They do not depend on `enabled`: the other direction copies them."""
        flow = self.flow()
        return _BeatRun(context, flow) if flow.flag("emit.heartbeats.enabled") else _IdleRun(context)


class _IdleRun:
    """A part that is switched off: RUNNING with nothing to do, as in MirrorMaker 2."""

    def __init__(self, context: RunContext) -> None:
        self._stopping = context.stopping

    def start(self) -> None:
        pass

    def cycle(self) -> bool:
        return False

    def wait(self) -> None:
        self._stopping.wait()

    def stop(self) -> None:
        pass


def _check_worker(context: RunContext, flow: FlowConfig) -> None:
    """Notes are kept beside the copies: the worker's cluster must be the flow's target."""
    worker, target = Cluster(context.settings), Cluster(flow.target_settings)
    try:
        if worker.metadata([]).cluster_id != target.metadata([]).cluster_id:
            raise ConfigInvalid(
                f"{flow.name} writes to another cluster than this worker's: run it in a worker of {flow.target}"
            )
    finally:
        worker.close()
        target.close()


class _CopyRun:
    """The copying of a flow with its topics, their settings and their access."""

    def __init__(self, context: RunContext, config: FlowConfig) -> None:
        self._context = context
        self._config = config
        self._flow: Flow | None = None
        self._side: Side | None = None
        self._runner: Runner | None = None
        self._clean = False

    def start(self) -> None:
        config, spark = self._config, self._context.spark
        _check_worker(self._context, config)
        self._runner = ThreadRunner() if spark is None else SparkRunner(spark())
        self._flow = Flow(config, self._runner)
        self._side = Side(self._flow)
        with _fences():
            self._flow.prepare()
        self._refresh = Interval(
            max(1, config.number("refresh.topics.interval.seconds")), self._flow.refresh_topics
        )
        self._refresh.run_if_due()
        self._side.start()
        self._clean = True

    def cycle(self) -> bool:
        assert self._flow is not None
        began = time.monotonic()
        self._clean = False
        with _fences():
            copied = self._flow.cycle(self._context.stopping)
            if self._config.flag("refresh.topics.enabled"):
                self._refresh.run_if_due()
        self._clean = True
        progress, found = self._context.progress, self._flow.progress()
        progress.cycle(copied, time.monotonic() - began)
        progress.bytes = found.size
        progress.lag = f"{found.lag} records"
        if found.stopped:
            stopped = [one.stopped for one in self._flow.partitions.values() if one.stopped]
            progress.last_error = stopped[0]
        return found.partitions > found.stopped

    def wait(self) -> None:
        self._context.stopping.wait(1.0)

    def stop(self) -> None:
        if self._side is not None:
            self._side.stop()
        if self._flow is not None:
            self._flow.close(clean=self._clean)
        if self._runner is not None:
            self._runner.close()


class _fences:  # noqa: N801 - reads as a function
    """A lane that another worker took over is, for the runner of connectors, a fenced run."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, LaneFenced):
            raise SinkFenced(str(error)) from error


class _CopiedByRuns:
    """What is copied, by the map of runs alone: the copying may run in another worker."""

    def __init__(self, config: FlowConfig) -> None:
        self.config = config
        self._runs = RunsLog(config)
        self._opened = False

    def copies(self) -> dict[Place, Copy]:
        """Partitions with at least one copied record."""
        if not self._opened:
            self._runs.open()
            self._opened = True
        policy, found = self.config.policy, {}
        for place, runs in self._runs.read().items():
            last = runs.last
            if last is not None and any(run.span for run in runs):
                remote = Place(policy.remote_topic(self.config.source, place.topic), place.partition)
                found[place] = Copy(remote, last.upstream_end, last.downstream_end, runs)
        return found

    def close(self) -> None:
        """Closes connections."""
        self._runs.close()


class _Repeated:
    """A part that does something small again and again."""

    def __init__(self, stopping: threading.Event, every_s: float) -> None:
        self._stopping = stopping
        self._every_s = every_s

    def wait(self) -> None:
        self._stopping.wait(self._every_s)


class _GroupsRun(_Repeated):
    def __init__(self, context: RunContext, config: FlowConfig) -> None:
        super().__init__(context.stopping, groups_every_s(config))
        self._copied = _CopiedByRuns(config)
        self._sync = GroupSync(self._copied)
        self._progress = context.progress

    def start(self) -> None:
        pass

    def cycle(self) -> bool:
        began = time.monotonic()
        self._progress.cycle(self._sync.sync(), time.monotonic() - began)
        return False

    def stop(self) -> None:
        self._sync.close()
        self._copied.close()


class _BeatRun(_Repeated):
    def __init__(self, context: RunContext, config: FlowConfig) -> None:
        super().__init__(context.stopping, max(1, config.number("emit.heartbeats.interval.seconds")))
        self._beats = Heartbeats(config)
        self._progress = context.progress

    def start(self) -> None:
        pass

    def cycle(self) -> bool:
        began = time.monotonic()
        self._beats.beat()
        self._progress.cycle(1, time.monotonic() - began)
        return False

    def stop(self) -> None:
        self._beats.close()
