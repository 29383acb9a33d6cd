"""Transactions: by state and age, with the partitions that an open one holds back; abort from a plan."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.admin.transactions import describe_transaction, force_terminate, list_transactions
from ottla.console.frame import AREAS, Area
from ottla.console.plans import Form, Plan, change
from ottla.console.sampler.why import span
from ottla.console.security.roles import ADMIN
from ottla.console.web import Values, View, page
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

AREAS.append(Area("transactions", "Transactions", "transactions", key="x"))
_DESCRIBED: Final = 200
_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_SHOWN: Final = 500


@dataclass(frozen=True, slots=True)
class Row:
    """A transactional id."""

    name: str
    state: str
    producer_id: int
    age_s: float | None
    timeout_s: float | None
    partitions: list[str]

    @property
    def hangs(self) -> bool:
        """Open for longer than its own time-out: its coordinator does not end it."""
        return bool(
            self.age_s is not None and self.timeout_s is not None and self.age_s > self.timeout_s + 10
        )


def _rows(cluster: Cluster, brokers: list[int]) -> list[Row]:
    now_ms = time.time() * 1000
    found = [each for broker in brokers for each in list_transactions(cluster, broker)]
    found.sort(key=lambda each: (each.transaction_state not in _OPEN, each.transactional_id))
    rows = []
    for index, each in enumerate(found[:_SHOWN]):
        age, timeout, partitions = None, None, []
        if each.transaction_state in _OPEN and index < _DESCRIBED:
            _, state = describe_transaction(cluster, each.transactional_id)
            if state.transaction_start_time_ms >= 0:
                age = max((now_ms - state.transaction_start_time_ms) / 1000, 0.0)
            timeout = state.transaction_timeout_ms / 1000
            partitions = [f"{topic.topic}-{number}" for topic in state.topics for number in topic.partitions]
        rows.append(
            Row(each.transactional_id, each.transaction_state, each.producer_id, age, timeout, partitions)
        )
    rows.sort(key=lambda row: (not row.hangs, row.state not in _OPEN, -(row.age_s or 0.0), row.name))
    return rows


@page("/transactions", "transactions.html", live=("rows",), menu="transactions")
async def transactions(view: View) -> Values:
    """The list, oldest open one first."""
    brokers = view.cluster.answering()
    supported = await view.cluster.call(lambda cluster: cluster.supports(ApiKey.LIST_TRANSACTIONS))
    return {
        "supported": supported,
        "rows": await view.cluster.call(_rows, brokers) if supported else [],
        "may_abort": view.may(ADMIN, "transaction:*"),
        "commands": [f"ottla transactions --bootstrap-server {view.cluster.bootstrap} list"],
    }


@change("transaction.abort", ADMIN)
async def plan_abort(view: View, form: Form) -> Plan:
    """End an open transaction: its transactional id is taken over, which aborts it."""
    name = form.get("id", "")
    _, state = await view.cluster.call(describe_transaction, name)
    age_s = time.time() - state.transaction_start_time_ms / 1000
    partitions = [(topic.topic, number) for topic in state.topics for number in topic.partitions]
    refused = (
        "" if state.transaction_state == "Ongoing" else f"It is {state.transaction_state}: nothing is open."
    )

    async def apply() -> str:
        try:
            await view.cluster.call(force_terminate, name)
        except ApiException as error:
            raise ApiException(
                error.code, f"The transaction of {name} was not ended: {error.message}"
            ) from None
        return f"The transaction of {name} is aborted, and its producer is fenced."

    began = f", open for {span(age_s)}" if not refused and state.transaction_start_time_ms > 0 else ""
    return Plan(
        title=f"Abort the transaction of {name}",
        verb=ADMIN,
        resource=f"transaction:{name}",
        apply=apply,
        sentence="Its records are dropped for readers of committed records. A producer that still runs is fenced.",
        columns=("Partition", "Offset it holds back"),
        rows=[(f"{topic}-{number}", "from its first record on") for topic, number in partitions],
        warnings=[f"Producer {state.producer_id}, epoch {state.producer_epoch}."] if began else [],
        commands=[
            f"ottla transactions --bootstrap-server {view.cluster.bootstrap} forceTerminateTransaction"
            f" --transactionalId {shlex.quote(name)}"
        ],
        refused=refused,
        danger=True,
        button="Abort it",
        then=view.url("transactions"),
    )
