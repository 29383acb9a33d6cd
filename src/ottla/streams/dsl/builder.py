"""The builder of a topology: it makes streams and tables of topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, overload

from ottla.streams.dsl.global_ktable import GlobalKTable
from ottla.streams.dsl.kstream import KStream
from ottla.streams.dsl.ktable import KTable
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
    TimestampExtractor,
)
from ottla.streams.graph.topology import Topology
from ottla.streams.serdes import Serde, SerdeLike, as_serde
from ottla.streams.type_variables import TextKey, TextValue, Unknown


class StreamsBuilder:
    """Describes a topology; nothing runs until `TopologyTestDriver` or `StreamsApp` reads it.

    Without a serde, keys and values are read as text. A serde is a type (`int`, `bytes`, a dataclass), `"json"`, or
    a `Serde`.

    >>> builder = StreamsBuilder()
    >>> words = builder.stream("lines").flat_map_values(str.split)
    >>> words.group_by(lambda word: word).count(store="counts").to_stream().to("counts")
    >>> driver = TopologyTestDriver(builder)
    >>> driver.pipe_input("lines", "to be or not to be")
    >>> driver.store("counts").get("be").value
    2
    """

    def __init__(self) -> None:
        self._wiring = Wiring()

    @overload
    def stream(
        self,
        topics: str | Iterable[str],
        *,
        key_serde: Serde[TextKey] | type[TextKey] | None = None,
        value_serde: Serde[TextValue] | type[TextValue] | None = None,
        timestamp: TimestampExtractor[TextValue] | None = None,
        on_error: OnError | str = OnError.FAIL,
        dead_letter_topic: str | None = None,
        name: str | None = None,
    ) -> KStream[TextKey, TextValue]: ...

    @overload
    def stream(
        self,
        topics: str | Iterable[str],
        *,
        key_serde: Serde[TextKey] | type[TextKey] | None = None,
        value_serde: Literal["json"],
        timestamp: TimestampExtractor | None = None,
        on_error: OnError | str = OnError.FAIL,
        dead_letter_topic: str | None = None,
        name: str | None = None,
    ) -> KStream[TextKey, Unknown]: ...

    @overload
    def stream(
        self,
        topics: str | Iterable[str],
        *,
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
        timestamp: TimestampExtractor | None = None,
        on_error: OnError | str = OnError.FAIL,
        dead_letter_topic: str | None = None,
        name: str | None = None,
    ) -> KStream: ...

    def stream(
        self,
        topics: str | Iterable[str],
        *,
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
        timestamp: TimestampExtractor | None = None,
        on_error: OnError | str = OnError.FAIL,
        dead_letter_topic: str | None = None,
        name: str | None = None,
    ) -> KStream:
        """Reads one topic or several as a stream: every record is an event of its own.

        `timestamp(value, time)` computes a record's time. `on_error` is "fail", "skip" or "dead-letter".

        >>> builder = StreamsBuilder()
        >>> readings = builder.stream("readings", key_serde=str, value_serde=float, on_error="skip")
        >>> readings.filter(lambda value: value > 30).to("hot")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("readings", 35.5, key="roof")
        >>> driver.pipe_input("readings", b"broken", key="roof")
        >>> driver.read_all("hot")
        [Record('roof', 35.5, timestamp=0)]
        """
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
        """The source that reads the same topics in the same way; they are read once."""
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

    @overload
    def table(
        self,
        topic: str,
        *,
        key_serde: Serde[TextKey] | type[TextKey] | None = None,
        value_serde: Serde[TextValue] | type[TextValue] | None = None,
        timestamp: TimestampExtractor[TextValue] | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[TextKey, TextValue]: ...

    @overload
    def table(
        self,
        topic: str,
        *,
        key_serde: Serde[TextKey] | type[TextKey] | None = None,
        value_serde: Literal["json"],
        timestamp: TimestampExtractor | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[TextKey, Unknown]: ...

    @overload
    def table(
        self,
        topic: str,
        *,
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
        timestamp: TimestampExtractor | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable: ...

    def table(
        self,
        topic: str,
        *,
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
        timestamp: TimestampExtractor | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable:
        """Reads a topic as a table: the latest value per key, and a null value deletes.

        >>> builder = StreamsBuilder()
        >>> names = builder.table("names", store="names")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_records("names", [("u1", "Ann", 0), ("u1", "Anna", 1)])
        >>> driver.store("names").get("u1").value
        'Anna'
        """
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

    @overload
    def global_table(
        self,
        topic: str,
        *,
        key_serde: Serde[TextKey] | type[TextKey] | None = None,
        value_serde: Serde[TextValue] | type[TextValue] | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> GlobalKTable[TextKey, TextValue]: ...

    @overload
    def global_table(
        self,
        topic: str,
        *,
        key_serde: Serde[TextKey] | type[TextKey] | None = None,
        value_serde: Literal["json"],
        store: str | None = None,
        name: str | None = None,
    ) -> GlobalKTable[TextKey, Unknown]: ...

    @overload
    def global_table(
        self,
        topic: str,
        *,
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
        store: str | None = None,
        name: str | None = None,
    ) -> GlobalKTable: ...

    def global_table(
        self,
        topic: str,
        *,
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
        store: str | None = None,
        name: str | None = None,
    ) -> GlobalKTable:
        """Reads a topic as a table of which every task holds all rows.

        >>> builder = StreamsBuilder()
        >>> cities = builder.global_table("cities", store="cities")
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("cities", "Brno", key="BRQ")
        >>> driver.store("cities").get("BRQ").value
        'Brno'
        """
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
        key_serde: SerdeLike = None,
        value_serde: SerdeLike = None,
        kind: StoreKind = StoreKind.KEY_VALUE,
        retention_ms: int = 0,
    ) -> StreamsBuilder:
        """Adds a store for processors of your own: name it in `process(..., stores=[name])`.

        >>> class Counter(Processor):
        ...     def process(self, record):
        ...         counts = self.context.store("counts")
        ...         counts.put(record.key, (counts.get(record.key) or 0) + 1)
        >>> builder = StreamsBuilder().add_state_store("counts")
        >>> _ = builder.stream("in").process(Counter, stores=["counts"])
        >>> driver = TopologyTestDriver(builder)
        >>> driver.pipe_input("in", "x", key="a")
        >>> driver.store("counts").get("a")
        1
        """
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
        """The topology; drivers and applications call this for you.

        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> builder.build().source_topics()
        ['in']
        """
        topology = self._wiring.topology
        if not topology.sources:
            raise TopologyError("the topology is empty: begin with stream(), table() or global_table()")
        for node in topology.nodes.values():
            for store in node.stores:
                if store not in topology.stores:
                    raise TopologyError(
                        f"{node.name} uses the state store {store}, but no add_state_store() added it"
                    )
            if isinstance(node.operator, Gate):
                node.operator.keeps_null_keys = topology.feeds_outer_join(node)
        return topology
