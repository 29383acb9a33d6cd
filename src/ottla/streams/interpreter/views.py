"""Opens a view of a table: a function from a key to its current value and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.streams.graph.views import FilterView, JoinView, MapView, StoreView, View
from ottla.streams.records import Record, ValueAndTimestamp

Lookup = Callable[[Any], ValueAndTimestamp | None]


def open_view(view: View, stores: Mapping[str, Any]) -> Lookup:
    if isinstance(view, StoreView):
        return _open_store(view, stores[view.store])
    if isinstance(view, FilterView):
        return _open_filter(view, open_view(view.parent, stores))
    if isinstance(view, MapView):
        return _open_map(view, open_view(view.parent, stores))
    return _open_join(view, open_view(view.left, stores), open_view(view.right, stores))


def _open_store(view: StoreView, store: Any) -> Lookup:
    if view.windowed:
        return lambda key: store.fetch(key.key, key.start)
    if view.session:

        def lookup(key: Any) -> ValueAndTimestamp | None:
            value = store.fetch(key.key, key.window)
            return None if value is None else ValueAndTimestamp(value, key.end)

        return lookup
    get: Lookup = store.get
    return get


def _open_filter(view: FilterView, parent: Lookup) -> Lookup:
    def lookup(key: Any) -> ValueAndTimestamp | None:
        held = parent(key)
        if held is None:
            return None
        holds = view.predicate.of_record(Record(key, held.value, held.timestamp))
        return held if holds is not None and bool(holds) != view.negate else None

    return lookup


def _open_map(view: MapView, parent: Lookup) -> Lookup:
    def lookup(key: Any) -> ValueAndTimestamp | None:
        held = parent(key)
        if held is None:
            return None
        value = view.mapper.of_record(Record(key, held.value, held.timestamp))
        return None if value is None else ValueAndTimestamp(value, held.timestamp)

    return lookup


def _open_join(view: JoinView, left: Lookup, right: Lookup) -> Lookup:
    def lookup(key: Any) -> ValueAndTimestamp | None:
        one, other = left(key), right(key)
        if one is None and (other is None or not view.right_outer):
            return None
        if other is None and not view.left_outer:
            return None
        value = view.joiner.join(key, one and one.value, other and other.value)
        timestamps = [held.timestamp for held in (one, other) if held is not None]
        return None if value is None else ValueAndTimestamp(value, max(timestamps))

    return lookup
