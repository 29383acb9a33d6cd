"""Joins of tables: by key, and by a foreign key (the key of the other table that a row refers to)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.functions import Function, Joiner
from ottla.streams.graph.operators import (
    ForeignChanged,
    ForeignLookup,
    ForeignReceive,
    ForeignResolve,
    ForeignSend,
    JoinKind,
    Sink,
    Source,
    Store,
    StoreKind,
    TableJoinMerge,
    TableJoinSide,
    TableSource,
)
from ottla.streams.graph.views import JoinView
from ottla.streams.serdes import AnySerde

if TYPE_CHECKING:
    from ottla.streams.dsl.ktable import KTable

_FOREIGN = "KTABLE-FK-JOIN-"


def join_tables(
    this: KTable,
    other: KTable,
    joiner: Joiner,
    *,
    left: bool,
    outer: bool,
    value_serde: AnySerde | None,
    store: str | None,
    name: str | None,
) -> KTable:
    """Adds both sides and the merge of a join by key."""
    wiring = this._wiring
    merge = wiring.named(name, "KTABLE-MERGE-")
    if left:
        this._send_old(force=True)
    if outer:
        other._send_old(force=True)
    this_join = wiring.suffixed(name, "-join-this", "KTABLE-JOINTHIS-")
    other_join = wiring.suffixed(name, "-join-other", "KTABLE-JOINOTHER-")
    this_kind = JoinKind.OUTER if outer else JoinKind.LEFT if left else JoinKind.INNER
    other_kind = JoinKind.OUTER if outer else JoinKind.RIGHT if left else JoinKind.INNER
    this_view, other_view = this._view(), other._view()
    this_side = TableJoinSide(other_view, joiner, this_kind)
    other_side = TableJoinSide(this_view, joiner.reversed(), other_kind)
    merged = TableJoinMerge(store)
    kept = this._kept(store, value_serde)
    wiring.add(this_join, this_side, this._node, stores=other_view.stores)
    wiring.add(other_join, other_side, other._node, stores=this_view.stores)
    wiring.add(merge, merged, this_join, other_join, stores=(store,) if store else ())
    return type(this)(
        wiring,
        merge,
        this._key_serde,
        value_serde,
        [merged, this_side, other_side],
        parents=[this, other],
        store=kept,
        make_view=lambda: JoinView(this_view, other_view, joiner, left, outer),
    )


def join_on_foreign_key(
    this: KTable,
    other: KTable,
    foreign_key: Function,
    joiner: Joiner,
    *,
    left: bool,
    value_serde: AnySerde | None,
    store: str | None,
    name: str | None,
) -> KTable:
    """Rows subscribe to the rows they refer to; responses come back to the row's own task."""
    wiring = this._wiring
    other._send_old(force=True)
    this._send_old(force=True)
    topic = (
        wiring.suffixed(name, "-subscription-registration", f"{_FOREIGN}SUBSCRIPTION-REGISTRATION-")
        + "-topic"
    )
    send = wiring.suffixed(
        name, "-subscription-registration-processor", f"{_FOREIGN}SUBSCRIPTION-REGISTRATION-"
    )
    wiring.add(send, ForeignSend(foreign_key, left), this._node)
    sink = wiring.suffixed(name, "-subscription-registration-sink", "KTABLE-SINK-")
    wiring.add(sink, Sink(topic, other._key_serde, None, internal=True), send)
    source = wiring.suffixed(name, "-subscription-registration-source", "KTABLE-SOURCE-")
    wiring.add(source, Source((topic,), other._key_serde, None, internal=True))
    subscriptions = wiring.suffixed(name, "-subscription-store", f"{_FOREIGN}SUBSCRIPTION-STATE-STORE-")
    wiring.add_store(Store(subscriptions, StoreKind.SUBSCRIPTIONS))
    receive = wiring.suffixed(name, "-subscription-receive", f"{_FOREIGN}SUBSCRIPTION-PROCESSOR-")
    wiring.add(receive, ForeignReceive(subscriptions), source, stores=(subscriptions,))
    lookup = wiring.suffixed(name, "-subscription-join-foreign", f"{_FOREIGN}SUBSCRIPTION-PROCESSOR-")
    other_view = other._view()
    wiring.add(lookup, ForeignLookup(other_view), receive, stores=other_view.stores)
    changed = wiring.suffixed(name, "-foreign-join-subscription", f"{_FOREIGN}SUBSCRIPTION-PROCESSOR-")
    wiring.add(changed, ForeignChanged(subscriptions), other._node, stores=(subscriptions,))
    response = wiring.suffixed(name, "-subscription-response", f"{_FOREIGN}SUBSCRIPTION-RESPONSE-") + "-topic"
    response_sink = wiring.suffixed(name, "-subscription-response-sink", "KTABLE-SINK-")
    wiring.add(response_sink, Sink(response, this._key_serde, None, internal=True), lookup, changed)
    response_source = wiring.suffixed(name, "-subscription-response-source", "KTABLE-SOURCE-")
    wiring.add(response_source, Source((response,), this._key_serde, None, internal=True))
    resolve = wiring.suffixed(
        name, "-subscription-response-resolver", f"{_FOREIGN}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
    )
    this_view = this._view()
    wiring.add(resolve, ForeignResolve(this_view, joiner, left), response_source, stores=this_view.stores)
    result = wiring.suffixed(name, "-result", f"{_FOREIGN}OUTPUT-")
    store_name = store or wiring.store_name(f"{_FOREIGN}OUTPUT-")
    operator = TableSource(store_name, materialized=store is not None)
    wiring.add(result, operator, resolve)
    kept = Store(store_name, StoreKind.KEY_VALUE, key_serde=this._key_serde, value_serde=value_serde)
    return type(this).of_source(wiring, result, operator, kept)
