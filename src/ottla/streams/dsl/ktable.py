"""A table: the latest value per key, and how it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack, overload

from ottla.streams.dsl.grouped import KGroupedTable
from ottla.streams.dsl.kstream import KStream
from ottla.streams.dsl.table_joins import join_on_foreign_key, join_tables
from ottla.streams.dsl.wiring import Flow, Wiring
from ottla.streams.errors import TopologyError
from ottla.streams.functions import Function, Joiner, JoinFunction, Mapper, Predicate
from ottla.streams.graph.operators import (
    Aggregate,
    Operator,
    Reduce,
    SessionAggregate,
    SlidingAggregate,
    Store,
    StoreKind,
    Suppress,
    TableAggregate,
    TableFilter,
    TableJoinMerge,
    TableMapValues,
    TableReduce,
    TableSelect,
    TableSource,
    TableToStream,
    WindowAggregate,
)
from ottla.streams.graph.views import FilterView, MapView, StoreView, View
from ottla.streams.serdes import AnySerde, Serde, SerdeLike, as_serde
from ottla.streams.type_variables import K2, V2, K, R, V
from ottla.streams.windows import SessionWindows, SlidingWindows, Suppressed, TimeWindows

_WINDOWED = (WindowAggregate, SlidingAggregate, SessionAggregate)
AnyAggregate = (
    Aggregate | Reduce | WindowAggregate | SlidingAggregate | SessionAggregate | TableAggregate | TableReduce
)


class _TableOptions(TypedDict, total=False):
    value_serde: SerdeLike
    store: str | None
    name: str | None


class KTable(Flow[K, V]):
    """A table with keys of type K and values of type V: the latest value per key, and its changes.

    `StreamsBuilder.table` makes one of a topic, aggregates make one of a stream. `store=` gives a table a state
    store with a name, which `TopologyTestDriver.store` and `StreamsApp.store` can read.

    >>> builder = StreamsBuilder()
    >>> names = builder.table("names", store="names")
    >>> names.map_values(str.upper).to_stream().to("out")
    >>> driver = TopologyTestDriver(builder)
    >>> driver.pipe_records("names", [("u1", "Ann", 0), ("u1", "Anna", 1)])
    >>> [record.value for record in driver.read_all("out")]
    ['ANN', 'ANNA']
    >>> driver.store("names").get("u1").value
    'Anna'
    """

    # `_send_old` makes the operators above add the old value to each change; `_view` finds current values.

    def __init__(
        self,
        wiring: Wiring,
        node: str,
        key_serde: Serde[K] | None,
        value_serde: Serde[V] | None,
        operators: Sequence[Operator],
        *,
        parents: Sequence[KTable] = (),
        store: Store | None = None,
        make_view: Callable[[], View] | None = None,
        windows: TimeWindows | SlidingWindows | SessionWindows | None = None,
    ) -> None:
        super().__init__(wiring, node, key_serde, value_serde)
        self._operators = operators
        self._parents = parents
        self._store = store
        self._make_view = make_view
        self._windows = windows
        self._sends_old = False

    @classmethod
    def of_source(cls, wiring: Wiring, node: str, operator: TableSource, store: Store) -> KTable[K, V]:
        """A table that is read from a topic or a stream; `StreamsBuilder.table` calls this.

        >>> StreamsBuilder().table("names").name
        'KTABLE-SOURCE-0000000002'
        """
        table = cls(wiring, node, store.key_serde, store.value_serde, [operator], store=store)
        if operator.materialized:
            table._materialize()
        return table

    @classmethod
    def of_aggregate(
        cls, wiring: Wiring, node: str, operator: AnyAggregate, store: Store, key_serde: AnySerde | None
    ) -> KTable[K, V]:
        """The table of one aggregate; `count`, `reduce` and `aggregate` call this.

        >>> StreamsBuilder().stream("in").group_by_key().count(name="counter").name
        'counter'
        """
        return cls.of_aggregates(wiring, node, [operator], store, key_serde)

    @classmethod
    def of_aggregates(
        cls,
        wiring: Wiring,
        node: str,
        operators: Sequence[AnyAggregate],
        store: Store,
        key_serde: AnySerde | None,
    ) -> KTable[K, V]:
        """The table of several aggregates in one store; `CogroupedKStream.aggregate` calls this.

        >>> grouped = StreamsBuilder().stream("in").group_by_key()
        >>> grouped.cogroup(lambda key, value, total: total + 1).aggregate(0, name="total").name
        'total-cogroup-merge'
        """
        first = operators[0]
        windows = first.windows if isinstance(first, _WINDOWED) else None
        return cls(wiring, node, key_serde, store.value_serde, operators, store=store, windows=windows)

    def _materialize(self) -> None:
        """Keeps a source in a store from the moment an operator looks values up."""
        source = self._operators[0]
        assert self._store is not None and isinstance(source, TableSource)
        source.materialized = True
        self._wiring.add_store(self._store)
        self._wiring.topology.connect(self._node, (self._store.name,))

    def _view(self) -> View:
        if self._store is not None:
            if isinstance(self._operators[0], TableSource):
                self._materialize()
            return StoreView(self._store.name)
        if self._make_view is None:
            raise TopologyError(f"the values of {self._node} cannot be looked up")
        return self._make_view()

    def _send_old(self, *, force: bool) -> bool:
        if self._sends_old:
            return True
        first = self._operators[0]
        if isinstance(first, TableSource):
            if not force and not first.materialized:
                return False
            self._materialize()
        elif isinstance(first, TableJoinMerge):
            for parent in self._parents:
                parent._send_old(force=True)
        elif self._store is None and not all(parent._send_old(force=force) for parent in self._parents):
            return False
        for operator in self._operators:
            if hasattr(operator, "send_old"):
                operator.send_old = True
        self._sends_old = True
        return True

    def _kept(self, store: str | None, value_serde: AnySerde | None) -> Store | None:
        if store is None:
            return None
        kept = Store(store, StoreKind.KEY_VALUE, key_serde=self._key_serde, value_serde=value_serde)
        self._wiring.add_store(kept)
        return kept

    def filter(
        self, predicate: Predicate[K, V], *, store: str | None = None, name: str | None = None
    ) -> KTable[K, V]:
        """The rows for which the predicate holds; a row for which it no longer holds is deleted.

        >>> builder = StreamsBuilder()
        >>> builder.table("names").filter(lambda name: len(name) > 3).to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("names", [("u1", "Anna", 0), ("u1", "Ann", 1)])
        >>> [record.value for record in driver.read_all("out")]
        ['Anna', None]
        """
        return self._filter(Function(predicate), False, store, name)

    def filter_not(
        self, predicate: Predicate[K, V], *, store: str | None = None, name: str | None = None
    ) -> KTable[K, V]:
        """The rows for which the predicate does not hold.

        >>> builder = StreamsBuilder()
        >>> builder.table("names").filter_not(lambda name: len(name) > 3).to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("names", "Ann", key="u1")
        >>> [record.value for record in driver.read_all("out")]
        ['Ann']
        """
        return self._filter(Function(predicate), True, store, name)

    def _filter(self, predicate: Function, negate: bool, store: str | None, name: str | None) -> KTable[K, V]:
        node = self._wiring.named(name, "KTABLE-FILTER-")
        kept = self._kept(store, self._value_serde)
        operator = TableFilter(predicate, negate, store, send_old=self._send_old(force=False))
        self._wiring.add(node, operator, self._node, stores=(store,) if store else ())
        return KTable(
            self._wiring,
            node,
            self._key_serde,
            self._value_serde,
            [operator],
            parents=[self],
            store=kept,
            make_view=lambda: FilterView(self._view(), predicate, negate),
            windows=self._windows,
        )

    def map_values(
        self,
        mapper: Mapper[K, V, R],
        *,
        value_serde: SerdeLike = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, R]:
        """A new value for each row.

        >>> builder = StreamsBuilder()
        >>> builder.table("names").map_values(len, value_serde=int).to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("names", "Ann", key="u1")
        >>> driver.read_all("out")
        [Record('u1', 3, timestamp=0)]
        """
        function = Function(mapper)
        node = self._wiring.named(name, "KTABLE-MAPVALUES-")
        kept = self._kept(store, as_serde(value_serde))
        operator = TableMapValues(function, store)
        self._wiring.add(node, operator, self._node, stores=(store,) if store else ())
        return KTable(
            self._wiring,
            node,
            self._key_serde,
            as_serde(value_serde),
            [operator],
            parents=[self],
            store=kept,
            make_view=lambda: MapView(self._view(), function),
            windows=self._windows,
        )

    @overload
    def to_stream(self, key: None = None, *, name: str | None = None) -> KStream[K, V]: ...

    @overload
    def to_stream(self, key: Mapper[K, V, K2], *, name: str | None = None) -> KStream[K2, V]: ...

    def to_stream(self, key: Mapper | None = None, *, name: str | None = None) -> KStream:
        """The table's changes as a stream, under a new key if a function for it is given.

        >>> builder = StreamsBuilder()
        >>> counts = builder.stream("in").group_by_key().windowed_by(tumbling(10)).count()
        >>> counts.to_stream(lambda windowed, count: windowed.key).to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "x", key="a")
        >>> driver.read_all("out")
        [Record('a', 1, timestamp=0)]
        """
        node = self._wiring.named(name, "KTABLE-TOSTREAM-")
        self._wiring.add(node, TableToStream(), self._node)
        stream = KStream(self._wiring, node, self._key_serde, self._value_serde)
        return stream if key is None else stream.select_key(key)

    def suppress(self, suppressed: Suppressed) -> KTable[K, V]:
        """Holds changes back, with `until_window_closes()` or `until_time_limit(...)`.

        >>> builder = StreamsBuilder()
        >>> counts = builder.stream("in").group_by_key().windowed_by(tumbling(10)).count()
        >>> counts.suppress(until_window_closes()).to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("in", [("a", "x", 1), ("a", "x", 2), ("a", "x", 12)])
        >>> [record.value for record in driver.read_all("out")]
        [2]
        """
        if suppressed.until_close and self._windows is None:
            raise TopologyError("only a windowed table can wait until a window closes")
        node = suppressed.name or self._wiring.processor_name("KTABLE-SUPPRESS-")
        store = f"{suppressed.name}-store" if suppressed.name else self._wiring.store_name("KTABLE-SUPPRESS-")
        self._wiring.add_store(Store(store, StoreKind.BUFFER, key_serde=self._key_serde))
        grace = 0
        if suppressed.until_close and self._windows is not None:
            grace = self._windows.grace_ms
            if isinstance(self._windows, SessionWindows):
                grace += self._windows.gap_ms
        operator = Suppress(store, suppressed, grace, windowed=suppressed.until_close)
        self._send_old(force=True)
        self._wiring.add(node, operator, self._node, stores=(store,))
        return KTable(
            self._wiring,
            node,
            self._key_serde,
            self._value_serde,
            [operator],
            parents=[self],
            make_view=self._view,
            windows=self._windows,
        )

    def group_by(
        self,
        mapper: Mapper[K, V, tuple[K2, V2]],
        *,
        name: str | None = None,
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
    ) -> KGroupedTable[K2, V2]:
        """Groups rows by a new (key, value) for each.

        >>> builder = StreamsBuilder()
        >>> builder.table("people").group_by(lambda name, city: (city, name)).count().to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("people", "Brno", key="ann")
        >>> driver.read_all("out")
        [Record('Brno', 1, timestamp=0)]
        """
        node = self._wiring.named(name, "KTABLE-SELECT-")
        self._wiring.add(node, TableSelect(Function(mapper)), self._node)
        self._send_old(force=True)
        return KGroupedTable(self._wiring, node, as_serde(key_serde), as_serde(value_serde), name)

    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: JoinFunction[K, V, V2, R],
        **options: Unpack[_TableOptions],
    ) -> KTable[K, R]: ...

    @overload
    def join(
        self,
        other: KTable[K2, V2],
        joiner: JoinFunction[K, V, V2, R],
        *,
        foreign_key: Mapper[K, V, K2 | None],
        **options: Unpack[_TableOptions],
    ) -> KTable[K, R]: ...

    def join(
        self,
        other: KTable,
        joiner: JoinFunction,
        *,
        foreign_key: Mapper | None = None,
        **options: Unpack[_TableOptions],
    ) -> KTable:
        """Joins by key; with `foreign_key=`, by the key of the other table that the function returns.

        >>> builder = StreamsBuilder()
        >>> orders, users = builder.table("orders", value_serde="json"), builder.table("users")
        >>> joined = orders.join(
        ...     users, lambda order, user: f"{user}: {order['item']}", foreign_key=lambda order: order["user"]
        ... )
        >>> joined.to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("users", "Ann", key="u1")
        >>> driver.pipe_input("orders", {"user": "u1", "item": "pen"}, key="o1")
        >>> driver.read_all("out")
        [Record('o1', 'Ann: pen', timestamp=0)]
        """
        return self._join(other, joiner, left=False, outer=False, foreign_key=foreign_key, **options)

    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: JoinFunction[K, V, V2 | None, R],
        **options: Unpack[_TableOptions],
    ) -> KTable[K, R]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, V2],
        joiner: JoinFunction[K, V, V2 | None, R],
        *,
        foreign_key: Mapper[K, V, K2 | None],
        **options: Unpack[_TableOptions],
    ) -> KTable[K, R]: ...

    def left_join(
        self,
        other: KTable,
        joiner: JoinFunction,
        *,
        foreign_key: Mapper | None = None,
        **options: Unpack[_TableOptions],
    ) -> KTable:
        """Like `join`, but a row without a partner is joined with None.

        >>> builder = StreamsBuilder()
        >>> names, mails = builder.table("names"), builder.table("mails")
        >>> names.left_join(mails, lambda name, mail: f"{name} {mail}").to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("names", "Ann", key="u1")
        >>> driver.read_all("out")
        [Record('u1', 'Ann None', timestamp=0)]
        """
        return self._join(other, joiner, left=True, outer=False, foreign_key=foreign_key, **options)

    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: JoinFunction[K, V | None, V2 | None, R],
        **options: Unpack[_TableOptions],
    ) -> KTable[K, R]:
        """Joins by key; a row of either table without a partner is joined with None.

        >>> builder = StreamsBuilder()
        >>> names, mails = builder.table("names"), builder.table("mails")
        >>> names.outer_join(mails, lambda name, mail: f"{name} {mail}").to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("mails", "ann@example.com", key="u1")
        >>> driver.read_all("out")
        [Record('u1', 'None ann@example.com', timestamp=0)]
        """
        return self._join(other, joiner, left=True, outer=True, **options)

    def _join(
        self,
        other: KTable,
        joiner: JoinFunction,
        *,
        left: bool,
        outer: bool,
        foreign_key: Mapper | None = None,
        value_serde: SerdeLike = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable:
        if foreign_key is None:
            return join_tables(
                self,
                other,
                Joiner(joiner),
                left=left,
                outer=outer,
                value_serde=as_serde(value_serde),
                store=store,
                name=name,
            )
        if outer:
            raise TopologyError("a foreign key join is inner or left")
        return join_on_foreign_key(
            self,
            other,
            Function(foreign_key),
            Joiner(joiner),
            left=left,
            value_serde=as_serde(value_serde),
            store=store,
            name=name,
        )
