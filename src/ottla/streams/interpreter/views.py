"""Opens views: a lookup is a function from a key of a table to its current value and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.streams.graph.views import FilterView, JoinView, MapView, StoreView, View
from ottla.streams.interpreter.stores import SessionStore, TableStore, WindowStore
from ottla.streams.records import Record, ValueAndTimestamp, Windowed
from ottla.streams.type_variables import Unknown

Lookup = Callable[[Unknown], ValueAndTimestamp | None]


def open_view(view: View, stores: Mapping[str, object]) -> Lookup:
    """The lookup of a view over some stores."""
    if isinstance(view, StoreView):
        return _open_store(view, stores[view.store])
    if isinstance(view, FilterView):
        return _open_filter(view, open_view(view.parent, stores))
    if isinstance(view, MapView):
        return _open_map(view, open_view(view.parent, stores))
    return _open_join(view, open_view(view.left, stores), open_view(view.right, stores))


def _open_store(view: StoreView, store: object) -> Lookup:
    if isinstance(store, WindowStore):
        windows = store
        return lambda key: windows.fetch(key.key, key.start)
    if isinstance(store, SessionStore):
        sessions = store

        def lookup(key: Windowed) -> ValueAndTimestamp | None:
            value = sessions.fetch(key.key, key.window)
            return None if value is None else ValueAndTimestamp(value, key.end)

        return lookup
    assert isinstance(store, TableStore), f"{view.store} is not a table's store"
    return store.get


def _open_filter(view: FilterView, parent: Lookup) -> Lookup:
    def lookup(key: object) -> ValueAndTimestamp | None:
        held = parent(key)
        if held is None:
            return None
        holds = view.predicate.of_record(Record(key, held.value, held.timestamp))
        return held if holds is not None and bool(holds) != view.negate else None

    return lookup


def _open_map(view: MapView, parent: Lookup) -> Lookup:
    def lookup(key: object) -> ValueAndTimestamp | None:
        held = parent(key)
        if held is None:
            return None
        value = view.mapper.of_record(Record(key, held.value, held.timestamp))
        return None if value is None else ValueAndTimestamp(value, held.timestamp)

    return lookup


def _open_join(view: JoinView, left: Lookup, right: Lookup) -> Lookup:
    def lookup(key: object) -> ValueAndTimestamp | None:
        one, other = left(key), right(key)
        if one is None and (other is None or not view.right_outer):
            return None
        if other is None and not view.left_outer:
            return None
        value = view.joiner.join(key, one and one.value, other and other.value)
        timestamps = [held.timestamp for held in (one, other) if held is not None]
        return None if value is None else ValueAndTimestamp(value, max(timestamps))

    return lookup
