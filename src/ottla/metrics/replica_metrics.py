"""Topics, replicas and logs of a broker.

A broker can host ten thousand partitions. They are read in slices, and what changes rarely (in-sync sets) is kept as
text until a replica changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import add, attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.counters import TopicCounters
from ottla.metrics import names
from ottla.metrics.families import Spelling
from ottla.metrics.sinks import Labels, Sink, TextSink

if TYPE_CHECKING:
    from ottla.broker.services import Broker
    from ottla.ids import TopicName
    from ottla.log.partition_log import PartitionLog
    from ottla.metrics.rates import Rates
    from ottla.replica.partition import Partition

Wanted = Callable[[str], bool]
"""Whether a topic's own samples are asked for."""

_SLICE: Final = 400
"""Partitions that are read in one go: about half a millisecond."""
_KEPT_LABELS: Final = 100_000


T = TypeVar("T")


class _Slice(Generic[T]):
    """The samples of some logs or topics in one family. Most are idle: their text stays as long as their values do."""

    __slots__ = ("_sources", "_starts", "_text", "_values")

    def __init__(self, sink: TextSink, rows: list[tuple[Labels, T]]) -> None:
        name, prefix = sink.name, sink.prefix
        self._starts = [f"{name}{prefix(labels)} " for labels, _ in rows]
        self._sources = [source for _, source in rows]
        self._values: list[int] = []
        self._text = b""

    def write(self, sink: TextSink, read: Callable[[T], int]) -> None:
        # The loops are in C: this is most of what a scrape of ten thousand partitions takes.
        values = list(map(read, self._sources))
        if values != self._values:
            lines = list(map(add, self._starts, map(str, values)))
            lines.append("")
            self._values, self._text = values, "\n".join(lines).encode()
        if self._text:
            sink.parts.append(self._text)


class _KeptRows(Generic[T]):
    """Rows of labels and what has their values, with the text of each family about them."""

    __slots__ = ("_slices", "rows")

    def __init__(self, rows: list[tuple[Labels, T]]) -> None:
        self.rows = rows
        self._slices: dict[str, list[_Slice[T]]] = {}

    def write(self, sink: Sink, read: Callable[[T], int], *, keep: bool) -> Iterator[None]:
        """All samples of the family that has begun, in slices."""
        if not keep or not isinstance(sink, TextSink):
            for start in range(0, len(self.rows), _SLICE):
                sink.rows([(labels, read(source)) for labels, source in self.rows[start : start + _SLICE]])
                yield
            return
        slices = self._slices.get(sink.name)
        if slices is None:
            slices = []
            for start in range(0, len(self.rows), _SLICE):
                slices.append(_Slice(sink, self.rows[start : start + _SLICE]))
                yield
            # Only when it is whole: another scrape may run at each `yield`.
            self._slices[sink.name] = slices
        for each in slices:
            each.write(sink, read)
            yield


class ReplicaMetrics:
    """Reads the replicas of one broker."""

    def __init__(self, broker: Broker, rates: Rates) -> None:
        self._broker = broker
        self._rates = rates
        self._labels: dict[tuple[str, int], Labels] = {}
        self._topic_labels: dict[str, Labels] = {}
        self._kept: dict[Spelling, tuple[int, list[bytes]]] = {}
        """The text about in-sync sets, with the count of state changes that it belongs to; so are the next two."""
        self._sums: tuple[int, tuple[int, ...]] = (-1, ())
        self._hosted: tuple[int, list[Partition]] = (-1, [])
        self._open_logs: tuple[int, _KeptRows[PartitionLog]] = (-1, _KeptRows([]))
        self._counted: tuple[list[tuple[TopicName, TopicCounters]], _KeptRows[TopicCounters]] = (
            [],
            _KeptRows([]),
        )

    def read(self, sink: Sink, topics: Wanted | None, *, each_partition: bool) -> Iterator[None]:
        """All families, in slices: other work may run at each `yield`."""
        yield from self._topics(sink, topics)
        partitions = self._partitions()
        yield
        yield from self._replicas(sink, partitions)
        self._directories(sink)
        self._fetching(sink)
        if each_partition:
            if topics is not None:
                partitions = [each for each in partitions if topics(each.topic)]
            yield from self._logs(sink, partitions, whole=topics is None)
            yield from self._states(sink, partitions, whole=topics is None)

    def _partitions(self) -> list[Partition]:
        changes = self._broker.replicas.counters.state_changes
        if self._hosted[0] != changes:
            self._hosted = changes, list(self._broker.replicas.partitions())
        return self._hosted[1]

    # -- topics

    def _topics(self, sink: Sink, wanted: Wanted | None) -> Iterator[None]:
        replicas = self._broker.replicas
        counted = list(replicas.topic_counters.items())
        total = replicas.retired_topics.plus([counters for _, counters in counted])
        yield
        if self._counted[0] != counted:
            self._counted = counted, _KeptRows([(self._of_topic(topic), each) for topic, each in counted])
            yield
        kept = self._counted[1]
        if wanted is not None:
            kept = _KeptRows([(self._of_topic(topic), each) for topic, each in counted if wanted(topic)])
        for attribute, family in names.TOPIC_FAMILIES.items():
            sink.one(family, getattr(total, attribute))
            yield from kept.write(sink, attrgetter(attribute), keep=wanted is None)
        for family in names.CONVERSIONS:
            sink.one(family, 0)
        for attribute, family in names.BROKER_FAMILIES.items():
            sink.one(family, getattr(total, attribute))

    def _of_topic(self, topic: str) -> Labels:
        labels = self._topic_labels.get(topic)
        if labels is None:
            if len(self._topic_labels) >= _KEPT_LABELS:
                self._topic_labels.clear()
            labels = self._topic_labels[topic] = Labels(("topic", topic))
        return labels

    # -- the broker's replicas in numbers

    def _replicas(self, sink: Sink, partitions: list[Partition]) -> Iterator[None]:
        counters = self._broker.replicas.counters
        changes = counters.state_changes
        if self._sums[0] != changes:
            sums = [0] * len(_SUMS)
            for start in range(0, len(partitions), _SLICE):
                self._add_up(partitions[start : start + _SLICE], sums)
                yield
            self._sums = changes, tuple(sums)
        for family, value in zip(_SUMS, self._sums[1], strict=True):
            sink.one(family, value)
        sink.one(names.PARTITION_COUNT, len(partitions))
        sink.one(names.ISR_SHRINKS, counters.isr_shrinks)
        sink.one(names.ISR_EXPANDS, counters.isr_expands)
        sink.one(names.FAILED_ISR_UPDATES, counters.failed_isr_updates)
        sink.one(names.COLD_READS, counters.cold_reads)

    def _add_up(self, partitions: list[Partition], sums: list[int]) -> None:
        """Add these replicas to the values of `_SUMS`."""
        registered = self._broker.image.topics
        for partition in partitions:
            sums[5] += partition.offline
            if not partition.is_leader:
                continue
            isr, replicas, minimum = len(partition.isr), len(partition.replicas), _minimum(partition)
            registration = registered.partition(partition.topic_id, partition.index)
            sums[0] += 1
            sums[1] += isr < replicas
            sums[2] += isr < minimum
            sums[3] += isr == minimum
            sums[4] += registration is not None and bool(
                registration.adding_replicas or registration.removing_replicas
            )

    def _directories(self, sink: Sink) -> None:
        directories = self._broker.log_manager.dirs
        sink.one(names.OFFLINE_DIRECTORIES, sum(each.offline for each in directories))
        sink.all(
            names.DIRECTORY_OFFLINE,
            [(Labels(("logDirectory", each.path)), int(each.offline)) for each in directories],
        )

    def _fetching(self, sink: Sink) -> None:
        broker = self._broker
        now = broker.clock.monotonic()
        replica = Labels(("clientId", "Replica"))
        lag, failed = broker.replicas.follower_lag()
        sink.one(names.MAX_LAG, lag, replica)
        sink.one(names.FAILED_PARTITIONS, failed, replica)
        fetches = {
            purpose: each.requests for purpose, each in broker.counters.peers.items() if "fetcher" in purpose
        }
        rates = [self._rates.per_s(("fetches", purpose), count, now) for purpose, count in fetches.items()]
        sink.one(names.MIN_FETCH_RATE, round(min(rates, default=0.0), 3), replica)
        sessions = broker.fetch_sessions
        sink.one(names.FETCH_SESSIONS, len(sessions))
        sink.one(names.FETCH_SESSION_PARTITIONS, sessions.partition_count)
        sink.one(names.FETCH_SESSION_EVICTIONS, sessions.evictions)

    # -- each partition

    def _of(self, partition: Partition) -> Labels:
        key = (partition.topic, partition.index)
        labels = self._labels.get(key)
        if labels is None:
            if len(self._labels) >= _KEPT_LABELS:
                self._labels.clear()
            labels = self._labels[key] = Labels(
                ("topic", partition.topic), ("partition", str(partition.index))
            )
        return labels

    def _logs(self, sink: Sink, partitions: list[Partition], *, whole: bool) -> Iterator[None]:
        changes = self._broker.replicas.counters.state_changes
        logs = self._open_logs[1]
        if not whole or self._open_logs[0] != changes:
            rows: list[tuple[Labels, PartitionLog]] = []
            for start in range(0, len(partitions), _SLICE):
                rows += [
                    (self._of(each), each.log)
                    for each in partitions[start : start + _SLICE]
                    if each.log is not None and not each.gone
                ]
                yield
            logs = _KeptRows(rows)
            if whole:
                self._open_logs = changes, logs
        for family, attribute in _LOG_FAMILIES:
            sink.begin(family)
            yield from logs.write(sink, attrgetter(attribute), keep=whole)

    def _states(self, sink: Sink, partitions: list[Partition], *, whole: bool) -> Iterator[None]:
        changes = self._broker.replicas.counters.state_changes
        keep = isinstance(sink, TextSink) and whole
        kept = self._kept.get(sink.spelling) if keep else None
        if kept is not None and kept[0] == changes and isinstance(sink, TextSink):
            sink.parts.extend(kept[1])
            return
        begin = len(sink.parts) if isinstance(sink, TextSink) else 0
        states: list[tuple[Labels, tuple[int, ...]]] = []
        for start in range(0, len(partitions), _SLICE):
            states += [(self._of(each), _state(each)) for each in partitions[start : start + _SLICE]]
            yield
        for column, family in enumerate(_STATE_FAMILIES):
            sink.begin(family)
            for start in range(0, len(states), _SLICE):
                sink.rows([(labels, state[column]) for labels, state in states[start : start + _SLICE]])
                yield
        if keep and isinstance(sink, TextSink):
            self._kept[sink.spelling] = changes, sink.parts[begin:]


_SUMS: Final = (
    names.LEADER_COUNT,
    names.UNDER_REPLICATED,
    names.UNDER_MIN_ISR,
    names.AT_MIN_ISR,
    names.REASSIGNING,
    names.OFFLINE_REPLICAS,
)
_LOG_FAMILIES: Final = (
    (names.LOG_SIZE, "size"),
    (names.LOG_START, "log_start_offset"),
    (names.LOG_END, "log_end_offset"),
)
_STATE_FAMILIES: Final = (
    names.PARTITION_UNDER_REPLICATED,
    names.PARTITION_ISR,
    names.PARTITION_REPLICAS,
    names.PARTITION_UNDER_MIN_ISR,
    names.PARTITION_AT_MIN_ISR,
)


def _minimum(partition: Partition) -> int:
    log = partition.log
    return 1 if log is None else partition.min_in_sync(log.config)


def _state(partition: Partition) -> tuple[int, int, int, int, int]:
    """The values of `_STATE_FAMILIES`; as in Kafka, those of a follower are 0."""
    if not partition.is_leader:
        return 0, 0, 0, 0, 0
    isr, replicas, minimum = len(partition.isr), len(partition.replicas), _minimum(partition)
    return int(isr < replicas), isr, replicas, int(isr < minimum), int(isr == minimum)
