"""The foreign key join of tables: subscriptions travel to the other table's task, answers travel back."""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Any, NamedTuple

from ottla.streams.interpreter.keys import encode_key
from ottla.streams.interpreter.node import NodeProcessor
from ottla.streams.interpreter.state_map import StateMap
from ottla.streams.interpreter.views import open_view
from ottla.streams.records import Record


class Instruction(Enum):
    DELETE_QUIETLY = 0
    DELETE_AND_TELL = 1
    ANSWER_ALWAYS = 2
    ANSWER_IF_FOUND = 3


class Subscription(NamedTuple):
    key: Any
    value_hash: bytes | None
    instruction: Instruction


class Response(NamedTuple):
    value_hash: bytes | None
    foreign_value: Any


def hash_of(value: Any) -> bytes | None:
    """Tells whether a row is still the one that asked."""
    return None if value is None else hashlib.blake2b(encode_key(value), digest_size=16).digest()


class SubscriptionStore:
    """Which rows refer to a foreign key: one entry per foreign key."""

    scalars: tuple[str, ...] = ()

    def __init__(self, entries: StateMap) -> None:
        self._entries = entries

    def put(self, foreign_key: Any, subscription: Subscription, timestamp: int) -> None:
        name = encode_key(foreign_key)
        rows = self._entries.get(name) or {}
        rows[encode_key(subscription.key)] = (subscription, timestamp)
        self._entries.put(name, rows)

    def delete(self, foreign_key: Any, key: Any) -> None:
        name = encode_key(foreign_key)
        rows = self._entries.get(name) or {}
        rows.pop(encode_key(key), None)
        if rows:
            self._entries.put(name, rows)
        else:
            self._entries.delete(name)

    def of(self, foreign_key: Any) -> list[Subscription]:
        rows = self._entries.get(encode_key(foreign_key)) or {}
        return [subscription for _, (subscription, _) in sorted(rows.items())]


class ForeignSendProcessor(NodeProcessor):
    def process(self, record: Record) -> None:
        change = record.value
        old = self._foreign_key(record, change.old)
        new = self._foreign_key(record, change.new)
        value_hash = hash_of(change.new)
        if self.operator.left:
            if change.old is None and change.new is None:
                return
            if old is not None and old != new:
                self._tell(record, old, value_hash, Instruction.DELETE_QUIETLY)
            self._tell(record, new, value_hash, Instruction.ANSWER_ALWAYS)
            return
        if new is None:
            if old is not None:
                self._tell(record, old, value_hash, Instruction.DELETE_AND_TELL)
        elif old is None or old == new:
            self._tell(record, new, value_hash, Instruction.ANSWER_IF_FOUND)
        else:
            self._tell(record, old, value_hash, Instruction.DELETE_QUIETLY)
            self._tell(record, new, value_hash, Instruction.ANSWER_ALWAYS)

    def _foreign_key(self, record: Record, value: Any) -> Any:
        return None if value is None else self.operator.foreign_key.of_record(record.with_value(value))

    def _tell(self, record: Record, foreign_key: Any, value_hash: bytes | None, what: Instruction) -> None:
        subscription = Subscription(record.key, value_hash, what)
        self.forward(Record(foreign_key, subscription, record.timestamp, record.headers))


class ForeignReceiveProcessor(NodeProcessor):
    def open(self) -> None:
        self.store = self.task.stores[self.operator.store]

    def process(self, record: Record) -> None:
        subscription: Subscription = record.value
        instruction = subscription.instruction
        if record.key is None:
            if instruction is Instruction.ANSWER_ALWAYS:
                self.forward(record)
            return
        if instruction in (Instruction.DELETE_AND_TELL, Instruction.DELETE_QUIETLY):
            self.store.delete(record.key, subscription.key)
        else:
            self.store.put(record.key, subscription, record.timestamp)
        self.forward(record)


class ForeignLookupProcessor(NodeProcessor):
    def open(self) -> None:
        self.lookup = open_view(self.operator.foreign_table, self.task.stores)

    def process(self, record: Record) -> None:
        subscription: Subscription = record.value
        held = None if record.key is None else self.lookup(record.key)
        timestamp = record.timestamp if held is None else max(record.timestamp, held.timestamp)
        foreign = None if held is None else held.value
        instruction = subscription.instruction
        if instruction is Instruction.DELETE_QUIETLY:
            return
        if instruction is Instruction.ANSWER_IF_FOUND and held is None:
            return
        if instruction is Instruction.DELETE_AND_TELL:
            foreign = None
        response = Response(subscription.value_hash, foreign)
        self.forward(Record(subscription.key, response, timestamp, record.headers))


class ForeignChangedProcessor(NodeProcessor):
    def open(self) -> None:
        self.store = self.task.stores[self.operator.store]

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        for subscription in self.store.of(record.key):
            response = Response(subscription.value_hash, record.value.new)
            self.forward(Record(subscription.key, response, record.timestamp, record.headers))


class ForeignResolveProcessor(NodeProcessor):
    """An answer to a row that has changed since is stale and dropped."""

    def open(self) -> None:
        self.lookup = open_view(self.operator.table, self.task.stores)

    def process(self, record: Record) -> None:
        response: Response = record.value
        held = self.lookup(record.key)
        value = None if held is None else held.value
        if response.value_hash != hash_of(value):
            return
        if response.foreign_value is None and (not self.operator.left or held is None):
            result = None
        else:
            result = self.operator.joiner.join(record.key, value, response.foreign_value)
        self.forward(record.with_value(result))
