"""One round of the sampler: asks the brokers, and writes what they say into the state. It blocks: a thread runs it."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.admin.partitions import EARLIEST, LATEST
from ottla.console.sampler import ask, lag
from ottla.console.sampler.groups import GroupQuestions
from ottla.console.sampler.rings import History
from ottla.console.sampler.samples import UNKNOWN
from ottla.console.sampler.state import SAMPLE_EACH_S, ClusterState, TopicState
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_logger = logging.getLogger(__name__)

_NAMES_EACH: Final = 10
_STARTS_EACH: Final = 5
_SIZES_EACH: Final = 5
_GROUPS_EACH: Final = 5
_POLICIES_EACH: Final = 50
_SMALL: Final = 500
"""Up to so many partitions and groups together, a cluster is small: most rounds ask for everything."""
_MISSING: Final = -(1 << 62)
"""Stands in a column for what no broker has answered."""
_SILENT: Final = ApiException(ErrorCode.NETWORK_EXCEPTION, "it did not answer before in this round")


@dataclass(slots=True)
class Round:
    """What this round is to ask beside the ends of all partitions."""

    number: int
    moment_s: float
    full: bool = False
    """Everything: the first round, one after a long pause, and one after a change."""
    watched_groups: frozenset[str] = frozenset()
    small: bool = False

    def due(self, each: int) -> bool:
        return self.full or self.number % (max(each // 5, 1) if self.small else each) == 0


def take(cluster: Cluster, state: ClusterState, this: Round) -> None:
    """Bring the state up to date. Raises ApiException if no broker answers at all."""
    this.small = len(state.groups) + sum(each.partitions for each in state.topics.values()) <= _SMALL
    silent: set[int] = set()
    looked_at = _take_names_and_groups(cluster, state, this, silent)
    _take_offsets(cluster, state, this, silent)
    for name in looked_at:
        # Of a large cluster, most rounds only look at the groups on the screen.
        lag.note(state, state.groups[name], this.moment_s)
    if looked_at:
        lag.by_topic(state)
    for node in state.nodes.values():
        node.answers = node.node_id not in silent
        if node.answers:
            node.silent_since_s = None
        elif node.silent_since_s is None:
            node.silent_since_s = this.moment_s
    _add_up(state, this.moment_s)


def _take_names_and_groups(cluster: Cluster, state: ClusterState, this: Round, silent: set[int]) -> list[str]:
    """Topics and groups, of all brokers at once. The groups that were asked about."""
    work = cluster.at_once()
    found = None
    if this.due(_NAMES_EACH):
        _take_nodes(cluster, state)
        found = ask.topics(cluster, work)
    groups = GroupQuestions(cluster, work, state, this.moment_s)
    listing = this.due(_GROUPS_EACH)
    watched = [name for name in this.watched_groups if name in state.groups]
    if listing:
        groups.list_all(list(cluster.nodes()))
    else:
        groups.ask(watched)
    work.run()
    groups.finish()
    _note(work.failures, silent)
    if found is not None:
        _put_topics(state, found)
    if not listing:
        return watched
    # Groups whose coordinator does not answer are not listed, and are not gone.
    kept = state.groups if silent else {}
    state.groups = dict(sorted((kept | groups.listed).items()))
    return list(state.groups)


def _note(failures: Mapping[int, ApiException], silent: set[int]) -> None:
    for broker, error in failures.items():
        if broker not in silent:
            _logger.info("Broker %d does not answer: %s", broker, error.message)
    silent.update(failures)


def _take_nodes(cluster: Cluster, state: ClusterState) -> None:
    state.cluster_id, fresh_nodes = ask.nodes(cluster, state.nodes)
    state.quorum = ask.quorum(cluster)
    if state.quorum is not None:
        state.controller = state.quorum.leader
        for voter in state.quorum.voters:
            if voter.voter and voter.node_id in fresh_nodes:
                fresh_nodes[voter.node_id].controller = True
    else:
        state.controller = cluster.controller_id
    state.nodes = dict(sorted(fresh_nodes.items()))


def _put_topics(state: ClusterState, found: Mapping[str, ask.FoundTopic]) -> None:
    fresh: dict[str, TopicState] = {}
    same = len(found) == len(state.topics)
    for name in sorted(found):
        new, topic = found[name], state.topics.get(name)
        topic_id = _spelled(new.topic_id)
        if topic is None or topic.topic_id != topic_id:
            topic = TopicState(name, topic_id, new.internal)
        same = same and topic.leaders == new.leaders
        topic.leaders, topic.replicas, topic.isr = new.leaders, new.replicas, new.isr
        fresh[name] = topic
    state.set_topics(fresh)
    if not same:
        state.questions.clear()


def _spelled(topic_id: bytes) -> str:
    """As str(UUID) spells it, which takes five times as long."""
    digits = bytes(topic_id).hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _take_offsets(cluster: Cluster, state: ClusterState, this: Round, silent: set[int]) -> None:
    """Ends, starts, sizes and policies, of all brokers at once."""
    work = cluster.at_once()
    work.failures.update(dict.fromkeys(silent, _SILENT))
    questions = _questions(state, LATEST)
    asked = set(questions.requests)
    ends = _blank(state)
    ask.offsets(work, questions, ends)
    starts = None
    if this.due(_STARTS_EACH):
        starts = _blank(state)
        ask.offsets(work, _questions(state, EARLIEST), starts)
    sizes, disk = None, dict[str, int]()
    if this.due(_SIZES_EACH):
        sizes = _blank(state)
        ask.directories(work, [each for each in state.nodes.values() if not each.fenced], sizes, disk)
    if this.due(_POLICIES_EACH):
        ask.policies(work, state.topics)
    _note(work.run(), silent)
    if asked and silent >= asked:
        cluster.forget_locations()
        cluster.refresh()
    for topic in state.topics.values():
        _put_ends(topic, ends[topic.name], this.moment_s)
        if starts is not None:
            column, _ = _filled(starts[topic.name], topic.starts)
            if column != topic.starts:
                topic.starts = column
    if sizes is not None:
        _put_sizes(state, sizes, disk, this)


def _questions(state: ClusterState, moment: int) -> ask.OffsetQuestions:
    """The requests for an offset of each partition, made once for the present topics and leaders."""
    questions = state.questions.get(moment)
    if questions is None:
        questions = state.questions[moment] = ask.OffsetQuestions.of(state.topics.values(), moment)
    return questions


def _blank(state: ClusterState) -> dict[str, array[int]]:
    """A column for the partitions of each topic, in which everything is missing."""
    blank = array("q", (_MISSING,))
    return {topic.name: blank * topic.partitions for topic in state.topics.values()}


def _filled(fresh: array[int], old: array[int]) -> tuple[array[int], frozenset[int]]:
    """A column whose missing numbers are the ones of before, and which these are."""
    if _MISSING not in fresh:
        return fresh, frozenset()
    missing = [number for number, value in enumerate(fresh) if value == _MISSING]
    for number in missing:
        fresh[number] = old[number] if number < len(old) else UNKNOWN
    return fresh, frozenset(missing)


def _put_ends(topic: TopicState, answered: array[int], moment_s: float) -> None:
    old = topic.ends
    fresh, topic.stale = _filled(answered, old)
    written = 0
    if fresh == old:
        # Most topics of a large cluster: keep one column for all moments at which nothing was written.
        fresh = old
    else:
        written = sum(
            max(new - before, 0) for before, new in zip(old, fresh, strict=False) if before >= 0 and new >= 0
        )
    topic.ends = fresh
    past = topic.past_ends
    if past:
        since_s = moment_s - past[-1][0]
        topic.rate = written / since_s if since_s > 0 else 0.0
    if len(past) > 1 and (
        past[-1][0] - past[-2][0] < SAMPLE_EACH_S or (past[-1][1] is fresh and past[-2][1] is fresh)
    ):
        # Samples are some time apart; of a time in which nothing was written, the first and the last one do.
        past.pop()
    past.append((moment_s, fresh))
    if written:
        topic.written_s = moment_s
        if topic.history is None:
            topic.history = History()
    if topic.history is not None:
        topic.history.put(moment_s, topic.rate)


def _put_sizes(
    state: ClusterState, columns: Mapping[str, array[int]], disk: Mapping[str, int], this: Round
) -> None:
    for topic in state.topics.values():
        before = topic.size
        known = bool(topic.sizes)
        column, _ = _filled(columns[topic.name], topic.sizes)
        if column != topic.sizes:
            topic.sizes = column
        topic.disk = disk.get(topic.name, topic.disk)
        if known and state.taken_s and this.moment_s > state.sizes_s > 0:
            topic.byte_rate = max(topic.size - before, 0) / (this.moment_s - state.sizes_s)
            state.has_byte_rates = True
    state.disk = sum(topic.disk for topic in state.topics.values())
    state.sizes_s = this.moment_s


def _add_up(state: ClusterState, moment_s: float) -> None:
    state.records_per_s = sum(topic.rate for topic in state.topics.values() if not topic.internal)
    state.bytes_per_s = sum(topic.byte_rate for topic in state.topics.values() if not topic.internal)
    state.rate.put(moment_s, state.records_per_s)
    if state.has_byte_rates:
        state.byte_rate.put(moment_s, state.bytes_per_s)
