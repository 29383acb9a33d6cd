"""Makes the stores of a task from their description in the topology."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.streams.graph.operators import Store, StoreKind
from ottla.streams.interpreter.buffers import SuppressBuffer, TimeOrdered
from ottla.streams.interpreter.foreign_keys import SubscriptionStore
from ottla.streams.interpreter.state_map import StateMap
from ottla.streams.interpreter.stores import KeyValueStore, SessionStore, TableStore, WindowStore

StateStore = (
    KeyValueStore | TableStore | WindowStore | SessionStore | SuppressBuffer | TimeOrdered | SubscriptionStore
)


def make_store(store: Store, entries: StateMap) -> StateStore:
    """A store over a map."""
    match store.kind:
        case StoreKind.KEY_VALUE if store.timestamped:
            return TableStore(entries, store.key_serde)
        case StoreKind.KEY_VALUE:
            return KeyValueStore(entries, store.key_serde)
        case StoreKind.WINDOW:
            return WindowStore(
                entries, store.key_serde, store.retention_ms, keep_duplicates=store.keep_duplicates
            )
        case StoreKind.SESSION:
            return SessionStore(entries, store.key_serde, store.retention_ms, store.kept_longer_ms)
        case StoreKind.BUFFER:
            return SuppressBuffer(entries)
        case StoreKind.OUTER_JOIN:
            return TimeOrdered(entries)
        case StoreKind.SUBSCRIPTIONS:
            return SubscriptionStore(entries)


def make_stores(stores: Iterable[Store], make_map: Callable[[str], StateMap]) -> dict[str, StateStore]:
    """The stores by name, each over a map of its own."""
    return {store.name: make_store(store, make_map(store.name)) for store in stores}
