"""Several grouped streams that build one aggregate together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

from ottla.streams.dsl.windowed import AnyWindows, windowed_key_serde, windowed_operator, windowed_store
from ottla.streams.dsl.wiring import Wiring
from ottla.streams.functions import Aggregator
from ottla.streams.functions import initializer as as_initializer
from ottla.streams.graph.operators import (
    Aggregate,
    PassThrough,
    SessionAggregate,
    SlidingAggregate,
    Store,
    StoreKind,
    WindowAggregate,
)
from ottla.streams.records import Windowed
from ottla.streams.serdes import AnySerde, SerdeLike, as_serde
from ottla.streams.type_variables import V2, K, R, Unknown

if TYPE_CHECKING:
    from ottla.streams.dsl.grouped import KGroupedStream
    from ottla.streams.dsl.ktable import KTable

_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
_MERGE = "COGROUPKSTREAM-MERGE-"

AnyAggregate = Aggregate | WindowAggregate | SlidingAggregate | SessionAggregate


class CogroupedKStream(Generic[K, R]):
    """Grouped streams with an aggregator each; `KGroupedStream.cogroup` makes the first.

    >>> builder = StreamsBuilder()
    >>> ins, outs = (builder.stream(topic).group_by_key() for topic in ("ins", "outs"))
    >>> both = ins.cogroup(lambda key, value, total: total + 1)
    >>> both.cogroup(outs, lambda key, value, total: total - 1).aggregate(0, store="open")
    <...KTable object at ...>
    """

    def __init__(self, wiring: Wiring, windows: AnyWindows | None = None) -> None:
        self._wiring = wiring
        self._groups: list[tuple[KGroupedStream[K, Unknown], Aggregator]] = []
        self._windows = windows

    def cogroup(
        self, grouped: KGroupedStream[K, V2], aggregator: Aggregator[K, V2, R]
    ) -> CogroupedKStream[K, R]:
        """Adds a grouped stream and its aggregator.

        >>> builder = StreamsBuilder()
        >>> ins, outs = (builder.stream(topic).group_by_key() for topic in ("ins", "outs"))
        >>> both = ins.cogroup(lambda key, value, total: total + 1)
        >>> both = both.cogroup(outs, lambda key, value, total: total - 1)
        """
        self._groups.append((grouped, aggregator))
        return self

    def windowed_by(self, windows: AnyWindows) -> WindowedCogroupedKStream[K, R]:
        """Divides all groups by the same windows.

        >>> grouped = StreamsBuilder().stream("in").group_by_key()
        >>> windowed = grouped.cogroup(lambda key, value, total: total + 1).windowed_by(tumbling(10))
        """
        windowed = WindowedCogroupedKStream[K, R](self._wiring, windows)
        windowed._groups = list(self._groups)
        return windowed

    def aggregate(
        self,
        initializer: Callable[[], R] | R,
        merger: Callable[[K, R, R], R] | None = None,
        *,
        value_serde: SerdeLike = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, R]:
        """Folds all groups into one result per key.

        >>> builder = StreamsBuilder()
        >>> grouped = builder.stream("in").group_by_key()
        >>> table = grouped.cogroup(lambda key, value, total: total + 1).aggregate(0, store="total")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "x", key="a")
        >>> driver.store("total").get("a").value
        1
        """
        return self._aggregate(initializer, merger, value_serde, store, name)

    def _aggregate(
        self,
        initializer: Callable[[], R] | R,
        merger: Callable[[K, R, R], R] | None,
        value_serde: SerdeLike,
        store: str | None,
        name: str | None,
    ) -> KTable:
        from ottla.streams.dsl.ktable import KTable

        wiring = self._wiring
        store_name = store or wiring.store_name(_AGGREGATE)
        inner = next((grouped._key_serde for grouped, _ in self._groups if grouped._key_serde), None)
        parents = [grouped._parent(store_name) for grouped, _ in self._groups]
        kept, key_serde = self._store(store_name, inner, as_serde(value_serde))
        wiring.add_store(kept)
        begin = as_initializer(initializer)
        operators: list[AnyAggregate] = []
        nodes: list[str] = []
        for index, ((_, aggregator), parent) in enumerate(zip(self._groups, parents, strict=True)):
            node = wiring.suffixed(name, f"-cogroup-agg-{index}", _AGGREGATE)
            operator: AnyAggregate = (
                Aggregate(store_name, begin, aggregator)
                if self._windows is None
                else windowed_operator(store_name, self._windows, begin, aggregator, merger)
            )
            wiring.add(node, operator, parent, stores=(store_name,))
            operators.append(operator)
            nodes.append(node)
        merge = wiring.suffixed(name, "-cogroup-merge", _MERGE)
        wiring.add(merge, PassThrough(), *nodes)
        return KTable.of_aggregates(wiring, merge, operators, kept, key_serde)

    def _store(
        self, name: str, inner: AnySerde | None, value_serde: AnySerde | None
    ) -> tuple[Store, AnySerde | None]:
        if self._windows is None:
            return Store(name, StoreKind.KEY_VALUE, key_serde=inner, value_serde=value_serde), inner
        store = windowed_store(name, self._windows, inner, value_serde)
        return store, windowed_key_serde(self._windows, inner)


class WindowedCogroupedKStream(CogroupedKStream[K, R]):
    """Grouped streams divided by windows, with an aggregator each.

    >>> builder = StreamsBuilder()
    >>> grouped = builder.stream("in").group_by_key()
    >>> cogrouped = grouped.cogroup(lambda key, value, total: total + 1)
    >>> cogrouped.windowed_by(tumbling(10)).aggregate(0, value_serde=int).to_stream().to("out")
    >>> driver = TopologyTestDriver(builder)
    >>> driver.pipe_records("in", [("a", "x", 1), ("a", "x", 12)])
    >>> [str(record.key) for record in driver.read_all("out")]
    ['[a@0/10]', '[a@10/20]']
    """

    def aggregate(  # type: ignore[override]
        self,
        initializer: Callable[[], R] | R,
        merger: Callable[[K, R, R], R] | None = None,
        *,
        value_serde: SerdeLike = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], R]:
        """Folds all groups into one result per key and window; sessions also need `merger(key, one, other)`.

        >>> grouped = StreamsBuilder().stream("in").group_by_key()
        >>> cogrouped = grouped.cogroup(lambda key, value, total: total + 1)
        >>> table = cogrouped.windowed_by(session(5)).aggregate(0, lambda key, one, other: one + other)
        """
        return self._aggregate(initializer, merger, value_serde, store, name)
