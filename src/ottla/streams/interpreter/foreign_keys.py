"""The foreign key join of tables: subscriptions go to the other table's task, responses come back."""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Generic, NamedTuple

from ottla.streams.graph.operators import (
    ForeignChanged,
    ForeignLookup,
    ForeignReceive,
    ForeignResolve,
    ForeignSend,
)
from ottla.streams.interpreter.keys import encode_key
from ottla.streams.interpreter.node import NodeProcessor
from ottla.streams.interpreter.state_map import StateMap
from ottla.streams.interpreter.views import open_view
from ottla.streams.records import Record
from ottla.streams.type_variables import K, V


class Instruction(Enum):
    """The instruction of a subscription, under Kafka Streams' names. Checkpoints hold the values."""

    DELETE_KEY_NO_PROPAGATE = 0
    DELETE_KEY_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3


class Subscription(NamedTuple, Generic[K]):
    """A row that refers to a foreign key; the hash names the row's value at that time."""

    key: K
    value_hash: bytes | None
    instruction: Instruction


class Response(NamedTuple, Generic[V]):
    """The foreign row for a subscription, with the hash that came with it."""

    value_hash: bytes | None
    foreign_value: V | None


def hash_of(value: object) -> bytes | None:
    """The hash by which a resolver sees whether the row has changed since it subscribed."""
    return None if value is None else hashlib.blake2b(encode_key(value), digest_size=16).digest()


class SubscriptionStore(Generic[K]):
    """The rows that refer to each foreign key: one entry per foreign key."""

    scalars: tuple[str, ...] = ()

    def __init__(self, entries: StateMap[dict[bytes, tuple[Subscription[K], int]]]) -> None:
        self._entries = entries

    def put(self, foreign_key: object, subscription: Subscription[K], timestamp: int) -> None:
        """Adds or replaces the subscription of a row."""
        name = encode_key(foreign_key)
        rows = self._entries.get(name) or {}
        rows[encode_key(subscription.key)] = (subscription, timestamp)
        self._entries.put(name, rows)

    def delete(self, foreign_key: object, key: K) -> None:
        """Removes the subscription of a row."""
        name = encode_key(foreign_key)
        rows = self._entries.get(name) or {}
        rows.pop(encode_key(key), None)
        if rows:
            self._entries.put(name, rows)
        else:
            self._entries.delete(name)

    def of(self, foreign_key: object) -> list[Subscription[K]]:
        """The subscriptions to a foreign key, in the order of the rows' keys."""
        rows = self._entries.get(encode_key(foreign_key)) or {}
        return [subscription for _, (subscription, _) in sorted(rows.items())]


class ForeignSendProcessor(NodeProcessor[ForeignSend]):
    """Subscribes to the foreign key of each changed row, and gives up the one before."""

    def process(self, record: Record) -> None:
        change = record.value
        old = self._foreign_key(record, change.old)
        new = self._foreign_key(record, change.new)
        value_hash = hash_of(change.new)
        if self.operator.left:
            if change.old is None and change.new is None:
                return
            if old is not None and old != new:
                self._subscribe(record, old, value_hash, Instruction.DELETE_KEY_NO_PROPAGATE)
            self._subscribe(record, new, value_hash, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
            return
        if new is None:
            if old is not None:
                self._subscribe(record, old, value_hash, Instruction.DELETE_KEY_AND_PROPAGATE)
        elif old is None or old == new:
            self._subscribe(record, new, value_hash, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)
        else:
            self._subscribe(record, old, value_hash, Instruction.DELETE_KEY_NO_PROPAGATE)
            self._subscribe(record, new, value_hash, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)

    def _foreign_key(self, record: Record, value: object) -> object:
        return None if value is None else self.operator.foreign_key.of_record(record.with_value(value))

    def _subscribe(
        self, record: Record, foreign_key: object, value_hash: bytes | None, what: Instruction
    ) -> None:
        subscription = Subscription(record.key, value_hash, what)
        self.forward(Record(foreign_key, subscription, record.timestamp, record.headers))


class ForeignReceiveProcessor(NodeProcessor[ForeignReceive]):
    """Keeps or removes a subscription, and passes it on."""

    def open(self) -> None:
        self.store = self.store_of(self.operator.store, SubscriptionStore)

    def process(self, record: Record) -> None:
        subscription: Subscription = record.value
        instruction = subscription.instruction
        if record.key is None:
            if instruction is Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE:
                self.forward(record)
            return
        if instruction in (Instruction.DELETE_KEY_AND_PROPAGATE, Instruction.DELETE_KEY_NO_PROPAGATE):
            self.store.delete(record.key, subscription.key)
        else:
            self.store.put(record.key, subscription, record.timestamp)
        self.forward(record)


class ForeignLookupProcessor(NodeProcessor[ForeignLookup]):
    """Responds to a subscription with the foreign row."""

    def open(self) -> None:
        self.lookup = open_view(self.operator.foreign_table, self.task.stores)

    def process(self, record: Record) -> None:
        subscription: Subscription = record.value
        held = None if record.key is None else self.lookup(record.key)
        timestamp = record.timestamp if held is None else max(record.timestamp, held.timestamp)
        foreign = None if held is None else held.value
        instruction = subscription.instruction
        if instruction is Instruction.DELETE_KEY_NO_PROPAGATE:
            return
        if instruction is Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE and held is None:
            return
        if instruction is Instruction.DELETE_KEY_AND_PROPAGATE:
            foreign = None
        response = Response(subscription.value_hash, foreign)
        self.forward(Record(subscription.key, response, timestamp, record.headers))


class ForeignChangedProcessor(NodeProcessor[ForeignChanged]):
    """Responds to all subscriptions of a foreign row that has changed."""

    def open(self) -> None:
        self.store = self.store_of(self.operator.store, SubscriptionStore)

    def process(self, record: Record) -> None:
        if record.key is None:
            return
        for subscription in self.store.of(record.key):
            response = Response(subscription.value_hash, record.value.new)
            self.forward(Record(subscription.key, response, record.timestamp, record.headers))


class ForeignResolveProcessor(NodeProcessor[ForeignResolve]):
    """Joins a response with its row; a response to a row that has changed since is dropped."""

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
