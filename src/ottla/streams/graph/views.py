"""Views: how the current value of a table is found, in a store or computed from the tables it was made of."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.streams.functions import Function, Joiner


@dataclass(frozen=True, slots=True)
class StoreView:
    """The table is kept in a store."""

    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores that a lookup reads."""
        return (self.store,)


@dataclass(frozen=True, slots=True)
class FilterView:
    """The rows of another view for which a predicate holds."""

    parent: View
    predicate: Function
    negate: bool

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores that a lookup reads."""
        return self.parent.stores


@dataclass(frozen=True, slots=True)
class MapView:
    """The rows of another view with new values."""

    parent: View
    mapper: Function

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores that a lookup reads."""
        return self.parent.stores


@dataclass(frozen=True, slots=True)
class JoinView:
    """Two views joined by key; `left_outer` and `right_outer` allow the other side to be missing."""

    left: View
    right: View
    joiner: Joiner
    left_outer: bool
    right_outer: bool

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores that a lookup reads."""
        return tuple(dict.fromkeys((*self.left.stores, *self.right.stores)))


View = StoreView | FilterView | MapView | JoinView
