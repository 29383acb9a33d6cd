"""ListTransactions: the transactional ids of a shard that pass the filters of the request."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ottla.coordinator.group.consumer.regex import Pattern, compile_regex
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.coordinator.transaction.state import STATES_BY_TITLE, TransactionMetadata, TransactionState


@dataclass(slots=True)
class ListFilter:
    """The filters of ListTransactions; an empty one passes everything."""

    state_titles: Collection[str] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int = -1
    """Pass only transactions that have been open for longer; negative: all."""
    pattern: str | None = None
    _states: frozenset[TransactionState] = field(init=False, default=frozenset())
    _regex: Pattern | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._states = frozenset(
            STATES_BY_TITLE[title] for title in self.state_titles if title in STATES_BY_TITLE
        )
        if self.pattern:
            # Kafka uses Java's engine; RE2 takes linear time for any pattern.
            self._regex = compile_regex(self.pattern)

    @property
    def unknown_states(self) -> list[str]:
        return [title for title in self.state_titles if title not in STATES_BY_TITLE]

    def matches(self, txn: TransactionMetadata, now_ms: int) -> bool:
        return not (
            (self.producer_ids and txn.producer_id not in self.producer_ids)
            or (self.state_titles and txn.state not in self._states)
            or (self.duration_ms >= 0 and now_ms - txn.started_ms <= self.duration_ms)
            or (self._regex is not None and not self._regex.fullmatch(txn.transactional_id))
        )


def list_transactions(shard: TransactionShard, wanted: ListFilter, now_ms: int) -> list[TransactionMetadata]:
    return [txn for txn in shard.transactions.values() if wanted.matches(txn, now_ms)]
