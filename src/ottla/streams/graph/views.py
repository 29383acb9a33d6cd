"""How a table's current value is found: in a store, or computed from the tables it was made of."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.streams.functions import Function, Joiner


@dataclass(frozen=True, slots=True)
class StoreView:
    """The table is kept in a store."""

    store: str
    windowed: bool = False
    session: bool = False

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)


@dataclass(frozen=True, slots=True)
class FilterView:
    parent: View
    predicate: Function
    negate: bool

    @property
    def stores(self) -> tuple[str, ...]:
        return self.parent.stores


@dataclass(frozen=True, slots=True)
class MapView:
    parent: View
    mapper: Function

    @property
    def stores(self) -> tuple[str, ...]:
        return self.parent.stores


@dataclass(frozen=True, slots=True)
class JoinView:
    """Two tables side by side; whose absence is allowed tells inner, left and outer joins apart."""

    left: View
    right: View
    joiner: Joiner
    left_outer: bool
    right_outer: bool

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.left.stores, *self.right.stores)))


View = StoreView | FilterView | MapView | JoinView
