"""A table: the latest value per key, and how it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.streams.dsl.grouped import KGroupedTable
from ottla.streams.dsl.kstream import KStream
from ottla.streams.dsl.table_joins import join_on_foreign_key, join_tables
from ottla.streams.dsl.wiring import Flow, Wiring
from ottla.streams.errors import TopologyError
from ottla.streams.functions import Function, Joiner
from ottla.streams.graph.operators import (
    SessionAggregate,
    SlidingAggregate,
    Store,
    StoreKind,
    Suppress,
    TableFilter,
    TableJoinMerge,
    TableMapValues,
    TableSelect,
    TableSource,
    TableToStream,
    WindowAggregate,
)
from ottla.streams.graph.views import FilterView, MapView, StoreView, View
from ottla.streams.serdes import Serde, as_serde
from ottla.streams.windows import SessionWindows, SlidingWindows, Suppressed, TimeWindows

_WINDOWED = (WindowAggregate, SlidingAggregate, SessionAggregate)


class GlobalKTable:
    """A table of which every task holds all rows; streams join it by any key."""

    def __init__(self, store: str) -> None:
        self.store = store


class KTable(Flow):
    """`send_old` asks the operators above to tell the old value with each change; `_view` finds current values."""

    def __init__(
        self,
        wiring: Wiring,
        node: str,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
        operators: Sequence[Any],
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
    def of_source(cls, wiring: Wiring, node: str, operator: TableSource, store: Store) -> KTable:
        table = cls(wiring, node, store.key_serde, store.value_serde, [operator], store=store)
        if operator.materialized:
            table._materialize()
        return table

    @classmethod
    def of_aggregate(
        cls, wiring: Wiring, node: str, operator: Any, store: Store, key_serde: Serde[Any] | None
    ) -> KTable:
        return cls.of_aggregates(wiring, node, [operator], store, key_serde)

    @classmethod
    def of_aggregates(
        cls, wiring: Wiring, node: str, operators: Sequence[Any], store: Store, key_serde: Serde[Any] | None
    ) -> KTable:
        windows = operators[0].windows if isinstance(operators[0], _WINDOWED) else None
        return cls(wiring, node, key_serde, store.value_serde, operators, store=store, windows=windows)

    def _materialize(self) -> None:
        """A source is kept in a store from the moment someone needs to look values up."""
        assert self._store is not None
        self._operators[0].materialized = True
        self._wiring.add_store(self._store)
        self._wiring.topology.connect(self._node, (self._store.name,))

    def _view(self) -> View:
        if self._store is not None:
            if isinstance(self._operators[0], TableSource):
                self._materialize()
            is_session = self._store.kind is StoreKind.SESSION
            return StoreView(self._store.name, self._store.kind is StoreKind.WINDOW, is_session)
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

    def _kept(self, store: str | None, value_serde: Serde[Any] | None) -> Store | None:
        if store is None:
            return None
        kept = Store(store, StoreKind.KEY_VALUE, key_serde=self._key_serde, value_serde=value_serde)
        self._wiring.add_store(kept)
        return kept

    def filter(self, predicate: Any, *, store: str | None = None, name: str | None = None) -> KTable:
        """Rows for which the predicate holds; a row that no longer does is deleted."""
        return self._filter(Function(predicate), False, store, name)

    def filter_not(self, predicate: Any, *, store: str | None = None, name: str | None = None) -> KTable:
        return self._filter(Function(predicate), True, store, name)

    def _filter(self, predicate: Function, negate: bool, store: str | None, name: str | None) -> KTable:
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
        self, mapper: Any, *, value_serde: Any = None, store: str | None = None, name: str | None = None
    ) -> KTable:
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

    def to_stream(self, key: Any = None, *, name: str | None = None) -> KStream:
        """The table's changes as a stream, under a new key if a function for it is given."""
        node = self._wiring.named(name, "KTABLE-TOSTREAM-")
        self._wiring.add(node, TableToStream(), self._node)
        stream = KStream(self._wiring, node, self._key_serde, self._value_serde)
        return stream if key is None else stream.select_key(key)

    def suppress(self, suppressed: Suppressed) -> KTable:
        """Holds changes back: until a window closes, or for a time."""
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
        self, mapper: Any, *, name: str | None = None, key_serde: Any = None, value_serde: Any = None
    ) -> KGroupedTable:
        """A new (key, value) for each row."""
        node = self._wiring.named(name, "KTABLE-SELECT-")
        self._wiring.add(node, TableSelect(Function(mapper)), self._node)
        self._send_old(force=True)
        return KGroupedTable(self._wiring, node, as_serde(key_serde), as_serde(value_serde), name)

    def join(self, other: KTable, joiner: Callable[..., Any], **options: Any) -> KTable:
        """By key; or with `foreign_key=` a function of the value that gives the other table's key."""
        return self._join(other, joiner, left=False, outer=False, **options)

    def left_join(self, other: KTable, joiner: Callable[..., Any], **options: Any) -> KTable:
        return self._join(other, joiner, left=True, outer=False, **options)

    def outer_join(self, other: KTable, joiner: Callable[..., Any], **options: Any) -> KTable:
        return self._join(other, joiner, left=True, outer=True, **options)

    def _join(
        self,
        other: KTable,
        joiner: Callable[..., Any],
        *,
        left: bool,
        outer: bool,
        foreign_key: Any = None,
        value_serde: Any = None,
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
