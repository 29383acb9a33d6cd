"""A stream of records: every record is an event of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Unpack, overload

from ottla.streams.dsl.branched import BranchedKStream
from ottla.streams.dsl.global_ktable import GlobalKTable
from ottla.streams.dsl.grouped import KGroupedStream
from ottla.streams.dsl.join_options import JoinOptions, StreamJoinOptions, TableJoinOptions
from ottla.streams.dsl.stream_joins import join_streams, join_table
from ottla.streams.dsl.wiring import Flow, Repartition, Wiring, repartition
from ottla.streams.errors import TopologyError
from ottla.streams.functions import Action, Function, Joiner, JoinFunction, Mapper, Predicate
from ottla.streams.graph.operators import (
    Filter,
    FlatMap,
    FlatMapValues,
    Foreach,
    Map,
    MapValues,
    Operator,
    PassThrough,
    Peek,
    Print,
    Process,
    ProcessorSupplier,
    SelectKey,
    Sink,
    Store,
    StoreKind,
    TableSource,
)
from ottla.streams.serdes import AnySerde, Serde, SerdeLike, as_serde
from ottla.streams.type_variables import K2, V2, K, R, V
from ottla.streams.windows import JoinWindows

if TYPE_CHECKING:
    from ottla.streams.dsl.ktable import KTable


class KStream(Flow[K, V]):
    """A stream of records with keys of type K and values of type V. `StreamsBuilder.stream` makes one of a topic.

    Functions take the value, or the key and the value; an expression (`col("value.amount") > 10`) may stand in
    for one. Every operator accepts `name=`: its name in the topology.

    >>> builder = StreamsBuilder()
    >>> lines = builder.stream("lines")
    >>> lines.flat_map_values(str.split).map_values(str.upper).to("words")
    >>> driver = TopologyTestDriver(builder)
    >>> driver.pipe_input("lines", "hello world", key="a")
    >>> driver.read_all("words")
    [Record('a', 'HELLO', timestamp=0), Record('a', 'WORLD', timestamp=0)]
    """

    def __init__(
        self,
        wiring: Wiring,
        node: str,
        key_serde: Serde[K] | None,
        value_serde: Serde[V] | None,
        *,
        rekeyed: bool = False,
    ) -> None:
        super().__init__(wiring, node, key_serde, value_serde)
        self._rekeyed = rekeyed
        self._repartitioned: Repartition | None = None

    def _then(
        self,
        prefix: str,
        name: str | None,
        operator: Operator,
        *,
        keeps_key: bool = True,
        keeps_value: bool = True,
        stores: tuple[str, ...] = (),
    ) -> KStream:
        node = self._wiring.add(self._wiring.named(name, prefix), operator, self._node, stores=stores)
        return KStream(
            self._wiring,
            node,
            self._key_serde if keeps_key else None,
            self._value_serde if keeps_value else None,
            rekeyed=self._rekeyed or not keeps_key,
        )

    def filter(self, predicate: Predicate[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records for which the predicate holds.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").filter(lambda value: value.startswith("h")).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("in", [("a", "hello", 0), ("b", "world", 1)])
        >>> driver.read_all("out")
        [Record('a', 'hello', timestamp=0)]
        """
        return self._then("KSTREAM-FILTER-", name, Filter(Function(predicate)))

    def filter_not(self, predicate: Predicate[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records for which the predicate does not hold.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").filter_not(lambda key, value: key == "a").to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("in", [("a", "hello", 0), ("b", "world", 1)])
        >>> driver.read_all("out")
        [Record('b', 'world', timestamp=1)]
        """
        return self._then("KSTREAM-FILTER-", name, Filter(Function(predicate), negate=True))

    def map(self, mapper: Mapper[K, V, tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]:
        """A new (key, value) for each record. The new key makes later joins and groups repartition the stream.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").map(lambda key, value: (value, key)).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "hello", key="a")
        >>> driver.read_all("out")
        [Record('hello', 'a', timestamp=0)]
        """
        operator = Map(Function(mapper))
        return self._then("KSTREAM-MAP-", name, operator, keeps_key=False, keeps_value=False)

    def map_values(
        self, mapper: Mapper[K, V, R], *, value_serde: SerdeLike = None, name: str | None = None
    ) -> KStream[K, R]:
        """A new value for each record; the key stays.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").map_values(len, value_serde=int).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "hello", key="a")
        >>> driver.read_all("out")
        [Record('a', 5, timestamp=0)]
        """
        mapped = self._then("KSTREAM-MAPVALUES-", name, MapValues(Function(mapper)), keeps_value=False)
        mapped._value_serde = as_serde(value_serde)
        return mapped

    def flat_map(
        self, mapper: Mapper[K, V, Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]:
        """Any number of (key, value) pairs for each record.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").flat_map(lambda line: [(word, line) for word in line.split()]).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "so it goes")
        >>> [record.key for record in driver.read_all("out")]
        ['so', 'it', 'goes']
        """
        operator = FlatMap(Function(mapper))
        return self._then("KSTREAM-FLATMAP-", name, operator, keeps_key=False, keeps_value=False)

    def flat_map_values(
        self, mapper: Mapper[K, V, Iterable[R]], *, value_serde: SerdeLike = None, name: str | None = None
    ) -> KStream[K, R]:
        """Any number of values for each record; the key stays.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").flat_map_values(str.split).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "so it goes", key="a")
        >>> [(record.key, record.value) for record in driver.read_all("out")]
        [('a', 'so'), ('a', 'it'), ('a', 'goes')]
        """
        operator = FlatMapValues(Function(mapper))
        mapped = self._then("KSTREAM-FLATMAPVALUES-", name, operator, keeps_value=False)
        mapped._value_serde = as_serde(value_serde)
        return mapped

    def select_key(self, mapper: Mapper[K, V, K2], *, name: str | None = None) -> KStream[K2, V]:
        """A new key for each record; the value stays.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in", value_serde="json").select_key(col("value.user")).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", {"user": "ann"})
        >>> driver.read_all("out")
        [Record('ann', {'user': 'ann'}, timestamp=0)]
        """
        return self._then("KSTREAM-KEY-SELECT-", name, SelectKey(Function(mapper)), keeps_key=False)

    def peek(self, action: Action[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Calls a function for each record, which goes on unchanged.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").peek(lambda value: print(value)).to("out")
        >>> TopologyTestDriver(builder).pipe_input("in", "hello", key="a")
        hello
        """
        return self._then("KSTREAM-PEEK-", name, Peek(Function(action)))

    def foreach(self, action: Action[K, V], *, name: str | None = None) -> None:
        """Calls a function for each record; the stream ends here.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").foreach(lambda key, value: print(key, value))
        >>> TopologyTestDriver(builder).pipe_input("in", "hello", key="a")
        a hello
        """
        self._then("KSTREAM-FOREACH-", name, Foreach(Function(action)))

    def print(self, *, label: str | None = None, name: str | None = None) -> None:
        """Writes each record to the standard output as `[label]: key, value`; the stream ends here.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").print(label="seen")
        >>> TopologyTestDriver(builder).pipe_input("in", "hello", key="a")
        [seen]: a, hello
        """
        self._then("KSTREAM-PRINTER-", name, Print(label or self._node))

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Splits the stream into branches, see `BranchedKStream`.

        >>> builder = StreamsBuilder()
        >>> split = builder.stream("in").split(name="case-")
        >>> sorted(split.branch(str.isupper, name="upper").default_branch(name="rest"))
        ['case-rest', 'case-upper']
        """
        return BranchedKStream(self, name)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records of both streams.

        >>> builder = StreamsBuilder()
        >>> builder.stream("left").merge(builder.stream("right")).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("left", "one")
        >>> driver.pipe_input("right", "two")
        >>> [record.value for record in driver.read_all("out")]
        ['one', 'two']
        """
        merged = self._wiring.named(name, "KSTREAM-MERGE-")
        self._wiring.add(merged, PassThrough(), self._node, other._node)
        return KStream(self._wiring, merged, None, None, rekeyed=self._rekeyed or other._rekeyed)

    def repartition(
        self,
        *,
        name: str | None = None,
        partitions: int | None = None,
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
    ) -> KStream[K, V]:
        """Sends records to the tasks of their keys at this point, through an internal topic.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").select_key(len).repartition(key_serde=int).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "hello")
        >>> driver.read_all("out")
        [Record(5, 'hello', timestamp=0)]
        """
        prefix = name or self._wiring.processor_name("KSTREAM-REPARTITION-")
        key = as_serde(key_serde) or self._key_serde
        value = as_serde(value_serde) or self._value_serde
        way = repartition(self._wiring, self._node, prefix, key, value, partitions=partitions)
        return KStream(self._wiring, way.source, key, value)

    def _repartition_for_join(
        self, prefix: str, key_serde: AnySerde | None, value_serde: AnySerde | None
    ) -> KStream[K, V]:
        key, value = key_serde or self._key_serde, value_serde or self._value_serde
        reuse = self._repartitioned if prefix == self._node else None
        way = repartition(self._wiring, self._node, prefix, key, value, reuse=reuse)
        self._repartitioned = way
        return KStream(self._wiring, way.source, key, value)

    def to(
        self,
        topic: str | Mapper[K, V, str],
        *,
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
        partitioner: Callable[[K, V, int], int | None] | None = None,
        name: str | None = None,
    ) -> None:
        """Writes to a topic; a function of the record may choose the topic.

        `partitioner(key, value, partitions)` chooses a partition; None leaves the choice to Kafka's hash of the key.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to(lambda value: f"words-of-{len(value)}")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "hello")
        >>> driver.output_topics()
        ['words-of-5']
        """
        sink = Sink(
            topic if isinstance(topic, str) else Function(topic),
            as_serde(key_serde) or self._key_serde,
            as_serde(value_serde) or self._value_serde,
            partitioner=partitioner,
        )
        self._wiring.add(self._wiring.named(name, "KSTREAM-SINK-"), sink, self._node)

    def to_table(
        self,
        *,
        name: str | None = None,
        store: str | None = None,
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
    ) -> KTable[K, V]:
        """The latest value per key.

        >>> builder = StreamsBuilder()
        >>> table = builder.stream("in").to_table(store="latest")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("in", [("a", "one", 0), ("a", "two", 1)])
        >>> driver.store("latest").get("a").value
        'two'
        """
        from ottla.streams.dsl.ktable import KTable

        wiring = self._wiring
        node = wiring.named(name, "KSTREAM-TOTABLE-")
        store_name = store or wiring.store_name("KSTREAM-TOTABLE-")
        key, value = as_serde(key_serde) or self._key_serde, as_serde(value_serde) or self._value_serde
        parent = self._node
        if self._rekeyed:
            parent = repartition(wiring, self._node, node, key, value).source
        operator = TableSource(store_name, materialized=store is not None)
        wiring.add(node, operator, parent)
        kept = Store(store_name, StoreKind.KEY_VALUE, key_serde=key, value_serde=value)
        return KTable.of_source(wiring, node, operator, kept)

    def group_by_key(
        self, *, name: str | None = None, key_serde: SerdeLike = None, value_serde: SerdeLike = None
    ) -> KGroupedStream[K, V]:
        """Groups records by the key they have.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by_key().count().to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("in", [("a", "one", 0), ("a", "two", 1)])
        >>> [record.value for record in driver.read_all("out")]
        [1, 2]
        """
        return KGroupedStream(
            self._wiring,
            self._node,
            as_serde(key_serde) or self._key_serde,
            as_serde(value_serde) or self._value_serde,
            rekeyed=self._rekeyed,
            repartition_name=name,
        )

    def group_by(
        self,
        key: Mapper[K, V, K2],
        *,
        name: str | None = None,
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
    ) -> KGroupedStream[K2, V]:
        """Groups records by a key that is computed from each.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by(lambda word: word[0]).count().to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("in", [(None, "hello", 0), (None, "house", 1)])
        >>> driver.read_all("out")[-1]
        Record('h', 2, timestamp=1)
        """
        selected = self._then("KSTREAM-KEY-SELECT-", name, SelectKey(Function(key)), keeps_key=False)
        return KGroupedStream(
            self._wiring,
            selected._node,
            as_serde(key_serde),
            as_serde(value_serde) or self._value_serde,
            rekeyed=True,
            repartition_name=name,
        )

    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: JoinFunction[K, V, V2, R],
        window: JoinWindows,
        **options: Unpack[StreamJoinOptions],
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self, other: KTable[K, V2], joiner: JoinFunction[K, V, V2, R], **options: Unpack[TableJoinOptions]
    ) -> KStream[K, R]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: JoinFunction[K, V, V2, R],
        *,
        key: Mapper[K, V, K2],
        name: str | None = None,
    ) -> KStream[K, R]: ...

    def join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: JoinFunction,
        window: JoinWindows | None = None,
        **options: Unpack[JoinOptions],
    ) -> KStream:
        """Joins with a stream (within a window), a table, or a global table (`key=` computes the key to look up).

        The joiner makes a value of both values, or of the key and both values.

        >>> builder = StreamsBuilder()
        >>> clicks, users = builder.stream("clicks"), builder.table("users")
        >>> clicks.join(users, lambda page, user: f"{user} reads {page}").to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("users", "Ann", key="u1")
        >>> driver.pipe_input("clicks", "/home", key="u1")
        >>> driver.read_all("out")
        [Record('u1', 'Ann reads /home', timestamp=0)]
        """
        return self._join(other, joiner, window, left=False, outer=False, **options)

    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: JoinFunction[K, V, V2 | None, R],
        window: JoinWindows,
        **options: Unpack[StreamJoinOptions],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: JoinFunction[K, V, V2 | None, R],
        **options: Unpack[TableJoinOptions],
    ) -> KStream[K, R]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: JoinFunction[K, V, V2 | None, R],
        *,
        key: Mapper[K, V, K2],
        name: str | None = None,
    ) -> KStream[K, R]: ...

    def left_join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: JoinFunction,
        window: JoinWindows | None = None,
        **options: Unpack[JoinOptions],
    ) -> KStream:
        """Like `join`, but a record without a partner is joined with None.

        >>> builder = StreamsBuilder()
        >>> clicks, users = builder.stream("clicks"), builder.table("users")
        >>> clicks.left_join(users, lambda page, user: f"{user} reads {page}").to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("clicks", "/home", key="u1")
        >>> driver.read_all("out")
        [Record('u1', 'None reads /home', timestamp=0)]
        """
        return self._join(other, joiner, window, left=True, outer=False, **options)

    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: JoinFunction[K, V | None, V2 | None, R],
        window: JoinWindows,
        **options: Unpack[StreamJoinOptions],
    ) -> KStream[K, R]:
        """Joins with a stream; records of both sides without a partner are joined with None when the window closes.

        >>> builder = StreamsBuilder()
        >>> left, right = builder.stream("left"), builder.stream("right")
        >>> left.outer_join(right, lambda one, other: f"{one} {other}", JoinWindows.of(5)).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("left", "hello", key="a", timestamp=0)
        >>> driver.pipe_input("right", "world", key="b", timestamp=20)
        >>> driver.read_all("out")
        [Record('a', 'hello None', timestamp=0)]
        """
        return self._join(other, joiner, window, left=True, outer=True, **options)

    def _join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: JoinFunction,
        window: JoinWindows | None,
        *,
        left: bool,
        outer: bool,
        key: Mapper | None = None,
        name: str | None = None,
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
        other_value_serde: SerdeLike = None,
        store: str | None = None,
    ) -> KStream:
        if isinstance(other, KStream):
            if window is None:
                raise TopologyError("two streams are joined within a window: give JoinWindows.of(...)")
            serdes = (as_serde(key_serde), as_serde(value_serde), as_serde(other_value_serde))
            return join_streams(
                self,
                other,
                Joiner(joiner),
                window,
                left=left,
                outer=outer,
                name=name,
                store=store,
                serdes=serdes,
            )
        if window is not None or outer:
            raise TopologyError("a stream is joined with a table without a window, as an inner or left join")
        return join_table(
            self,
            other,
            Joiner(joiner),
            left=left,
            key=None if key is None else Function(key),
            name=name,
            serdes=(as_serde(key_serde), as_serde(value_serde)),
        )

    def process(
        self,
        processor: ProcessorSupplier[K, V, K2, V2],
        *,
        stores: Iterable[str] = (),
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Runs a processor of your own: a class or function that makes a `Processor` for each task.

        >>> class Doubler(Processor[str, str, str, str]):
        ...     def process(self, record):
        ...         self.context.forward(record)
        ...         self.context.forward(record.with_value(record.value * 2))
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").process(Doubler).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "ho")
        >>> [record.value for record in driver.read_all("out")]
        ['ho', 'hoho']
        """
        node = name or self._wiring.processor_name("KSTREAM-PROCESSOR-")
        self._wiring.add(node, Process(processor), self._node, stores=tuple(stores))
        return KStream(self._wiring, node, None, None, rekeyed=True)

    def process_values(
        self,
        processor: ProcessorSupplier[K, V, K, V2],
        *,
        stores: Iterable[str] = (),
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Like `process`, for processors that keep the key.

        >>> class Length(Processor[str, str, str, int]):
        ...     def process(self, record):
        ...         self.context.forward(record.with_value(len(record.value)))
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").process_values(Length).to("out", value_serde=int)
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "hello")
        >>> driver.read_all("out")
        [Record(None, 5, timestamp=0)]
        """
        node = name or self._wiring.processor_name("KSTREAM-PROCESSVALUES-")
        self._wiring.add(node, Process(processor, fixed_key=True), self._node, stores=tuple(stores))
        return KStream(self._wiring, node, self._key_serde, None, rekeyed=self._rekeyed)
