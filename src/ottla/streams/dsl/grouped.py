"""Streams and tables grouped by key: counts, reductions and aggregates, with and without windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.streams.dsl.wiring import Repartition, Wiring, repartition
from ottla.streams.functions import initializer as as_initializer
from ottla.streams.graph.operators import (
    Aggregate,
    Operator,
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
from ottla.streams.records import PartialCount
from ottla.streams.serdes import (
    Serde,
    as_serde,
    long_serde,
    natural_serde,
    session_windowed_serde,
    time_windowed_serde,
)
from ottla.streams.windows import SessionWindows, SlidingWindows, TimeWindows

if TYPE_CHECKING:
    from ottla.streams.dsl.cogrouped import CogroupedKStream
    from ottla.streams.dsl.ktable import KTable

AnyWindows = TimeWindows | SlidingWindows | SessionWindows
Aggregator = Callable[[Any, Any, Any], Any]


_KEPT_UNTIL_EMITTED_MS = 60_000
"""Stream time may jump; sessions that close by it are told only then, and must still be there."""


def count_one(_key: Any, value: Any, count: int) -> int:
    return count + (value.records if type(value) is PartialCount else 1)


def add_counts(_key: Any, one: int, other: int) -> int:
    return one + other


class KGroupedStream:
    def __init__(
        self,
        wiring: Wiring,
        node: str,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
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

    def windowed_by(self, windows: AnyWindows) -> WindowedKStream:
        return WindowedKStream(self, windows)

    def cogroup(self, aggregator: Aggregator) -> CogroupedKStream:
        """The first of several groups that build one aggregate together."""
        from ottla.streams.dsl.cogrouped import CogroupedKStream

        return CogroupedKStream(self._wiring).cogroup(self, aggregator)

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable:
        store_name = store or self._wiring.store_name("KSTREAM-AGGREGATE-")
        node = self._wiring.named(name, "KSTREAM-AGGREGATE-")
        operator = Aggregate(store_name, lambda: 0, count_one, is_count=True)
        return self._table(node, operator, self._store(store_name, long_serde))

    def reduce(
        self, reducer: Callable[[Any, Any], Any], *, store: str | None = None, name: str | None = None
    ) -> KTable:
        """Folds each value into the last result: `reducer(result, value)`; the first value is a result."""
        store_name = store or self._wiring.store_name("KSTREAM-REDUCE-")
        node = self._wiring.named(name, "KSTREAM-REDUCE-")
        return self._table(node, Reduce(store_name, reducer), self._store(store_name, self._value_serde))

    def aggregate(
        self,
        initializer: Any,
        aggregator: Aggregator,
        *,
        value_serde: Any = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable:
        """Builds a result of another type: `aggregator(key, value, result)`."""
        store_name = store or self._wiring.store_name("KSTREAM-AGGREGATE-")
        node = self._wiring.named(name, "KSTREAM-AGGREGATE-")
        operator = Aggregate(store_name, as_initializer(initializer), aggregator)
        return self._table(node, operator, self._store(store_name, as_serde(value_serde)))

    def _store(self, name: str, value_serde: Serde[Any] | None) -> Store:
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
        self, node: str, operator: Operator, store: Store, key_serde: Serde[Any] | None = None
    ) -> KTable:
        from ottla.streams.dsl.ktable import KTable

        parent = self._parent(store.name)
        self._wiring.add_store(store)
        self._wiring.add(node, operator, parent, stores=(store.name,))
        return KTable.of_aggregate(self._wiring, node, operator, store, key_serde or store.key_serde)


class WindowedKStream:
    """A grouped stream cut by time, sliding or session windows."""

    def __init__(self, grouped: KGroupedStream, windows: AnyWindows) -> None:
        self._grouped = grouped
        self._wiring = grouped._wiring
        self._windows = windows
        self._emit_on_close = False

    def emit_on_window_close(self) -> WindowedKStream:
        """One result per window, when it closes; without this, one per change."""
        emitting = WindowedKStream(self._grouped, self._windows)
        emitting._emit_on_close = True
        return emitting

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable:
        return self._build(
            "KSTREAM-AGGREGATE-", store, name, lambda: 0, count_one, add_counts, long_serde, is_count=True
        )

    def reduce(
        self, reducer: Callable[[Any, Any], Any], *, store: str | None = None, name: str | None = None
    ) -> KTable:
        def fold(_key: Any, value: Any, result: Any) -> Any:
            return value if result is None else reducer(result, value)

        def merge(_key: Any, one: Any, other: Any) -> Any:
            return other if one is None else reducer(one, other)

        serde = self._grouped._value_serde
        return self._build("KSTREAM-REDUCE-", store, name, lambda: None, fold, merge, serde)

    def aggregate(
        self,
        initializer: Any,
        aggregator: Aggregator,
        merger: Aggregator | None = None,
        *,
        value_serde: Any = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable:
        """Session windows also need `merger(key, one, other)` for sessions that grow together."""
        return self._build(
            "KSTREAM-AGGREGATE-",
            store,
            name,
            as_initializer(initializer),
            aggregator,
            merger,
            as_serde(value_serde),
        )

    def _build(
        self,
        prefix: str,
        store: str | None,
        name: str | None,
        initializer: Callable[[], Any],
        aggregator: Aggregator,
        merger: Aggregator | None,
        value_serde: Serde[Any] | None,
        *,
        is_count: bool = False,
    ) -> KTable:
        store_name = store or self._wiring.store_name(prefix)
        node = self._wiring.named(name, prefix)
        operator = windowed_operator(store_name, self._windows, initializer, aggregator, merger)
        operator.emit_on_close = self._emit_on_close
        if isinstance(operator, WindowAggregate):
            operator.is_count = is_count
        inner = self._grouped._key_serde
        kept = windowed_store(store_name, self._windows, inner, value_serde)
        if self._emit_on_close and kept.kind is StoreKind.SESSION:
            kept.kept_longer_ms = _KEPT_UNTIL_EMITTED_MS
        elif self._emit_on_close:
            # Kafka's store in the order of time lets go of a window one millisecond later than its others.
            kept.retention_ms += 1
        return self._grouped._table(node, operator, kept, windowed_key_serde(self._windows, inner))


def windowed_operator(
    store: str,
    windows: AnyWindows,
    initializer: Callable[[], Any],
    aggregator: Aggregator,
    merger: Aggregator | None,
) -> WindowAggregate | SlidingAggregate | SessionAggregate:
    from ottla.streams.errors import TopologyError

    if isinstance(windows, TimeWindows):
        return WindowAggregate(store, windows, initializer, aggregator)
    if isinstance(windows, SlidingWindows):
        return SlidingAggregate(store, windows, initializer, aggregator)
    if merger is None:
        raise TopologyError("an aggregate over sessions needs a merger: a function of key and two results")
    return SessionAggregate(store, windows, initializer, aggregator, merger)


def windowed_store(
    name: str, windows: AnyWindows, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None
) -> Store:
    kind = StoreKind.SESSION if isinstance(windows, SessionWindows) else StoreKind.WINDOW
    store = Store(name, kind, windows.retention_ms, key_serde=key_serde, value_serde=value_serde)
    if not isinstance(windows, SessionWindows):
        store.window_ms = windows.size_ms if isinstance(windows, TimeWindows) else windows.difference_ms
    return store


def windowed_key_serde(windows: AnyWindows, inner: Serde[Any] | None) -> Serde[Any]:
    if isinstance(windows, SessionWindows):
        return session_windowed_serde(inner or natural_serde)
    size = windows.size_ms if isinstance(windows, TimeWindows) else windows.difference_ms
    return time_windowed_serde(inner or natural_serde, size)


class KGroupedTable:
    """A table grouped by a new key: when a row changes, its old part is taken away and its new part added."""

    def __init__(
        self,
        wiring: Wiring,
        node: str,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
        repartition_name: str | None,
    ) -> None:
        self._wiring = wiring
        self._node = node
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._repartition_name = repartition_name
        self._source: str | None = None

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable:
        store_name = store or self._wiring.store_name("KTABLE-AGGREGATE-")
        operator = TableAggregate(store_name, lambda: 0, count_one, lambda _, __, count: count - 1)
        return self._table(operator, name, "KTABLE-AGGREGATE-", store_name, long_serde)

    def reduce(
        self,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        *,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable:
        store_name = store or self._wiring.store_name("KTABLE-AGGREGATE-")
        operator = TableReduce(store_name, adder, subtractor)
        return self._table(operator, name, "KTABLE-REDUCE-", store_name, self._value_serde)

    def aggregate(
        self,
        initializer: Any,
        adder: Aggregator,
        subtractor: Aggregator,
        *,
        value_serde: Any = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable:
        store_name = store or self._wiring.store_name("KTABLE-AGGREGATE-")
        operator = TableAggregate(store_name, as_initializer(initializer), adder, subtractor)
        return self._table(operator, name, "KTABLE-AGGREGATE-", store_name, as_serde(value_serde))

    def _table(
        self,
        operator: TableAggregate | TableReduce,
        name: str | None,
        prefix: str,
        store_name: str,
        value_serde: Serde[Any] | None,
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
