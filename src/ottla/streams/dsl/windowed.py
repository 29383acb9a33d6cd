"""Grouped streams divided by windows, and what all windowed aggregates share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic

from ottla.streams.errors import TopologyError
from ottla.streams.functions import Aggregator, Reducer
from ottla.streams.functions import initializer as as_initializer
from ottla.streams.graph.operators import (
    SessionAggregate,
    SlidingAggregate,
    Store,
    StoreKind,
    WindowAggregate,
)
from ottla.streams.records import PartialCount, Windowed
from ottla.streams.serdes import (
    AnySerde,
    SerdeLike,
    as_serde,
    long_serde,
    natural_serde,
    session_windowed_serde,
    time_windowed_serde,
)
from ottla.streams.type_variables import K, R, V
from ottla.streams.windows import SessionWindows, SlidingWindows, TimeWindows

if TYPE_CHECKING:
    from ottla.streams.dsl.grouped import KGroupedStream
    from ottla.streams.dsl.ktable import KTable

AnyWindows = TimeWindows | SlidingWindows | SessionWindows

_KEPT_UNTIL_EMITTED_MS: Final = 60_000
"""Stream time may jump; sessions that close by the jump are emitted only then, and must still be in the store."""


def count_one(_key: object, value: object, count: int) -> int:
    """The aggregator of counts: one more, or as many as another task has counted before."""
    return count + (value.records if type(value) is PartialCount else 1)


def add_counts(_key: object, one: int, other: int) -> int:
    """The merger of counts: two sessions that grow together."""
    return one + other


class WindowedKStream(Generic[K, V]):
    """A grouped stream divided by time, sliding or session windows; `KGroupedStream.windowed_by` makes one.

    >>> builder = StreamsBuilder()
    >>> windowed = builder.stream("clicks").group_by_key().windowed_by(session(5))
    >>> windowed.count().to_stream().to("out")
    >>> driver = TopologyTestDriver(builder)
    >>> driver.pipe_records("clicks", [("a", "/", 0), ("a", "/", 3), ("a", "/", 30)])
    >>> [(str(record.key), record.value) for record in driver.read_all("out")]
    [('[a@0/0]', 1), ('[a@0/0]', None), ('[a@0/3]', 2), ('[a@30/30]', 1)]
    """

    def __init__(self, grouped: KGroupedStream[K, V], windows: AnyWindows) -> None:
        self._grouped = grouped
        self._wiring = grouped._wiring
        self._windows = windows
        self._emit_on_close = False

    def emit_on_window_close(self) -> WindowedKStream[K, V]:
        """One result per window, when it closes; without this, one per change.

        >>> builder = StreamsBuilder()
        >>> windowed = builder.stream("clicks").group_by_key().windowed_by(tumbling(10))
        >>> windowed.emit_on_window_close().count().to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("clicks", [("a", "/", 0), ("a", "/", 3), ("a", "/", 12)])
        >>> [(str(record.key), record.value) for record in driver.read_all("out")]
        [('[a@0/10]', 2)]
        """
        emitting = WindowedKStream(self._grouped, self._windows)
        emitting._emit_on_close = True
        return emitting

    def count(self, *, store: str | None = None, name: str | None = None) -> KTable[Windowed[K], int]:
        """The number of records of each key and window.

        >>> builder = StreamsBuilder()
        >>> windowed = builder.stream("clicks").group_by_key().windowed_by(tumbling(10))
        >>> windowed.count().to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("clicks", [("a", "/", 0), ("a", "/", 3)])
        >>> [(str(record.key), record.value) for record in driver.read_all("out")]
        [('[a@0/10]', 1), ('[a@0/10]', 2)]
        """
        return self._build(
            "KSTREAM-AGGREGATE-", store, name, lambda: 0, count_one, add_counts, long_serde, is_count=True
        )

    def reduce(
        self, reducer: Reducer[V], *, store: str | None = None, name: str | None = None
    ) -> KTable[Windowed[K], V]:
        """Folds the values of each key and window: `reducer(result, value)`. The first value is the first result.

        >>> builder = StreamsBuilder()
        >>> readings = builder.stream("readings", value_serde=float)
        >>> readings.group_by_key().windowed_by(tumbling(10)).reduce(max).to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("readings", [("a", 20.5, 0), ("a", 19.0, 3)])
        >>> [record.value for record in driver.read_all("out")]
        [20.5, 20.5]
        """

        def fold(_key: object, value: V, result: V | None) -> V:
            return value if result is None else reducer(result, value)

        def merge(_key: object, one: V | None, other: V) -> V:
            return other if one is None else reducer(one, other)

        serde = self._grouped._value_serde
        return self._build("KSTREAM-REDUCE-", store, name, lambda: None, fold, merge, serde)

    def aggregate(
        self,
        initializer: Callable[[], R] | R,
        aggregator: Aggregator[K, V, R],
        merger: Callable[[K, R, R], R] | None = None,
        *,
        value_serde: SerdeLike = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], R]:
        """Builds a result of another type; session windows also need `merger(key, one, other)`.

        >>> builder = StreamsBuilder()
        >>> windowed = builder.stream("clicks").group_by_key().windowed_by(tumbling(10))
        >>> pages = windowed.aggregate(list, lambda key, page, pages: [*pages, page], value_serde="json")
        >>> pages.to_stream().to("out")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("clicks", [("a", "/", 0), ("a", "/news", 3)])
        >>> [record.value for record in driver.read_all("out")]
        [['/'], ['/', '/news']]
        """
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
        initializer: Callable[[], object],
        aggregator: Aggregator,
        merger: Aggregator | None,
        value_serde: AnySerde | None,
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
            # Kafka's store in the order of time keeps a window one millisecond longer than its other stores.
            kept.retention_ms += 1
        return self._grouped._table(node, operator, kept, windowed_key_serde(self._windows, inner))


def windowed_operator(
    store: str,
    windows: AnyWindows,
    initializer: Callable[[], object],
    aggregator: Aggregator,
    merger: Aggregator | None,
) -> WindowAggregate | SlidingAggregate | SessionAggregate:
    """The operator for a kind of windows."""
    if isinstance(windows, TimeWindows):
        return WindowAggregate(store, windows, initializer, aggregator)
    if isinstance(windows, SlidingWindows):
        return SlidingAggregate(store, windows, initializer, aggregator)
    if merger is None:
        raise TopologyError("an aggregate over sessions needs a merger: a function of key and two results")
    return SessionAggregate(store, windows, initializer, aggregator, merger)


def windowed_store(
    name: str, windows: AnyWindows, key_serde: AnySerde | None, value_serde: AnySerde | None
) -> Store:
    """The store for a kind of windows."""
    kind = StoreKind.SESSION if isinstance(windows, SessionWindows) else StoreKind.WINDOW
    store = Store(name, kind, windows.retention_ms, key_serde=key_serde, value_serde=value_serde)
    if not isinstance(windows, SessionWindows):
        store.window_ms = windows.size_ms if isinstance(windows, TimeWindows) else windows.difference_ms
    return store


def windowed_key_serde(windows: AnyWindows, inner: AnySerde | None) -> AnySerde:
    """The serde of keys in a kind of windows, as Kafka writes them."""
    if isinstance(windows, SessionWindows):
        return session_windowed_serde(inner or natural_serde)
    size = windows.size_ms if isinstance(windows, TimeWindows) else windows.difference_ms
    return time_windowed_serde(inner or natural_serde, size)
