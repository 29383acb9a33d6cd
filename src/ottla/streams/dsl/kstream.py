"""A stream of records: every record is an event of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.streams.dsl.grouped import KGroupedStream
from ottla.streams.dsl.stream_joins import join_streams, join_table
from ottla.streams.dsl.wiring import Flow, Repartition, Wiring, repartition
from ottla.streams.errors import TopologyError
from ottla.streams.functions import Function, Joiner
from ottla.streams.graph.operators import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    Foreach,
    Map,
    MapValues,
    Operator,
    PassThrough,
    Peek,
    Print,
    Process,
    SelectKey,
    Sink,
    Store,
    StoreKind,
    TableSource,
)
from ottla.streams.serdes import Serde, as_serde
from ottla.streams.windows import JoinWindows

if TYPE_CHECKING:
    from ottla.streams.dsl.ktable import GlobalKTable, KTable


class KStream(Flow):
    def __init__(
        self,
        wiring: Wiring,
        node: str,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
        *,
        rekeyed: bool = False,
    ) -> None:
        super().__init__(wiring, node, key_serde, value_serde)
        self._rekeyed = rekeyed
        self._repartitioned: Repartition | None = None

    def _then(
        self,
        prefix: str,
        name: str | None,
        operator: Operator,
        *,
        keeps_key: bool = True,
        keeps_value: bool = True,
        stores: tuple[str, ...] = (),
    ) -> KStream:
        node = self._wiring.add(self._wiring.named(name, prefix), operator, self._node, stores=stores)
        return KStream(
            self._wiring,
            node,
            self._key_serde if keeps_key else None,
            self._value_serde if keeps_value else None,
            rekeyed=self._rekeyed or not keeps_key,
        )

    def filter(self, predicate: Any, *, name: str | None = None) -> KStream:
        """Records for which the predicate of (key, value), or of the value alone, holds."""
        return self._then("KSTREAM-FILTER-", name, Filter(Function(predicate)))

    def filter_not(self, predicate: Any, *, name: str | None = None) -> KStream:
        return self._then("KSTREAM-FILTER-", name, Filter(Function(predicate), negate=True))

    def map(self, mapper: Any, *, name: str | None = None) -> KStream:
        """A new (key, value) for each record."""
        operator = Map(Function(mapper))
        return self._then("KSTREAM-MAP-", name, operator, keeps_key=False, keeps_value=False)

    def map_values(self, mapper: Any, *, value_serde: Any = None, name: str | None = None) -> KStream:
        mapped = self._then("KSTREAM-MAPVALUES-", name, MapValues(Function(mapper)), keeps_value=False)
        mapped._value_serde = as_serde(value_serde)
        return mapped

    def flat_map(self, mapper: Any, *, name: str | None = None) -> KStream:
        """Any number of (key, value) pairs for each record."""
        operator = FlatMap(Function(mapper))
        return self._then("KSTREAM-FLATMAP-", name, operator, keeps_key=False, keeps_value=False)

    def flat_map_values(self, mapper: Any, *, value_serde: Any = None, name: str | None = None) -> KStream:
        operator = FlatMapValues(Function(mapper))
        mapped = self._then("KSTREAM-FLATMAPVALUES-", name, operator, keeps_value=False)
        mapped._value_serde = as_serde(value_serde)
        return mapped

    def select_key(self, mapper: Any, *, name: str | None = None) -> KStream:
        return self._then("KSTREAM-KEY-SELECT-", name, SelectKey(Function(mapper)), keeps_key=False)

    def peek(self, action: Any, *, name: str | None = None) -> KStream:
        """Looks at each record on its way."""
        return self._then("KSTREAM-PEEK-", name, Peek(Function(action)))

    def foreach(self, action: Any, *, name: str | None = None) -> None:
        self._then("KSTREAM-FOREACH-", name, Foreach(Function(action)))

    def print(self, *, label: str | None = None, name: str | None = None) -> None:
        """Writes each record to the standard output as `[label]: key, value`."""
        self._then("KSTREAM-PRINTER-", name, Print(label or self._node))

    def split(self, *, name: str | None = None) -> BranchedKStream:
        return BranchedKStream(self, name)

    def merge(self, other: KStream, *, name: str | None = None) -> KStream:
        merged = self._wiring.named(name, "KSTREAM-MERGE-")
        self._wiring.add(merged, PassThrough(), self._node, other._node)
        return KStream(self._wiring, merged, None, None, rekeyed=self._rekeyed or other._rekeyed)

    def repartition(
        self,
        *,
        name: str | None = None,
        partitions: int | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> KStream:
        """Sends records to the tasks of their keys now."""
        prefix = name or self._wiring.processor_name("KSTREAM-REPARTITION-")
        key = as_serde(key_serde) or self._key_serde
        value = as_serde(value_serde) or self._value_serde
        way = repartition(self._wiring, self._node, prefix, key, value, partitions=partitions)
        return KStream(self._wiring, way.source, key, value)

    def _repartition_for_join(
        self, prefix: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None
    ) -> KStream:
        key, value = key_serde or self._key_serde, value_serde or self._value_serde
        reuse = self._repartitioned if prefix == self._node else None
        way = repartition(self._wiring, self._node, prefix, key, value, reuse=reuse)
        self._repartitioned = way
        return KStream(self._wiring, way.source, key, value)

    def to(
        self,
        topic: str | Callable[..., str],
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        partitioner: Callable[[Any, Any, int], int | None] | None = None,
        name: str | None = None,
    ) -> None:
        """Writes to a topic; a function of (key, value) chooses one for each record."""
        sink = Sink(
            topic if isinstance(topic, str) else Function(topic),
            as_serde(key_serde) or self._key_serde,
            as_serde(value_serde) or self._value_serde,
            partitioner=partitioner,
        )
        self._wiring.add(self._wiring.named(name, "KSTREAM-SINK-"), sink, self._node)

    def to_table(
        self,
        *,
        name: str | None = None,
        store: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> KTable:
        """The latest value per key."""
        from ottla.streams.dsl.ktable import KTable

        wiring = self._wiring
        node = wiring.named(name, "KSTREAM-TOTABLE-")
        store_name = store or wiring.store_name("KSTREAM-TOTABLE-")
        key, value = as_serde(key_serde) or self._key_serde, as_serde(value_serde) or self._value_serde
        parent = self._node
        if self._rekeyed:
            parent = repartition(wiring, self._node, node, key, value).source
        operator = TableSource(store_name, materialized=store is not None)
        wiring.add(node, operator, parent)
        kept = Store(store_name, StoreKind.KEY_VALUE, key_serde=key, value_serde=value)
        return KTable.of_source(wiring, node, operator, kept)

    def group_by_key(
        self, *, name: str | None = None, key_serde: Any = None, value_serde: Any = None
    ) -> KGroupedStream:
        return KGroupedStream(
            self._wiring,
            self._node,
            as_serde(key_serde) or self._key_serde,
            as_serde(value_serde) or self._value_serde,
            rekeyed=self._rekeyed,
            repartition_name=name,
        )

    def group_by(
        self, key: Any, *, name: str | None = None, key_serde: Any = None, value_serde: Any = None
    ) -> KGroupedStream:
        """Groups by a key computed from each record."""
        selected = self._then("KSTREAM-KEY-SELECT-", name, SelectKey(Function(key)), keeps_key=False)
        return KGroupedStream(
            self._wiring,
            selected._node,
            as_serde(key_serde),
            as_serde(value_serde) or self._value_serde,
            rekeyed=True,
            repartition_name=name,
        )

    def join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Callable[..., Any],
        window: JoinWindows | None = None,
        **options: Any,
    ) -> KStream:
        """With a stream (within a window), a table, or a global table (`key=` says which key to look up)."""
        return self._join(other, joiner, window, left=False, outer=False, **options)

    def left_join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Callable[..., Any],
        window: JoinWindows | None = None,
        **options: Any,
    ) -> KStream:
        return self._join(other, joiner, window, left=True, outer=False, **options)

    def outer_join(
        self, other: KStream, joiner: Callable[..., Any], window: JoinWindows, **options: Any
    ) -> KStream:
        return self._join(other, joiner, window, left=True, outer=True, **options)

    def _join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Callable[..., Any],
        window: JoinWindows | None,
        *,
        left: bool,
        outer: bool,
        key: Any = None,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        other_value_serde: Any = None,
        store: str | None = None,
    ) -> KStream:
        if isinstance(other, KStream):
            if window is None:
                raise TopologyError("two streams are joined within a window: give JoinWindows.of(...)")
            serdes = (as_serde(key_serde), as_serde(value_serde), as_serde(other_value_serde))
            return join_streams(
                self,
                other,
                Joiner(joiner),
                window,
                left=left,
                outer=outer,
                name=name,
                store=store,
                serdes=serdes,
            )
        if window is not None or outer:
            raise TopologyError("a stream is joined with a table without a window, as an inner or left join")
        return join_table(
            self,
            other,
            Joiner(joiner),
            left=left,
            key=None if key is None else Function(key),
            name=name,
            serdes=(as_serde(key_serde), as_serde(value_serde)),
        )

    def process(
        self,
        processor: Callable[[], Any],
        *,
        stores: Iterable[str] = (),
        name: str | None = None,
    ) -> KStream:
        """A processor of your own: a class or function that makes a `Processor` for each task."""
        node = name or self._wiring.processor_name("KSTREAM-PROCESSOR-")
        self._wiring.add(node, Process(processor), self._node, stores=tuple(stores))
        return KStream(self._wiring, node, None, None, rekeyed=True)

    def process_values(
        self,
        processor: Callable[[], Any],
        *,
        stores: Iterable[str] = (),
        name: str | None = None,
    ) -> KStream:
        """Like `process`, for processors that leave the key alone."""
        node = name or self._wiring.processor_name("KSTREAM-PROCESSVALUES-")
        self._wiring.add(node, Process(processor, fixed_key=True), self._node, stores=tuple(stores))
        return KStream(self._wiring, node, self._key_serde, None, rekeyed=self._rekeyed)


class BranchedKStream:
    """The branches of a split: a record goes to the first one whose predicate holds."""

    def __init__(self, source: KStream, name: str | None) -> None:
        self._source = source
        self._wiring = source._wiring
        self._operator = Branch()
        self._name = self._wiring.named(name, "KSTREAM-BRANCH-")
        self._wiring.add(self._name, self._operator, source._node)
        self._branches: dict[str, KStream] = {}

    def branch(
        self,
        predicate: Any,
        *,
        name: str | None = None,
        then: Callable[[KStream], KStream | None] | None = None,
    ) -> BranchedKStream:
        self._operator.predicates.append(Function(predicate))
        child = self._child(name or str(len(self._operator.predicates)), then)
        self._operator.children.append(child)
        return self

    def default_branch(
        self, *, name: str | None = None, then: Callable[[KStream], KStream | None] | None = None
    ) -> dict[str, KStream]:
        self._operator.default = self._child(name or "0", then)
        return self._branches

    def no_default_branch(self) -> dict[str, KStream]:
        return self._branches

    def _child(self, suffix: str, then: Callable[[KStream], KStream | None] | None) -> str:
        node = self._name + suffix
        self._wiring.processor_name(node)
        self._wiring.add(node, PassThrough(), self._name)
        source = self._source
        branch = KStream(self._wiring, node, source._key_serde, source._value_serde, rekeyed=source._rekeyed)
        result = branch if then is None else then(branch)
        if result is not None:
            self._branches[node] = result
        return node
