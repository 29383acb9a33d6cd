"""A running application: a topology, its topics and its state, as one streaming query on Spark."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.streams.dsl.builder import StreamsBuilder
from ottla.streams.error_messages import describe, translate_client_errors
from ottla.streams.errors import StreamsError
from ottla.streams.graph.operators import Sink
from ottla.streams.graph.topology import Topology
from ottla.streams.planner.manifest import Manifest
from ottla.streams.planner.plan import Plan, Strategy
from ottla.streams.planner.query import build, needs_headers, output_mode, plan_for_spark
from ottla.streams.planner.rows import Tasks
from ottla.streams.planner.strategies import choose_strategy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.streams.queries import QueryableStore

log = logging.getLogger(__name__)

MAX_OFFSETS_PER_BATCH: Final = 1_000_000
"""A bound on what one micro-batch reads, so that the first one after a long stop is not endless."""

_BROKER_ANSWERS_MS: Final = 5_000

MOST_STARTS: Final = 5
_SLOW_WORKER: Final = "Python worker failed to connect back"
"""Spark gives a worker of its driver ten seconds to start, whatever its settings say; a busy machine takes longer."""

MAX_POLL_RECORDS: Final = 20_000


def state_home() -> Path:
    """Where applications keep their checkpoints unless told otherwise."""
    told = os.environ.get("OTTLA_STREAMS_DIR")
    if told:
        return Path(told)
    return Path(os.environ.get("XDG_STATE_HOME", Path.home() / ".local" / "state")) / "ottla" / "streams"


@dataclass(slots=True)
class StreamsSettings:
    bootstrap_servers: str = "127.0.0.1:9092"
    master: str | None = None
    state_dir: Path | None = None
    exactly_once: bool = True
    max_offsets_per_batch: int = MAX_OFFSETS_PER_BATCH
    trigger_ms: int = 0
    create_topics: bool = False
    real_time: bool = False
    """Milliseconds instead of micro-batches: for topologies of expressions without state, written at least once."""
    client: dict[str, str] = field(default_factory=dict)
    spark: dict[str, str] = field(default_factory=dict)


class StreamsApp:
    """`start` it, `wait` for it, `stop` it. The application id is its consumer group and its transactional id."""

    def __init__(
        self,
        topology: Topology | StreamsBuilder,
        application_id: str,
        settings: StreamsSettings | None = None,
    ) -> None:
        self.topology = topology.build() if isinstance(topology, StreamsBuilder) else topology
        self.application_id = application_id
        self.settings = settings or StreamsSettings()
        self.directory = (self.settings.state_dir or state_home()) / application_id
        self.query: StreamingQuery | None = None
        self._spark: SparkSession | None = None
        self._starts = 0
        self._start: Callable[[], StreamingQuery] | None = None

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def start(self, *, available_now: bool = False) -> StreamsApp:
        """Checks topics and state, and starts the query; with `available_now` it ends when all is read."""
        from ottla.pipeline import KafkaSink, spark_session

        plan = plan_for_spark(self.topology)
        partitions = self._partitions(plan)
        spark = spark_session(self.application_id, master=self.settings.master, settings=self.settings.spark)
        self._spark = spark
        tasks = self._tasks(plan, partitions, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.settings.bootstrap_servers)
            .option("subscribe", ",".join(self.topology.source_topics()))
            .option("startingOffsets", "earliest")
            .option("includeHeaders", str(needs_headers(plan)).lower())
            .option("kafka.isolation.level", "read_committed")
            # Spark seeks before each poll, and what was fetched beyond it is fetched again.
            .option("kafka.max.poll.records", str(MAX_POLL_RECORDS))
        )
        if not self.settings.real_time:
            # In real time a batch has no size: it lasts until its time is over.
            reader = reader.option("maxOffsetsPerTrigger", str(self.settings.max_offsets_per_batch))
        for key, value in self.settings.client.items():
            reader = reader.option(f"kafka.{key}", value)
        if self.settings.real_time and (plan.strategy is not Strategy.NATIVE or available_now):
            raise StreamsError(
                "real-time mode is for topologies of expressions without state, from one topic to one other, "
                "and has no end by itself"
            )
        records = reader.load()
        if self.settings.real_time:
            self.query = self._start_real_time(build(records, plan, tasks))
            return self
        sink = KafkaSink(
            self.settings.bootstrap_servers,
            transactional_id=self.application_id if self.settings.exactly_once else None,
            group=self.application_id,
            exactly_once=self.settings.exactly_once,
            options=self.settings.client,
        )
        writer = (
            build(records, plan, tasks)
            .writeStream.queryName(self.application_id)
            .outputMode(output_mode(plan))
            .foreachBatch(sink)
            .option("checkpointLocation", str(self.checkpoint))
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif self.settings.trigger_ms:
            writer = writer.trigger(processingTime=f"{self.settings.trigger_ms} milliseconds")
        (self.directory / "stop").unlink(missing_ok=True)
        self._starts = 1
        self._start = writer.start
        self.query = writer.start()
        return self

    def _start_real_time(self, native: DataFrame) -> StreamingQuery:
        writer = native.writeStream.format("kafka").outputMode("update")
        writer = writer.option("kafka.bootstrap.servers", self.settings.bootstrap_servers)
        for key, value in self.settings.client.items():
            writer = writer.option(f"kafka.{key}", value)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).queryName(self.application_id)
        timed: Any = writer
        started: StreamingQuery = timed.trigger(realTime="5 minutes").start()
        return started

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the query ends by itself, by `stop`, or by a stop request from outside; False on a time-out."""
        assert self.query is not None
        waited = 0.0
        while not self._ended(0.5):
            if timeout_s is not None and waited >= timeout_s:
                return False
            waited += 0.5
            self._write_status()
            if (self.directory / "stop").exists():
                self.stop()
        self._write_status()
        return True

    def _ended(self, seconds: float) -> bool:
        """Whether the query is at its end, after waiting for that; its failure comes as a sentence."""
        assert self.query is not None
        try:
            self.query.awaitTermination(seconds)  # type: ignore[arg-type]
            return not self.query.isActive
        except Exception as problem:
            if _SLOW_WORKER in str(problem) and self._start is not None and self._starts < MOST_STARTS:
                log.warning("a Python worker took longer to start than Spark waits: the query starts again")
                self._starts += 1
                self.query = self._start()
                return False
            self._write_status()
            raise StreamsError(describe(problem)) from problem

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()
        self._write_status()

    def store(self, name: str) -> QueryableStore:
        """A look into a state store, as of the last finished batch: `app.store("counts").get("kafka")`."""
        from ottla.pipeline import spark_session
        from ottla.streams.queries import QueryableStore

        if name not in self.topology.stores:
            known = ", ".join(sorted(self.topology.stores))
            raise StreamsError(f"there is no state store {name}; there are {known}")
        spark = self._spark or spark_session(self.application_id, master=self.settings.master)
        manifest = Manifest.read(self.directory / "plan.json")
        counted = manifest is not None and manifest.keeps_plain_counts
        return QueryableStore(spark, self.checkpoint, self.topology.stores[name], counted=counted)

    def status(self) -> dict[str, Any]:
        """What the application does now: rows per second, batch times, state, lag."""
        query = self.query
        if query is None:
            return read_status(self.directory)
        told: dict[str, Any] = {
            "application_id": self.application_id,
            "pid": os.getpid(),
            "running": query.isActive,
            "directory": str(self.directory),
        }
        progress = query.lastProgress
        if progress is not None:
            shown = json.loads(progress.json) if hasattr(progress, "json") else dict(progress)
            told["batch"] = shown.get("batchId")
            told["rows_per_second"] = shown.get("processedRowsPerSecond")
            told["input_rows"] = shown.get("numInputRows")
            told["batch_ms"] = shown.get("durationMs", {}).get("triggerExecution")
            told["state_rows"] = sum(one.get("numRowsTotal", 0) for one in shown.get("stateOperators", []))
            told["lag"] = _lag(shown)
            told["time"] = shown.get("timestamp")
        return told

    def _write_status(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        beside = self.directory / "status.new"
        beside.write_text(json.dumps(self.status(), indent=1))
        os.replace(beside, self.directory / "status.json")

    def _partitions(self, plan: Plan) -> dict[str, int]:
        """How many partitions each topic has; a topic that is missing is made, or named in a sentence."""
        from ottla.client.admin import KafkaAdminClient
        from ottla.client.admin_types import NewTopic

        outputs = [
            node.operator.topic
            for node in self.topology.sinks
            if isinstance(node.operator, Sink)
            and not node.operator.internal
            and isinstance(node.operator.topic, str)
        ]
        inputs = self.topology.source_topics()
        with translate_client_errors(), KafkaAdminClient(**_cluster(self.settings)) as admin:
            found = {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}
            missing = [topic for topic in dict.fromkeys([*inputs, *outputs]) if topic not in found]
            if missing and not self.settings.create_topics:
                raise StreamsError(
                    f"there is no topic {missing[0]}: `ottla topics --create --topic {missing[0]}` makes it, "
                    f"and --create-topics makes all that are missing"
                )
            if missing:
                admin.create_topics([NewTopic(topic, 1, 1) for topic in missing], wait_for_metadata=True)
                found.update(dict.fromkeys(missing, 1))
        counts = {topic: found[topic] for topic in plan.joins_partitions}
        if len(set(counts.values())) > 1:
            shown = ", ".join(f"{topic} has {count}" for topic, count in sorted(counts.items()))
            raise StreamsError(f"topics that are joined need as many partitions as each other: {shown}")
        plan.sink_partitions = {topic: found[topic] for topic in outputs}
        return {topic: found[topic] for topic in inputs}

    def _tasks(self, plan: Plan, partitions: dict[str, int], shuffle_partitions: int) -> Tasks:
        """As many tasks as the widest topic has partitions; a checkpoint keeps those it was made with."""
        path = self.directory / "plan.json"
        known = Manifest.read(path)
        if known is not None and not known.keeps_plain_counts and plan.strategy is Strategy.COUNTS:
            # The checkpoint holds the counts in stores of its own: another strategy goes on with them.
            choose_strategy(plan, without=Strategy.COUNTS)
        tasks = Tasks.spread(max(partitions.values()), shuffle_partitions) if known is None else known.tasks
        now = Manifest.of(self.application_id, plan, tasks)
        if known is not None:
            known.check(now)
        now.write(path)
        return tasks


def read_status(directory: Path) -> dict[str, Any]:
    """What a running or stopped application last said of itself."""
    path = directory / "status.json"
    if not path.exists():
        raise StreamsError(f"there is no application {directory.name} in {directory.parent}")
    told: dict[str, Any] = json.loads(path.read_text())
    if told.get("running"):
        told["running"] = _is_alive(int(told["pid"]))
    return told


def request_stop(directory: Path) -> None:
    """Asks a running application to stop after what it is doing now."""
    read_status(directory)
    (directory / "stop").write_text("")


def reset(application_id: str, settings: StreamsSettings) -> list[str]:
    """Forgets an application: its state, its checkpoint and its group's offsets. Gives back what was done."""
    from ottla.client.admin import KafkaAdminClient

    directory = (settings.state_dir or state_home()) / application_id
    done = []
    if directory.exists():
        status = directory / "status.json"
        if status.exists() and read_status(directory).get("running"):
            raise StreamsError(f"{application_id} is running: stop it first")
        shutil.rmtree(directory)
        done.append(f"state and checkpoint in {directory} are gone")
    with translate_client_errors(), KafkaAdminClient(**_cluster(settings)) as admin:
        told = admin.delete_groups([application_id]).get(application_id)
    if told == "OK":
        done.append(f"the offsets of the group {application_id} are gone")
    return done


def _cluster(settings: StreamsSettings) -> dict[str, Any]:
    return {"bootstrap_servers": settings.bootstrap_servers, "bootstrap_timeout_ms": _BROKER_ANSWERS_MS}


def _lag(progress: dict[str, Any]) -> int:
    """How many records the topics held beyond the last batch, when it was planned."""
    waiting = 0
    for source in progress.get("sources", []):
        latest, done = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
        waiting += sum(max(0, offset - done.get(place, offset)) for place, offset in latest.items())
    return waiting


def _offsets(told: Any) -> dict[tuple[str, str], int]:
    """Spark's offsets by topic and partition, which it tells as JSON or as JSON in a string."""
    known = json.loads(told) if isinstance(told, str) else told or {}
    return {(topic, number): offset for topic, ends in known.items() for number, offset in ends.items()}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
