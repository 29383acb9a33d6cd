"""A cache of a table's changes: only the last one per key and batch goes on, as with Kafka Streams' record caches.

It is used where the changes in between are not visible downstream.
"""

from __future__ import annotations

from ottla.streams.graph.operators import MapValues, PassThrough, Sink, TableMapValues, TableToStream
from ottla.streams.graph.topology import Node
from ottla.streams.interpreter.keys import encode_key
from ottla.streams.interpreter.node import Handler
from ottla.streams.records import Change, Record

_KEEPS_KEYS = (TableToStream, TableMapValues, MapValues, PassThrough)


def only_last_change_matters(node: Node) -> bool:
    """Whether all that follows makes one record of the same key for each change, up to a topic of a fixed name."""
    return all(_last_change_matters(child) for child in node.children)


def _last_change_matters(node: Node) -> bool:
    operator = node.operator
    if len(node.parents) != 1:
        # The order among several parents is visible.
        return False
    if isinstance(operator, Sink):
        return not operator.internal and isinstance(operator.topic, str)
    return isinstance(operator, _KEEPS_KEYS) and not node.stores and only_last_change_matters(node)


class ChangeCache:
    """The last change of each key, with the old value of the first."""

    __slots__ = ("_forward", "_last")

    def __init__(self, forward: Handler) -> None:
        self._forward = forward
        self._last: dict[bytes, Record] = {}

    def add(self, record: Record) -> None:
        """Replaces an earlier change of the key."""
        name = encode_key(record.key)
        first = self._last.get(name)
        if first is not None and first.value.old is not record.value.old:
            record = record.with_value(Change(record.value.new, first.value.old))
        self._last[name] = record

    def flush(self) -> None:
        """Passes all changes on."""
        cached, self._last = self._last, {}
        for record in cached.values():
            self._forward(record)
