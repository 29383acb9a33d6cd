"""The cluster as this node sees it: controller, metadata quorum, and the coordinators of a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.counters import quantile_s
from ottla.metadata.image import NO_LEADER
from ottla.metrics import names
from ottla.metrics.families import Spelling
from ottla.metrics.sinks import NONE, Labels, Sink
from ottla.raft.node import RaftState

if TYPE_CHECKING:
    from ottla.broker.services import Broker, Node
    from ottla.coordinator.group.shard import GroupShard
    from ottla.coordinator.transaction.shard import TransactionShard
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage, TopicsImage
    from ottla.metadata.publisher import MetadataLoader
    from ottla.metrics.rates import Rates

_SLICE: Final = 2000
_LOADED_WITHIN_S: Final = 60.0
"""Two of the windows of 30 s that Kafka's metrics have."""
_RAFT_PURPOSES: Final = ("raft", "raft-fetch")
_CLASSIC: Final = "classic"


class UncleanElections:
    """Counts leaders that were elected out of sync, as the committed metadata shows them."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A metadata publisher."""
        before = delta.image.topics
        for change in delta.changed_topics.values():
            for index, after in change.partition_changes.items():
                earlier = before.partition(change.id, index)
                if (
                    earlier is not None
                    and after.leader not in (NO_LEADER, earlier.leader)
                    and after.leader not in earlier.isr
                    and after.leader not in earlier.elr
                ):
                    self.count += 1


class ClusterMetrics:
    """Reads the metadata and the quorum."""

    def __init__(self, node: Node, loader: MetadataLoader, unclean: UncleanElections, rates: Rates) -> None:
        self._node = node
        self._loader = loader
        self._unclean = unclean
        self._rates = rates
        self._counted: tuple[TopicsImage, int, int, int] | None = None
        """The topics that were counted last, with their partitions, offline and not preferred ones."""

    def read(self, sink: Sink, broker: Broker | None) -> Iterator[None]:
        """All families, in slices."""
        node = self._node
        sink.one(names.ACTIVE_CONTROLLER, int(node.is_controller))
        if node.local_controller is not None:
            yield from self._controller(sink)
        self._quorum(sink)
        lag_ms = self._lag_ms()
        if broker is not None:
            sink.one(names.METADATA_OFFSET, node.image.offset)
            sink.one(names.METADATA_LAG, lag_ms)
            sink.one(names.BROKER_STATE, int(broker.lifecycle.state))
            yield
            _coordinators(sink, broker)
        yield

    def _lag_ms(self) -> int:
        if self._node.raft.is_leader or self._loader.applied_at_ms < 0:
            return 0
        return max(self._node.clock.now_ms() - self._loader.applied_at_ms, 0)

    def _controller(self, sink: Sink) -> Iterator[None]:
        image = self._node.image
        topics = image.topics
        if self._counted is None or self._counted[0] is not topics:
            partitions = offline = not_preferred = seen = 0
            for topic in list(topics.by_id.values()):
                for registration in topic.partitions.values():
                    partitions += 1
                    offline += registration.leader == NO_LEADER
                    not_preferred += registration.leader != registration.replicas[0]
                seen += len(topic.partitions)
                if seen >= _SLICE:
                    seen = 0
                    yield
            self._counted = topics, partitions, offline, not_preferred
        _, partitions, offline, not_preferred = self._counted
        fenced = sum(broker.fenced for broker in image.brokers.values())
        sink.one(names.GLOBAL_TOPICS, len(topics.by_id))
        sink.one(names.GLOBAL_PARTITIONS, partitions)
        sink.one(names.OFFLINE_PARTITIONS, offline)
        sink.one(names.PREFERRED_IMBALANCE, not_preferred)
        sink.one(names.ACTIVE_BROKERS, len(image.brokers) - fenced)
        sink.one(names.FENCED_BROKERS, fenced)
        # A record that cannot be applied stops the node.
        sink.one(names.METADATA_ERRORS, 0)
        sink.one(names.LAST_APPLIED, image.offset)
        sink.one(names.LAST_APPLIED_LAG, self._lag_ms())
        sink.one(names.UNCLEAN_ELECTIONS, self._unclean.count)

    def _quorum(self, sink: Sink) -> None:
        raft, counters = self._node.raft, self._node.raft.counters
        now = self._node.clock.monotonic()
        state = _state_name(raft.state, is_voter=raft.is_voter, voted=raft.voted_for is not None)
        if sink.spelling is Spelling.CONFLUENT:
            # Its rules cannot show a word, as the exporter drops values that are not numbers.
            pass
        else:
            label = "current_state" if sink.spelling is Spelling.REPORTER else "current-state"
            sink.one(names.RAFT_STATE, 1, Labels((label, state)))
        sink.one(names.RAFT_LEADER, -1 if raft.leader_id is None else raft.leader_id)
        sink.one(names.RAFT_VOTE, -1 if raft.voted_for is None else raft.voted_for)
        sink.one(names.RAFT_EPOCH, raft.leader_epoch)
        sink.one(names.RAFT_HIGH_WATERMARK, raft.high_watermark)
        sink.one(names.RAFT_LOG_END, raft.log_end_offset)
        sink.one(names.RAFT_LOG_END_EPOCH, raft.log_end_epoch)
        rate = self._rates.per_s
        sink.one(names.RAFT_APPEND_RATE, round(rate("appended", counters.appended, now), 4))
        sink.one(names.RAFT_FETCH_RATE, round(rate("fetched", counters.fetched, now), 4))
        commits = rate("commits", counters.commits.count, now)
        seconds = rate("commit seconds", counters.commits.sum_s, now)
        sink.one(names.RAFT_COMMIT_AVG, round(1000 * seconds / commits, 4) if commits else 0.0)
        sink.one(names.RAFT_COMMIT_MAX, round(1000 * quantile_s(counters.commits.counts, 1.0), 4))
        elections = counters.elections
        count = elections.count
        sink.one(names.RAFT_ELECTION_AVG, round(1000 * elections.sum_s / count, 4) if count else 0.0)
        sink.one(names.RAFT_ELECTION_MAX, round(1000 * quantile_s(elections.counts, 1.0), 4))
        sink.one(names.RAFT_VOTERS, len(raft.voters.nodes))
        info = raft.describe_quorum()
        if info is not None:
            sink.one(names.RAFT_OBSERVERS, len(info.observers))
        channels = [self._node.counters.peer(purpose) for purpose in _RAFT_PURPOSES]
        sink.one(names.RAFT_BYTES_IN, sum(each.bytes_in for each in channels))
        sink.one(names.RAFT_BYTES_OUT, sum(each.bytes_out for each in channels))
        sink.one(names.RAFT_REQUESTS, sum(each.requests for each in channels))
        sink.one(names.RAFT_RESPONSES, sum(each.responses for each in channels))


def _state_name(state: RaftState, *, is_voter: bool, voted: bool) -> str:
    """The state by the word that Kafka shows."""
    if not is_voter and state is RaftState.FOLLOWER:
        return "observer"
    if state is RaftState.UNATTACHED and voted:
        return "unattached-voted"
    return state.value.lower()


def _coordinators(sink: Sink, broker: Broker) -> None:
    made = broker.coordinators.started
    types: Counter[str] = Counter()
    states: Counter[tuple[str, str]] = Counter()
    offsets = 0

    def visit(shard: GroupShard) -> None:
        nonlocal offsets
        offsets += shard.offsets.count()
        for group in shard.groups:
            types[group.type.value] += 1
            states[group.type.value, group.state_name] += 1

    transactions: Counter[str] = Counter()

    def visit_transactions(shard: TransactionShard) -> None:
        for txn in shard.transactions.values():
            transactions[txn.state.title] += 1

    if made is not None:
        made.groups.runtime.each_shard(visit)
        made.transactions.runtime.each_shard(visit_transactions)
    for runtime, families in (
        (None if made is None else made.groups.runtime, names.GROUP_LOAD_TIMES),
        (None if made is None else made.transactions.runtime, names.TRANSACTION_LOAD_TIMES),
    ):
        took_s = runtime.load_times_s(_LOADED_WITHIN_S) if runtime is not None else []
        sink.one(families["avg"], round(1000 * sum(took_s) / len(took_s), 3) if took_s else 0)
        sink.one(families["max"], round(1000 * max(took_s, default=0.0), 3))
    sink.one(names.GROUPS, sum(types.values()))
    sink.one(names.OFFSETS, offsets)
    for state, family in names.GROUP_STATES.items():
        sink.one(family, states[_CLASSIC, state])
    kinds = (_CLASSIC, *names.TYPED_GROUP_COUNT)
    sink.all(names.GROUP_COUNT, [(Labels(("protocol", kind)), types[kind]) for kind in kinds])
    for kind, family in names.TYPED_GROUP_COUNT.items():
        found = {state: count for (of, state), count in states.items() if of == kind} or {"Empty": 0}
        sink.all(
            family, [(Labels(("state", state.lower())), count) for state, count in sorted(found.items())]
        )
    sink.all(names.TRANSACTIONS, [(Labels(("state", state)), n) for state, n in sorted(transactions.items())])
    sink.one(names.PENDING_MARKERS, 0 if made is None else made.transactions.unfinished, NONE)
