"""Joins of a stream: with another stream inside a window, with a table, with a global table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.dsl.global_ktable import GlobalKTable
from ottla.streams.errors import TopologyError
from ottla.streams.functions import Function, Joiner
from ottla.streams.graph.operators import (
    JoinWindow,
    PassThrough,
    Store,
    StoreKind,
    StreamJoinSide,
    StreamTableJoin,
)
from ottla.streams.graph.views import StoreView
from ottla.streams.serdes import AnySerde
from ottla.streams.windows import JoinWindows

if TYPE_CHECKING:
    from ottla.streams.dsl.kstream import KStream
    from ottla.streams.dsl.ktable import KTable

MaybeSerde = AnySerde | None


def join_streams(
    this: KStream,
    other: KStream,
    joiner: Joiner,
    windows: JoinWindows,
    *,
    left: bool,
    outer: bool,
    name: str | None,
    store: str | None,
    serdes: tuple[MaybeSerde, MaybeSerde, MaybeSerde],
) -> KStream:
    """Adds both sides, their window stores and the merge, with the names that Kafka Streams gives them."""
    wiring = this._wiring
    key, this_value, other_value = serdes
    if this._rekeyed:
        this = this._repartition_for_join(f"{name}-left" if name else this._node, key, this_value)
    if other._rekeyed:
        other = other._repartition_for_join(f"{name}-right" if name else other._node, key, other_value)
    this_suffix = "-outer-this-join" if outer else "-this-join"
    other_suffix = "-outer-other-join" if left else "-other-join"
    this_window = wiring.suffixed(name, "-this-windowed", "KSTREAM-WINDOWED-")
    other_window = wiring.suffixed(name, "-other-windowed", "KSTREAM-WINDOWED-")
    this_generated = wiring.processor_name("KSTREAM-OUTERTHIS-" if outer else "KSTREAM-JOINTHIS-")
    other_generated = wiring.processor_name("KSTREAM-OUTEROTHER-" if left else "KSTREAM-JOINOTHER-")
    merge = wiring.suffixed(name, "-merge", "KSTREAM-MERGE-")
    this_join = f"{name}{this_suffix}" if name else this_generated
    other_join = f"{name}{other_suffix}" if name else other_generated
    this_store = _window_store(
        this, f"{store}{this_suffix}" if store else this_generated, windows, this_value
    )
    other_store = _window_store(
        other, f"{store}{other_suffix}" if store else other_generated, windows, other_value
    )
    wiring.add(this_window, JoinWindow(this_store), this._node, stores=(this_store,))
    wiring.add(other_window, JoinWindow(other_store), other._node, stores=(other_store,))
    shared: tuple[str, ...] = ()
    if left:
        shared_name = (
            f"{store}{'-outer' if outer else '-left'}-shared-join" if store else _shared(this_generated)
        )
        shared = (
            wiring.add_store(Store(f"{shared_name}-store", StoreKind.OUTER_JOIN, windows.retention_ms)),
        )
    outer_store = shared[0] if shared else None
    wiring.add(
        this_join,
        StreamJoinSide(other_store, outer_store, windows, joiner, True, left, merge),
        this_window,
        stores=(other_store, *shared),
    )
    wiring.add(
        other_join,
        StreamJoinSide(this_store, outer_store, windows, joiner.reversed(), False, outer, merge),
        other_window,
        stores=(this_store, *shared),
    )
    wiring.add(merge, PassThrough(), this_join, other_join)
    return type(this)(wiring, merge, key, None)


def _shared(this_generated: str) -> str:
    return "KSTREAM-OUTERSHARED-" + this_generated[this_generated.rindex("-") + 1 :]


def _window_store(stream: KStream, name: str, windows: JoinWindows, value_serde: MaybeSerde) -> str:
    return stream._wiring.add_store(
        Store(
            f"{name}-store",
            StoreKind.WINDOW,
            retention_ms=windows.retention_ms,
            keep_duplicates=True,
            key_serde=stream._key_serde,
            value_serde=value_serde or stream._value_serde,
        )
    )


def join_table(
    stream: KStream,
    other: KTable | GlobalKTable,
    joiner: Joiner,
    *,
    left: bool,
    key: Function | None,
    name: str | None,
    serdes: tuple[MaybeSerde, MaybeSerde],
) -> KStream:
    """Adds the lookup of a table, or of a global table by a key of its own."""
    wiring = stream._wiring
    if isinstance(other, GlobalKTable):
        if key is None:
            raise TopologyError("a join with a global table needs key=: a function of (key, value)")
        node = wiring.named(name, "KSTREAM-LEFTJOIN-")
        operator = StreamTableJoin(StoreView(other.store), joiner, left, key)
        wiring.add(node, operator, stream._node)
        return type(stream)(wiring, node, stream._key_serde, None, rekeyed=stream._rekeyed)
    if key is not None:
        raise TopologyError("key= is for global tables: a table is joined by the stream's own key")
    if stream._rekeyed:
        stream = stream._repartition_for_join(name or stream._node, *serdes)
    node = wiring.named(name, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
    view = other._view()
    wiring.add(node, StreamTableJoin(view, joiner, left), stream._node, stores=view.stores)
    return type(stream)(wiring, node, serdes[0] or stream._key_serde, None)
