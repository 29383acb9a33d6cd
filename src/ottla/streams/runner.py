"""Runs an application: a topology, its topics and its state, as one streaming query on Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from ottla.client.admin import KafkaAdminClient
from ottla.client.admin_types import NewTopic
from ottla.streams import settings as limits
from ottla.streams.dsl.builder import StreamsBuilder
from ottla.streams.error_messages import describe, translate_client_errors
from ottla.streams.errors import StreamsError
from ottla.streams.graph.draw import picture
from ottla.streams.graph.operators import Sink
from ottla.streams.graph.topology import Topology
from ottla.streams.planner.manifest import Manifest
from ottla.streams.planner.plan import Plan, Strategy
from ottla.streams.planner.query import build, build_for_sink, needs_headers, output_mode, plan_for_spark
from ottla.streams.planner.rows import Tasks
from ottla.streams.planner.strategies import choose_strategy
from ottla.streams.reading import TopicRecords
from ottla.streams.settings import StreamsSettings
from ottla.streams.status import Status, read_status, status_of, write_status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.streams.queries import QueryableStore

_logger = logging.getLogger(__name__)

MOST_STARTS: Final = 5
_PASSING: Final = {
    # Spark waits ten seconds for a Python worker to start, and no setting changes that; a busy machine takes longer.
    "Python worker failed to connect back": "a Python worker did not start in time",
    # The process that plans what our reader reads is gone; Spark starts another one with the query.
    "terminated with exception: Broken pipe": "the process that plans reads has ended",
    "terminated with exception: Connection reset": "the process that plans reads has ended",
    "terminated with exception: null": "the process that plans reads has ended",
}
"""Parts of failures after which a query starts again, and what to say of them."""


class _RealTimeWriter(Protocol):
    """Spark's writer with the trigger that its own types do not have yet."""

    def trigger(self, *, realTime: str) -> DataStreamWriter:  # noqa: N803
        """Sets the length of a batch in real time."""


class StreamsApp:
    """Runs a topology on Spark. The application id is its consumer group and its transactional id.

    Running it needs Spark and a broker::

        builder = StreamsBuilder()
        builder.stream("lines").flat_map_values(str.split).to("words")
        app = StreamsApp(builder, "splitter", StreamsSettings(create_topics=True))
        app.start()
        app.wait()

    >>> builder = StreamsBuilder()
    >>> builder.stream("lines").to("copy")
    >>> app = StreamsApp(builder, "copier", StreamsSettings(state_dir=Path("state")))
    >>> app.checkpoint.as_posix()
    'state/copier/checkpoint'
    """

    def __init__(
        self,
        topology: Topology | StreamsBuilder,
        application_id: str,
        settings: StreamsSettings | None = None,
    ) -> None:
        self.topology = topology.build() if isinstance(topology, StreamsBuilder) else topology
        self.application_id = application_id
        self.settings = settings or StreamsSettings()
        self.directory = self.settings.directory(application_id)
        self.query: StreamingQuery | None = None
        self._spark: SparkSession | None = None
        self._ui: str | None = None
        """Where Spark's own pages are."""
        self._starts = 0
        self._start: Callable[[], StreamingQuery] | None = None

    @property
    def checkpoint(self) -> Path:
        """The directory of the query's offsets and state.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> StreamsApp(builder, "copier", StreamsSettings(state_dir=Path("state"))).checkpoint.name
        'checkpoint'
        """
        return self.directory / "checkpoint"

    def start(self, *, available_now: bool = False) -> StreamsApp:
        """Checks topics and state, and starts the query; with `available_now` it ends when all is read.

        ::

            StreamsApp(builder, "word-count").start(available_now=True).wait()
        """
        from ottla.pipeline import KafkaSink, spark_session
        from ottla.pipeline.batch_marks import BATCHES_TOPIC

        plan = plan_for_spark(self.topology)
        partitions = self._partitions(plan)
        spark = spark_session(
            self.application_id,
            master=self.settings.master,
            settings=self.settings.spark,
            low_latency=self.settings.low_latency,
        )
        self._spark = spark
        self._ui = spark.sparkContext.uiWebUrl
        tasks = self._tasks(plan, partitions, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
        records = TopicRecords(
            spark,
            self.application_id,
            tuple(self.topology.source_topics()),
            self.settings,
            needs_headers(plan),
        )
        if self.settings.real_time and (plan.strategy is not Strategy.NATIVE or available_now):
            raise StreamsError(
                "real-time mode is for topologies of expressions without state, from one topic to one other, "
                "and has no end by itself"
            )
        if self.settings.real_time:
            self.query = self._start_real_time(build(records.frame(), plan, tasks))
            return self
        frame, finish = build_for_sink(records, plan, tasks)
        sink = KafkaSink(
            self.settings.bootstrap_servers,
            transactional_id=self.application_id if self.settings.exactly_once else None,
            group=self.application_id,
            exactly_once=self.settings.exactly_once,
            options=self.settings.client,
            marks_topic=self.settings.marks_topic or BATCHES_TOPIC,
            finish=finish,
        )
        writer = (
            frame.writeStream.queryName(self.application_id)
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
        return cast("_RealTimeWriter", writer).trigger(realTime="5 minutes").start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the query ends by itself, by `stop`, or by `ottla streams stop`; False after a timeout.

        ::

            if not app.wait(timeout_s=60):
                app.stop()
        """
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
        """Waits for the end of the query; True at its end. A failure becomes a StreamsError with one sentence."""
        assert self.query is not None
        try:
            self.query.awaitTermination(seconds)  # type: ignore[arg-type]
            return not self.query.isActive
        except Exception as problem:
            reason = next((said for text, said in _PASSING.items() if text in str(problem)), None)
            if reason is not None and self._start is not None and self._starts < MOST_STARTS:
                _logger.warning("%s: the query starts again", reason)
                self._starts += 1
                self.query = self._start()
                return False
            sentence = describe(problem)
            self._write_status(sentence)
            raise StreamsError(sentence) from problem

    def stop(self) -> None:
        """Stops the query; the next start goes on where this one ended.

        ::

            app.stop()
        """
        if self.query is not None:
            self.query.stop()
        self._write_status()

    def store(self, name: str) -> QueryableStore:
        """A state store as of the last finished batch.

        ::

            app.store("counts").get("kafka")
        """
        from ottla.pipeline import spark_session
        from ottla.streams.queries import QueryableStore

        if name not in self.topology.stores:
            known = ", ".join(sorted(self.topology.stores))
            raise StreamsError(f"there is no state store {name}; there are {known}")
        spark = self._spark or spark_session(self.application_id, master=self.settings.master)
        manifest = Manifest.read(self.directory / "plan.json")
        counted = manifest is not None and manifest.keeps_plain_counts
        return QueryableStore(spark, self.checkpoint, self.topology.stores[name], counted=counted)

    def status(self) -> Status:
        """The current status: rows per second, batch times, state, lag.

        ::

            app.status()["lag"]
        """
        if self.query is None:
            return read_status(self.directory)
        found = status_of(self.query, self.application_id, self.directory)
        found["ui"] = self._ui
        return found

    def picture(self) -> dict[str, list[object]]:
        """The topology as boxes and arrows, for programs that draw it.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> StreamsApp(builder, "copier", StreamsSettings(state_dir=Path("state"))).picture()["arrows"][0][0]
        'topic in'
        """
        return picture(self.topology)

    def _write_status(self, error: str = "") -> None:
        found = self.status()
        if error:
            found["error"] = error
        write_status(found, self.directory)

    def _partitions(self, plan: Plan) -> dict[str, int]:
        """The partition counts of the source topics; a missing topic is created, or named in an error."""
        outputs = [
            node.operator.topic
            for node in self.topology.sinks
            if isinstance(node.operator, Sink)
            and not node.operator.internal
            and isinstance(node.operator.topic, str)
        ]
        inputs = self.topology.source_topics()
        servers = self.settings.bootstrap_servers
        with (
            translate_client_errors(),
            KafkaAdminClient.with_kafka_settings(
                servers, self.settings.client, bootstrap_timeout_ms=limits.BROKER_TIMEOUT_MS
            ) as admin,
        ):
            found = {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}
            missing = [topic for topic in dict.fromkeys([*inputs, *outputs]) if topic not in found]
            if missing and not self.settings.create_topics:
                raise StreamsError(
                    f"there is no topic {missing[0]}: `ottla topics --create --topic {missing[0]}` creates it, "
                    f"and --create-topics creates all that are missing"
                )
            if missing:
                admin.create_topics([NewTopic(topic, 1, 1) for topic in missing], wait_for_metadata=True)
                found.update(dict.fromkeys(missing, 1))
        counts = {topic: found[topic] for topic in plan.joins_partitions}
        if len(set(counts.values())) > 1:
            shown = ", ".join(f"{topic} has {count}" for topic, count in sorted(counts.items()))
            raise StreamsError(f"topics that are joined need the same number of partitions: {shown}")
        plan.sink_partitions = {topic: found[topic] for topic in outputs}
        return {topic: found[topic] for topic in inputs}

    def _tasks(self, plan: Plan, partitions: dict[str, int], shuffle_partitions: int) -> Tasks:
        """One task for each partition of the widest topic; a checkpoint keeps the tasks that it was made with."""
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
        (self.directory / "topology.json").write_text(json.dumps(self.picture()))
        return tasks
