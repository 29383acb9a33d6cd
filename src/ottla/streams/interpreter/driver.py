"""The TopologyTestDriver: runs a topology without Spark and without a broker, on a clock that the test moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self

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
from ottla.streams.serdes import AnySerde, SerdeLike, as_serde, natural_serde
from ottla.streams.type_variables import Unknown
from ottla.streams.windows import Duration, to_ms


class TopologyTestDriver:
    """Tests a topology in plain Python: pipe records in, read records and stores.

    Every record is processed to its end before the next. The driver's clock stands still until `advance_time`.

    >>> builder = StreamsBuilder()
    >>> builder.stream("in").map_values(str.upper).to("out")
    >>> with TopologyTestDriver(builder) as driver:
    ...     driver.pipe_input("in", "hello", key="a")
    ...     driver.read_output("out")
    Record('a', 'HELLO', timestamp=0)
    """

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
        value: object,
        key: object = None,
        *,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Sends a record to a topic; bytes are sent as they are, other values go through the topic's serdes.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in", value_serde=int).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", 7, key="a", timestamp=1_000, headers=(("trace", b"42"),))
        >>> driver.read_output("out")
        Record('a', 7, timestamp=1000, headers=(('trace', b'42'),))
        """
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

    def pipe_records(self, topic: str, records: Iterable[tuple[object, object, int]]) -> None:
        """Sends (key, value, timestamp) one after the other.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("in", [("a", "one", 0), ("b", "two", 1)])
        >>> driver.read_all("out")
        [Record('a', 'one', timestamp=0), Record('b', 'two', timestamp=1)]
        """
        for key, value, timestamp in records:
            self.pipe_input(topic, value, key, timestamp=timestamp)

    def read_output(
        self, topic: str, *, key_serde: SerdeLike = None, value_serde: SerdeLike = None
    ) -> Record | None:
        """The next record of a topic, or None. Unless serdes are given, those of the topic's sink read it.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "hello")
        >>> driver.read_output("out", value_serde=bytes)
        Record(None, b'hello', timestamp=0)
        >>> driver.read_output("out")
        """
        waiting = self._outputs.get(topic)
        if not waiting:
            return None
        raw = waiting.popleft()
        sink = self._sinks.get(topic)
        key = _reader(as_serde(key_serde), sink.key_serde if sink else None)
        value = _reader(as_serde(value_serde), sink.value_serde if sink else None)
        return Record(key(raw.key), value(raw.value), raw.timestamp, raw.headers)

    def read_all(
        self, topic: str, *, key_serde: SerdeLike = None, value_serde: SerdeLike = None
    ) -> list[Record]:
        """All records of a topic that have not been read yet.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "hello")
        >>> driver.read_all("out")
        [Record(None, 'hello', timestamp=0)]
        """
        return list(self._read_all(topic, key_serde, value_serde))

    def _read_all(self, topic: str, key_serde: SerdeLike, value_serde: SerdeLike) -> Iterator[Record]:
        while (record := self.read_output(topic, key_serde=key_serde, value_serde=value_serde)) is not None:
            yield record

    def output_topics(self) -> list[str]:
        """The topics with records that have not been read yet.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "hello")
        >>> driver.output_topics()
        ['out']
        """
        return sorted(topic for topic, waiting in self._outputs.items() if waiting)

    def store(self, name: str) -> Unknown:
        """A state store: the rows of a table have a value and a timestamp, a processor's store has its values.

        >>> builder = StreamsBuilder()
        >>> table = builder.table("names", store="names")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("names", "Ann", key="u1", timestamp=5)
        >>> driver.store("names").get("u1")
        ValueAndTimestamp(value='Ann', timestamp=5)
        """
        if name not in self._stores:
            raise StreamsError(f"there is no state store {name}; there are {', '.join(sorted(self._stores))}")
        return self._stores[name]

    @property
    def now_ms(self) -> int:
        """The driver's clock.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> TopologyTestDriver(builder, start_ms=1_000).now_ms
        1000
        """
        return self._now_ms

    def advance_time(self, by: Duration) -> None:
        """Moves the clock and calls the timers that are due.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.advance_time(1_000)
        >>> driver.now_ms
        1000
        """
        self._now_ms += to_ms(by)
        for task in dict.fromkeys(self._tasks.values()):
            task.punctuate_wall_clock()
        self._run()

    def close(self) -> None:
        """Closes all processors; a `with` block does this at its end.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> TopologyTestDriver(builder).close()
        """
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


def _raw(serde: AnySerde | None, value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (serde or natural_serde).serialize(value)


def _reader(wanted: AnySerde | None, written: AnySerde | None) -> Callable[[bytes | None], Unknown]:
    return (wanted or written or natural_serde).deserialize
