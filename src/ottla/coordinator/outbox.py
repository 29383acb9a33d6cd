"""Collects items for other brokers during one turn of the loop, so that one request carries all of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ottla.clock import Clock

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Outbox(Generic[K, T]):
    """Items by key (a broker, or more than that); `send(key, items)` is called on the loop's next turn."""

    __slots__ = ("_clock", "_items", "_send")

    def __init__(self, clock: Clock, send: Callable[[K, list[T]], None]) -> None:
        self._clock = clock
        self._send = send
        self._items: dict[K, list[T]] = {}

    def add(self, key: K, item: T) -> None:
        if not self._items:
            self._clock.call_later(0.0, self._flush)
        self._items.setdefault(key, []).append(item)

    def _flush(self) -> None:
        items, self._items = self._items, {}
        for key, of_key in items.items():
            self._send(key, of_key)
