"""The TopologyTestDriver: a topology without Spark and without a broker, on a clock that tests move by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from ottla.streams.dsl.builder import StreamsBuilder
from ottla.streams.errors import StreamsError
from ottla.streams.graph.operators import Sink, Source
from ottla.streams.graph.topology import Node, Topology
from ottla.streams.interpreter.context import RecordMetadata
from ottla.streams.interpreter.source_reader import read_source
from ottla.streams.interpreter.state_map import MemoryMap
from ottla.streams.interpreter.store_factory import make_stores
from ottla.streams.interpreter.task import Task
from ottla.streams.records import Headers, Record
from ottla.streams.serdes import Serde, as_serde, natural_serde
from ottla.streams.windows import Duration, to_ms


class TopologyTestDriver:
    """Pipe records in, read records and stores out. Every record is processed to its end before the next."""

    def __init__(self, topology: Topology | StreamsBuilder, *, start_ms: int = 0) -> None:
        self.topology = topology.build() if isinstance(topology, StreamsBuilder) else topology
        self._now_ms = start_ms
        self._outputs: dict[str, deque[Record]] = {}
        self._sinks: dict[str, Sink] = {}
        self._waiting: deque[tuple[Node, Record, RecordMetadata]] = deque()
        self._offsets: dict[str, int] = {}
        self._stores = make_stores(self.topology.stores.values(), lambda _: MemoryMap())
        self._tasks: dict[str, Task] = {}
        for part in self.topology.subtopologies():
            task = Task(part.nodes, self._stores, self._emit, now_ms=lambda: self._now_ms)
            self._tasks.update((node.name, task) for node in part.nodes)
        self._sources: dict[str, list[Node]] = {}
        for node in self.topology.sources:
            assert isinstance(node.operator, Source)
            for topic in node.operator.topics:
                self._sources.setdefault(topic, []).append(node)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def pipe_input(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        *,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> None:
        """A record as a producer would send it: bytes as they are, other values through the topic's serdes."""
        for node in self._sources_of(topic):
            source = node.operator
            assert isinstance(source, Source)
            raw_key = _raw(source.key_serde, key)
            raw_value = _raw(source.value_serde, value)
            time = self._now_ms if timestamp is None else timestamp
            offset = self._offsets.get(topic, 0)
            self._offsets[topic] = offset + 1
            metadata = RecordMetadata(topic, 0, offset)
            self._read(node, Record(raw_key, raw_value, time, headers), metadata)
        self._run()

    def pipe_records(self, topic: str, records: Iterable[tuple[Any, Any, int]]) -> None:
        """(key, value, timestamp) one after the other."""
        for key, value, timestamp in records:
            self.pipe_input(topic, value, key, timestamp=timestamp)

    def read_output(self, topic: str, *, key_serde: Any = None, value_serde: Any = None) -> Record | None:
        """The next record of a topic, or None; serdes are those it was written with unless others are given."""
        waiting = self._outputs.get(topic)
        if not waiting:
            return None
        raw = waiting.popleft()
        sink = self._sinks.get(topic)
        key = _reader(as_serde(key_serde), sink.key_serde if sink else None)
        value = _reader(as_serde(value_serde), sink.value_serde if sink else None)
        return Record(key(raw.key), value(raw.value), raw.timestamp, raw.headers)

    def read_all(self, topic: str, *, key_serde: Any = None, value_serde: Any = None) -> list[Record]:
        return list(self._read_all(topic, key_serde, value_serde))

    def _read_all(self, topic: str, key_serde: Any, value_serde: Any) -> Iterator[Record]:
        while (record := self.read_output(topic, key_serde=key_serde, value_serde=value_serde)) is not None:
            yield record

    def output_topics(self) -> list[str]:
        return sorted(topic for topic, waiting in self._outputs.items() if waiting)

    def store(self, name: str) -> Any:
        if name not in self._stores:
            raise StreamsError(f"there is no state store {name}; there are {', '.join(sorted(self._stores))}")
        return self._stores[name]

    @property
    def now_ms(self) -> int:
        return self._now_ms

    def advance_time(self, by: Duration) -> None:
        """Moves the wall clock and calls the timers that are due."""
        self._now_ms += to_ms(by)
        for task in dict.fromkeys(self._tasks.values()):
            task.punctuate_wall_clock()
        self._run()

    def close(self) -> None:
        for task in dict.fromkeys(self._tasks.values()):
            task.close()

    def _sources_of(self, topic: str) -> list[Node]:
        if topic not in self._sources:
            known = ", ".join(self.topology.source_topics())
            raise StreamsError(f"the topology does not read {topic}; it reads {known}")
        return self._sources[topic]

    def _read(self, node: Node, raw: Record, metadata: RecordMetadata) -> None:
        self._waiting.append((node, raw, metadata))

    def _run(self) -> None:
        while self._waiting:
            node, record, metadata = self._waiting.popleft()
            source = node.operator
            assert isinstance(source, Source)
            if source.internal:
                self._tasks[node.name].process(node.name, record, metadata)
            else:
                read_source(self._tasks[node.name], node, source, record, metadata, self._dead_letter)

    def _dead_letter(self, topic: str, record: Record) -> None:
        self._outputs.setdefault(topic, deque()).append(record)

    def _emit(self, node: Node, record: Record) -> None:
        sink = node.operator
        assert isinstance(sink, Sink)
        topic = sink.topic if isinstance(sink.topic, str) else sink.topic.of_record(record)
        if sink.internal:
            for source in self._sources_of(topic):
                self._waiting.append((source, record, RecordMetadata(topic, 0, 0)))
            return
        raw = Record(
            (sink.key_serde or natural_serde).serialize(record.key),
            (sink.value_serde or natural_serde).serialize(record.value),
            record.timestamp,
            record.headers,
        )
        self._sinks[topic] = sink
        self._outputs.setdefault(topic, deque()).append(raw)
        for source in self._sources.get(topic, ()):
            self._waiting.append((source, raw, RecordMetadata(topic, 0, 0)))


def _raw(serde: Serde[Any] | None, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (serde or natural_serde).serialize(value)


def _reader(wanted: Serde[Any] | None, written: Serde[Any] | None) -> Any:
    return (wanted or written or natural_serde).deserialize
