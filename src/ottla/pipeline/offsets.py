"""The source offsets of streaming queries, committed to a consumer group that shows progress and lag."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypedDict

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.client.cluster_settings import writer_settings
from ottla.errors import ApiException
from ottla.ids import GroupId, TopicName
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jvm import JavaObject, java_query, java_session, jvm_of
from ottla.pipeline.reader_options import is_ours
from ottla.wire.enums import CoordinatorType
from ottla.wire.messages import OffsetCommitRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager

_logger = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
_KAFKA_SOURCE: Final = "KafkaV2["
_PYTHON_SOURCE: Final = "org.apache.spark.sql.execution.datasources.v2.python."
_WATERMARK: Final = "EventTimeWatermark"
_RETRY_S: Final = 30.0
_OFFSET_COMMIT: Final = 9

SourceOffsets = dict[str, dict[int, int]]
"""The next offset to read, by topic and partition."""


def query_id_of(batch: DataFrame) -> str:
    """The id of the query that calls `foreachBatch`; it survives restarts."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if query_id is None:
        raise PipelineError("this is not within the foreachBatch of a streaming query")
    return query_id


def _execution_of(batch: DataFrame) -> JavaObject:
    session = batch.sparkSession
    uuid = jvm_of(session).java.util.UUID.fromString(query_id_of(batch))
    return java_session(session).sharedState().activeStreamingQueries().get(uuid)


def has_watermark(batch: DataFrame) -> bool:
    """Whether the query follows event time with a watermark; for use within its `foreachBatch`."""
    return _WATERMARK in str(_execution_of(batch).logicalPlan().toString())


@dataclass(frozen=True, slots=True)
class BatchOffsets:
    """The offsets that the topics of a batch reach, and how many it reads; None if that is not known."""

    ends: SourceOffsets
    read: int | None


def source_offsets(batch: DataFrame) -> BatchOffsets:
    """The offsets that the query's sources reach with this batch; for use within its `foreachBatch`."""
    execution = _execution_of(batch)
    ends: SourceOffsets = {}
    read: int | None = 0
    ours = _reads_with_ottla(execution)
    sources = execution.sources()
    for at in range(sources.size()):
        source = sources.apply(at)
        offset = execution.availableOffsets().get(source)
        if not offset.isDefined():
            continue
        found = _offsets_of_topics(str(source.toString()), str(offset.get().json()), ours)
        _merge(ends, found or {})
        before = execution.committedOffsets().get(source)
        if before.isDefined():
            read = _distance(_parsed(str(before.get().json())), found, read)
        elif found is not None:
            # The very first batch begins where the options say; if they say "latest", that is not known any more.
            read = _distance(_parsed(str(source.initialOffset().json())), found, read) or None
        else:
            read = None
    return BatchOffsets(ends, read)


def _distance(start: SourceOffsets | None, end: SourceOffsets | None, before: int | None) -> int | None:
    """The offsets between two positions, added to those of other sources."""
    if start is None or end is None or before is None:
        return None
    total = before
    for topic, partitions in end.items():
        for partition, offset in partitions.items():
            begun = start.get(topic, {}).get(partition)
            if begun is None:
                return None
            total += max(0, offset - begun)
    return total


def _reads_with_ottla(execution: JavaObject) -> bool:
    """Whether one of the query's sources is `format("ottla")`: Spark does not name Python sources elsewhere."""
    return any(is_ours(str(leaf.sourceName())) for leaf in _relations(execution))


def _relations(execution: JavaObject) -> Iterator[JavaObject]:
    """The sources of a query as its plan has them, with their names and options."""
    leaves = execution.analyzedPlan().collectLeaves()
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        if str(leaf.getClass().getSimpleName()) == "StreamingRelationV2":
            yield leaf


def _offsets_of_topics(source: str, offsets: str, ours: bool) -> SourceOffsets | None:
    """The offsets of a source that reads topics; None for any other."""
    if source.startswith(_KAFKA_SOURCE) or (ours and source.startswith(_PYTHON_SOURCE)):
        return _parsed(offsets)
    return None


def _parsed(offsets: str) -> SourceOffsets | None:
    """Offsets of topics; None if they have another form, as those of another Python source in the query have."""
    found = json.loads(offsets)
    if not isinstance(found, dict):
        return None
    try:
        return {
            topic: {int(partition): int(offset) for partition, offset in partitions.items()}
            for topic, partitions in found.items()
        }
    except (AttributeError, TypeError, ValueError):
        return None


def _merge(into: SourceOffsets, found: SourceOffsets) -> None:
    """Adds a source's offsets; where two sources read one partition, the lower offset counts."""
    for topic, partitions in found.items():
        known = into.setdefault(topic, {})
        for partition, offset in partitions.items():
            known[partition] = min(offset, known.get(partition, offset))


def commit_group_offsets(
    brokers: Cluster, group: str, offsets: Mapping[str, Mapping[int, int]], metadata: str = ""
) -> None:
    """Commits offsets of a group without members, outside any transaction."""
    request = OffsetCommitRequest
    message = request(
        group_id=GroupId(group),
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            request.OffsetCommitRequestTopic(
                name=TopicName(topic),
                partitions=[
                    request.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                    for partition, offset in partitions.items()
                ],
            )
            for topic, partitions in offsets.items()
        ],
    )

    def ask() -> None:
        response = brokers.ask_on(
            brokers.coordinator_connection(group, CoordinatorType.GROUP), message, _OFFSET_COMMIT
        )
        for topic in response.topics:
            for result in topic.partitions:
                raise_for(result.error_code, None, f"the offset of {topic.name}-{result.partition_index}")

    brokers.retrying(ask, _RETRY_S)


class _SourceProgress(TypedDict):
    description: str
    endOffset: str | dict[str, dict[str, int]] | None


class LagTracker(StreamingQueryListener):
    """Commits the offsets of a query to a group after each of its batches, until it is stopped."""

    def __init__(
        self, query: StreamingQuery, group: str, brokers: Cluster, streams: StreamingQueryManager
    ) -> None:
        super().__init__()
        self._streams = streams
        self._query_id = str(query.id)
        self._group = group
        self._brokers = brokers
        self._ours = _reads_with_ottla(java_query(query).streamingQuery())
        self.committed: SourceOffsets = {}
        self._changed = threading.Condition()

    def wait_for(self, offsets: Mapping[int, int], topic: str, timeout_s: float) -> bool:
        """Waits until the group has these offsets of a topic; False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self.committed.get(topic) == offsets, timeout_s)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to do: offsets come with progress."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to do: the offsets have not changed."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Commits the offsets of the query."""
        if str(event.progress.id) == self._query_id:
            self.commit(event.progress)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to do: the last progress has been committed."""

    def commit(self, progress: StreamingQueryProgress | dict[str, list[_SourceProgress]]) -> None:
        """Commits the offsets of a progress report; after a failure the next report commits newer ones."""
        found: SourceOffsets = {}
        for source in progress["sources"] if isinstance(progress, dict) else progress.sources:
            description, end = (
                (source["description"], source["endOffset"])
                if isinstance(source, dict)
                else (source.description, source.endOffset)
            )
            if end:
                text = end if isinstance(end, str) else json.dumps(end)
                _merge(found, _offsets_of_topics(description, text, self._ours) or {})
        if not found or found == self.committed:
            return
        try:
            commit_group_offsets(self._brokers, self._group, found)
            with self._changed:
                self.committed = found
                self._changed.notify_all()
        except ApiException as error:
            _logger.warning("group %s: the offsets of query %s: %s", self._group, self._query_id, error)

    def stop(self) -> None:
        """Commits no more."""
        self._streams.removeListener(self)
        self._brokers.close()


def track_lag(
    query: StreamingQuery,
    *,
    group: str,
    bootstrap_servers: str | None = None,
    options: Mapping[str, str] | None = None,
) -> LagTracker:
    """Commits a query's source offsets to a consumer group after each batch, so that every Kafka tool shows its lag.

    The brokers are those of the query's own source unless given. `stop()` of the result ends it::

        tracker = track_lag(query, group="word-count")
        tracker.stop()
    """
    context = SparkContext._active_spark_context
    assert context is not None
    # The query's own session: a listener receives only the events of its session.
    session = SparkSession(context, java_query(query).sparkSession())
    servers = bootstrap_servers or _servers_of(query)
    tracker = LagTracker(query, group, Cluster(writer_settings(servers, options)), session.streams)
    session.streams.addListener(tracker)
    # The offsets of batches before the listener was there.
    if (last := query.lastProgress) is not None:
        tracker.commit(last)
    return tracker


def _servers_of(query: StreamingQuery) -> str:
    """The bootstrap servers of the query's first Kafka source."""
    for relation in _relations(java_query(query).streamingQuery()):
        servers = relation.extraOptions().get("kafka.bootstrap.servers")
        if servers:
            return str(servers)
    raise PipelineError("the query has no Kafka source with kafka.bootstrap.servers: give bootstrap_servers")
