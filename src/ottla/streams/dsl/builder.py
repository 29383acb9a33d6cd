"""Where an application begins: topics become streams and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ottla.streams.dsl.kstream import KStream
from ottla.streams.dsl.ktable import GlobalKTable, KTable
from ottla.streams.dsl.wiring import Wiring
from ottla.streams.errors import TopologyError
from ottla.streams.graph.operators import (
    Gate,
    GlobalTableSource,
    OnError,
    Source,
    Store,
    StoreKind,
    TableSource,
)
from ottla.streams.graph.topology import Topology
from ottla.streams.serdes import as_serde

TimestampOf = Callable[[Any, int], int]
"""A time extractor: (value, the record's own time) to milliseconds; a negative time drops the record."""


class StreamsBuilder:
    """Describes a topology; nothing runs until a driver or the planner reads it."""

    def __init__(self) -> None:
        self._wiring = Wiring()

    def stream(
        self,
        topics: str | Iterable[str],
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp: TimestampOf | None = None,
        on_error: OnError | str = OnError.FAIL,
        dead_letter_topic: str | None = None,
        name: str | None = None,
    ) -> KStream:
        """Every record of the topics is an event of its own."""
        wanted = (topics,) if isinstance(topics, str) else tuple(topics)
        if not wanted:
            raise TopologyError("a stream needs at least one topic")
        source = Source(
            wanted,
            as_serde(key_serde),
            as_serde(value_serde),
            timestamp,
            on_error=OnError(on_error),
            dead_letter_topic=dead_letter_topic,
        )
        if source.on_error is OnError.DEAD_LETTER and dead_letter_topic is None:
            raise TopologyError("on_error='dead-letter' needs dead_letter_topic=...")
        node_name = self._wiring.named(name, "KSTREAM-SOURCE-")
        node = self._same_source(source) or self._wiring.add(node_name, self._checked(source))
        return KStream(self._wiring, node, source.key_serde, source.value_serde)

    def _same_source(self, wanted: Source) -> str | None:
        """A topic that is read twice in the same way is read once."""
        for node in self._wiring.topology.sources:
            if node.operator == wanted and not any(
                isinstance(child.operator, (TableSource, GlobalTableSource)) for child in node.children
            ):
                return node.name
        return None

    def _checked(self, source: Source) -> Source:
        taken = set(self._wiring.topology.source_topics()).intersection(source.topics)
        if taken:
            raise TopologyError(
                f"{', '.join(sorted(taken))} is already read by another source of this topology"
            )
        return source

    def table(
        self,
        topic: str,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp: TimestampOf | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable:
        """The topic's latest value per key; a null value deletes."""
        wiring = self._wiring
        store_name = store or wiring.store_name(f"{topic}-")
        source_name = wiring.suffixed(name, "-source", "KSTREAM-SOURCE-")
        table_name = wiring.named(name, "KTABLE-SOURCE-")
        source = Source((topic,), as_serde(key_serde), as_serde(value_serde), timestamp)
        wiring.add(source_name, self._checked(source))
        operator = TableSource(store_name, materialized=store is not None)
        wiring.add(table_name, operator, source_name)
        kept = Store(
            store_name, StoreKind.KEY_VALUE, key_serde=source.key_serde, value_serde=source.value_serde
        )
        return KTable.of_source(wiring, table_name, operator, kept)

    def global_table(
        self,
        topic: str,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        store: str | None = None,
        name: str | None = None,
    ) -> GlobalKTable:
        """A table of which every task holds all rows."""
        wiring = self._wiring
        store_name = store or wiring.store_name(f"{topic}-")
        source_name = wiring.suffixed(name, "-source", "KSTREAM-SOURCE-")
        table_name = wiring.named(name, "KTABLE-SOURCE-")
        source = Source((topic,), as_serde(key_serde), as_serde(value_serde))
        wiring.add_store(
            Store(
                store_name,
                StoreKind.KEY_VALUE,
                key_serde=source.key_serde,
                value_serde=source.value_serde,
                global_=True,
                logged=False,
            )
        )
        wiring.add(source_name, self._checked(source))
        wiring.add(table_name, GlobalTableSource(store_name), source_name, stores=(store_name,))
        return GlobalKTable(store_name)

    def add_state_store(
        self,
        name: str,
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        kind: StoreKind = StoreKind.KEY_VALUE,
        retention_ms: int = 0,
    ) -> StreamsBuilder:
        """A store for processors of your own: name it in `process(..., stores=[name])`."""
        self._wiring.add_store(
            Store(
                name,
                kind,
                retention_ms=retention_ms,
                key_serde=as_serde(key_serde),
                value_serde=as_serde(value_serde),
                timestamped=False,
            )
        )
        return self

    def build(self) -> Topology:
        topology = self._wiring.topology
        if not topology.sources:
            raise TopologyError("the topology is empty: begin with stream(), table() or global_table()")
        for node in topology.nodes.values():
            for store in node.stores:
                if store not in topology.stores:
                    raise TopologyError(f"{node.name} uses the state store {store}, which nobody added")
            if isinstance(node.operator, Gate):
                node.operator.keeps_null_keys = topology.feeds_outer_join(node)
        return topology
