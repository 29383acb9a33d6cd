"""Several grouped streams that build one aggregate together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.streams.dsl.grouped import (
    Aggregator,
    AnyWindows,
    KGroupedStream,
    windowed_key_serde,
    windowed_operator,
    windowed_store,
)
from ottla.streams.dsl.wiring import Wiring
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
from ottla.streams.serdes import Serde, as_serde

if TYPE_CHECKING:
    from ottla.streams.dsl.ktable import KTable

_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
_MERGE = "COGROUPKSTREAM-MERGE-"

AnyAggregate = Aggregate | WindowAggregate | SlidingAggregate | SessionAggregate


class CogroupedKStream:
    def __init__(self, wiring: Wiring, windows: AnyWindows | None = None) -> None:
        self._wiring = wiring
        self._groups: list[tuple[KGroupedStream, Aggregator]] = []
        self._windows = windows

    def cogroup(self, grouped: KGroupedStream, aggregator: Aggregator) -> CogroupedKStream:
        self._groups.append((grouped, aggregator))
        return self

    def windowed_by(self, windows: AnyWindows) -> CogroupedKStream:
        windowed = CogroupedKStream(self._wiring, windows)
        windowed._groups = list(self._groups)
        return windowed

    def aggregate(
        self,
        initializer: Any,
        merger: Aggregator | None = None,
        *,
        value_serde: Any = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable:
        """All groups fold into one result per key; sessions also need `merger(key, one, other)`."""
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
        self, name: str, inner: Serde[Any] | None, value_serde: Serde[Any] | None
    ) -> tuple[Store, Serde[Any] | None]:
        if self._windows is None:
            return Store(name, StoreKind.KEY_VALUE, key_serde=inner, value_serde=value_serde), inner
        store = windowed_store(name, self._windows, inner, value_serde)
        return store, windowed_key_serde(self._windows, inner)
