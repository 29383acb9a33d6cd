"""Streams and tables grouped by key: counts, reductions and aggregates without windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

from ottla.streams.dsl.cogrouped import CogroupedKStream
from ottla.streams.dsl.windowed import AnyWindows, WindowedKStream, count_one
from ottla.streams.dsl.wiring import Repartition, Wiring, repartition
from ottla.streams.functions import Aggregator, Reducer
from ottla.streams.functions import initializer as as_initializer
from ottla.streams.graph.operators import (
    Aggregate,
    Reduce,
    SessionAggregate,
    Sink,
    SlidingAggregate,
    Source,
    Store,
    StoreKind,
    TableAggregate,
    TableReduce,
    WindowAggregate,
)
from ottla.streams.serdes import AnySerde, Serde, SerdeLike, as_serde, long_serde
from ottla.streams.type_variables import K, R, V

if TYPE_CHECKING:
    from ottla.streams.dsl.ktable import KTable


class KGroupedStream(Generic[K, V]):
    """A stream grouped by key; `KStream.group_by` and `group_by_key` make one.

    >>> builder = StreamsBuilder()
    >>> grouped = builder.stream("in").group_by(lambda word: word[0])
    >>> grouped.count().to_stream().to("out")
    >>> driver = TopologyTestDriver(builder)
    >>> driver.pipe_records("in", [(None, "hello", 0), (None, "house", 1)])
    >>> driver.read_all("out")
    [Record('h', 1, timestamp=0), Record('h', 2, timestamp=1)]
    """

    def __init__(
        self,
        wiring: Wiring,
        node: str,
        key_serde: Serde[K] | None,
        value_serde: Serde[V] | None,
        *,
        rekeyed: bool,
        repartition_name: str | None,
    ) -> None:
        self._wiring = wiring
        self._node = node
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._rekeyed = rekeyed
        self._repartition_name = repartition_name
        self._repartitioned: Repartition | None = None

    def windowed_by(self, windows: AnyWindows) -> WindowedKStream[K, V]:
        """Divides each group by time: `tumbling(...)`, `hopping(...)`, `sliding(...)` or `session(...)`.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").group_by_key().windowed_by(tumbling(10)).count().to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("in", [("a", "one", 1), ("a", "two", 12)])
        >>> [str(record.key) for record in driver.read_all("out")]
        ['[a@0/10]', '[a@10/20]']
        """
        return WindowedKStream(self, windows)

    def cogroup(self, aggregator: Aggregator[K, V, R]) -> CogroupedKStream[K, R]:
        """Begins an aggregate that several grouped streams build together.

        >>> builder = StreamsBuilder()
        >>> ins, outs = (builder.stream(topic).group_by_key() for topic in ("ins", "outs"))
        >>> both = ins.cogroup(lambda key, value, total: total + 1)
        >>> both.cogroup(outs, lambda key, value, total: total - 1).aggregate(0).to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("ins", "x", key="a")
        >>> driver.pipe_input("outs", "x", key="a")
        >>> [record.value for record in driver.read_all("out", value_serde=int)]
        [1, 0]
        """
        return CogroupedKStream[K, R](self._wiring).cogroup(self, aggregator)

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable[K, int]:
        """The number of records of each key.

        >>> builder = StreamsBuilder()
        >>> counts = builder.stream("in").group_by_key().count(store="counts")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("in", [("a", "one", 0), ("a", "two", 1)])
        >>> driver.store("counts").get("a").value
        2
        """
        store_name = store or self._wiring.store_name("KSTREAM-AGGREGATE-")
        node = self._wiring.named(name, "KSTREAM-AGGREGATE-")
        operator = Aggregate(store_name, lambda: 0, count_one, is_count=True)
        return self._table(node, operator, self._store(store_name, long_serde))

    def reduce(
        self, reducer: Reducer[V], *, store: str | None = None, name: str | None = None
    ) -> KTable[K, V]:
        """Folds each value into the last result: `reducer(result, value)`. The first value is the first result.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in", value_serde=int).group_by_key().reduce(max).to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("in", [("a", 3, 0), ("a", 7, 1), ("a", 5, 2)])
        >>> [record.value for record in driver.read_all("out")]
        [3, 7, 7]
        """
        store_name = store or self._wiring.store_name("KSTREAM-REDUCE-")
        node = self._wiring.named(name, "KSTREAM-REDUCE-")
        return self._table(node, Reduce(store_name, reducer), self._store(store_name, self._value_serde))

    def aggregate(
        self,
        initializer: Callable[[], R] | R,
        aggregator: Aggregator[K, V, R],
        *,
        value_serde: SerdeLike = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, R]:
        """Builds a result of another type: `aggregator(key, value, result)`, beginning with `initializer()`.

        >>> builder = StreamsBuilder()
        >>> grouped = builder.stream("in").group_by_key()
        >>> total = grouped.aggregate(0, lambda key, value, size: size + len(value), value_serde=int)
        >>> total.to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("in", [("a", "hello", 0), ("a", "world", 1)])
        >>> [record.value for record in driver.read_all("out")]
        [5, 10]
        """
        store_name = store or self._wiring.store_name("KSTREAM-AGGREGATE-")
        node = self._wiring.named(name, "KSTREAM-AGGREGATE-")
        operator = Aggregate(store_name, as_initializer(initializer), aggregator)
        return self._table(node, operator, self._store(store_name, as_serde(value_serde)))

    def _store(self, name: str, value_serde: AnySerde | None) -> Store:
        return Store(name, StoreKind.KEY_VALUE, key_serde=self._key_serde, value_serde=value_serde)

    def _parent(self, store: str) -> str:
        """The node to aggregate after, behind a repartition topic where the key has changed."""
        if not self._rekeyed:
            return self._node
        prefix = self._repartition_name or store
        reuse = self._repartitioned if self._repartition_name else None
        self._repartitioned = repartition(
            self._wiring, self._node, prefix, self._key_serde, self._value_serde, reuse=reuse
        )
        return self._repartitioned.source

    def _table(
        self,
        node: str,
        operator: Aggregate | Reduce | WindowAggregate | SlidingAggregate | SessionAggregate,
        store: Store,
        key_serde: AnySerde | None = None,
    ) -> KTable:
        from ottla.streams.dsl.ktable import KTable

        parent = self._parent(store.name)
        self._wiring.add_store(store)
        self._wiring.add(node, operator, parent, stores=(store.name,))
        return KTable.of_aggregate(self._wiring, node, operator, store, key_serde or store.key_serde)


class KGroupedTable(Generic[K, V]):
    """A table grouped by a new key: when a row changes, its old part is taken away and its new part added.

    >>> builder = StreamsBuilder()
    >>> grouped = builder.table("people").group_by(lambda name, city: (city, name))
    >>> grouped.count().to_stream().to("people-per-city")
    >>> driver = TopologyTestDriver(builder)
    >>> driver.pipe_records("people", [("ann", "Brno", 0), ("bob", "Brno", 1), ("bob", "Praha", 2)])
    >>> [(record.key, record.value) for record in driver.read_all("people-per-city")]
    [('Brno', 1), ('Brno', 2), ('Brno', 1), ('Praha', 1)]
    """

    def __init__(
        self,
        wiring: Wiring,
        node: str,
        key_serde: Serde[K] | None,
        value_serde: Serde[V] | None,
        repartition_name: str | None,
    ) -> None:
        self._wiring = wiring
        self._node = node
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._repartition_name = repartition_name
        self._source: str | None = None

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable[K, int]:
        """The number of rows of each new key.

        >>> builder = StreamsBuilder()
        >>> grouped = builder.table("people").group_by(lambda name, city: (city, name))
        >>> counts = grouped.count(store="counts")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("people", [("ann", "Brno", 0), ("bob", "Brno", 1)])
        >>> driver.store("counts").get("Brno").value
        2
        """
        store_name = store or self._wiring.store_name("KTABLE-AGGREGATE-")
        operator = TableAggregate(store_name, lambda: 0, count_one, lambda _, __, count: count - 1)
        return self._table(operator, name, "KTABLE-AGGREGATE-", store_name, long_serde)

    def reduce(
        self,
        adder: Reducer[V],
        subtractor: Reducer[V],
        *,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Folds rows into a result of the same type: `adder(result, value)`, `subtractor(result, value)`.

        >>> builder = StreamsBuilder()
        >>> stock = builder.table("stock", value_serde="json")
        >>> grouped = stock.group_by(lambda item: (item["shelf"], item["pieces"]), value_serde=int)
        >>> total = grouped.reduce(lambda a, b: a + b, lambda a, b: a - b, store="total")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("stock", {"shelf": "top", "pieces": 3}, key="pen")
        >>> driver.pipe_input("stock", {"shelf": "top", "pieces": 4}, key="ink")
        >>> driver.store("total").get("top").value
        7
        """
        store_name = store or self._wiring.store_name("KTABLE-AGGREGATE-")
        operator = TableReduce(store_name, adder, subtractor)
        return self._table(operator, name, "KTABLE-REDUCE-", store_name, self._value_serde)

    def aggregate(
        self,
        initializer: Callable[[], R] | R,
        adder: Aggregator[K, V, R],
        subtractor: Aggregator[K, V, R],
        *,
        value_serde: SerdeLike = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, R]:
        """Builds a result of another type: `adder(key, value, result)` and `subtractor(key, value, result)`.

        >>> builder = StreamsBuilder()
        >>> grouped = builder.table("people").group_by(lambda name, city: (city, name))
        >>> names = grouped.aggregate(
        ...     "",
        ...     lambda city, name, names: names + name[0],
        ...     lambda city, name, names: names.replace(name[0], ""),
        ...     store="initials",
        ... )
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("people", [("ann", "Brno", 0), ("bob", "Brno", 1), ("ann", "Praha", 2)])
        >>> driver.store("initials").get("Brno").value
        'b'
        """
        store_name = store or self._wiring.store_name("KTABLE-AGGREGATE-")
        operator = TableAggregate(store_name, as_initializer(initializer), adder, subtractor)
        return self._table(operator, name, "KTABLE-AGGREGATE-", store_name, as_serde(value_serde))

    def _table(
        self,
        operator: TableAggregate | TableReduce,
        name: str | None,
        prefix: str,
        store_name: str,
        value_serde: AnySerde | None,
    ) -> KTable:
        from ottla.streams.dsl.ktable import KTable

        wiring = self._wiring
        sink = wiring.suffixed(name, "-sink", "KSTREAM-SINK-")
        source = wiring.suffixed(name, "-source", "KSTREAM-SOURCE-")
        node = wiring.named(name, prefix)
        topic = f"{self._repartition_name or store_name}-repartition"
        if self._source is None or self._repartition_name is None:
            self._source = source
            wiring.add(sink, Sink(topic, self._key_serde, self._value_serde, internal=True), self._node)
            wiring.add(
                source, Source((topic,), self._key_serde, self._value_serde, internal=True, changes=True)
            )
        store = Store(store_name, StoreKind.KEY_VALUE, key_serde=self._key_serde, value_serde=value_serde)
        wiring.add_store(store)
        wiring.add(node, operator, self._source, stores=(store_name,))
        return KTable.of_aggregate(wiring, node, operator, store, self._key_serde)
