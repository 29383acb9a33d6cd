"""One round of the sampler: asks the brokers, and writes what they say into the state. It blocks: a thread runs it."""

from __future__ import annotations

import logging
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.admin.configs import ask_configs
from ottla.admin.connection import ConnectionFailed
from ottla.admin.groups import CLASSIC, CONSUMER, Group, describe_groups, describe_groups_on
from ottla.admin.partitions import EARLIEST, LATEST
from ottla.console.sampler import ask, lag
from ottla.console.sampler.rings import History
from ottla.console.sampler.samples import UNKNOWN
from ottla.console.sampler.state import SAMPLE_EACH_S, ClusterState, GroupState, TopicState
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import ConfigResourceType

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
_TOPICS_PER_REQUEST: Final = 500
_GROUPS_PER_REQUEST: Final = 100
_LISTS_TYPES: Final = 5
"""The first version of ListGroups that tells the types of groups."""
_MISSING: Final = -(1 << 62)
"""Stands in a column for what no broker has answered."""


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
    if this.due(_NAMES_EACH):
        _take_names(cluster, state)
    silent: set[int] = set()
    _take_offsets(cluster, state, this, silent)
    if this.due(_SIZES_EACH):
        _take_sizes(cluster, state, silent, this)
    if this.due(_POLICIES_EACH):
        _take_policies(cluster, state)
    _take_groups(cluster, state, this, silent)
    for node in state.nodes.values():
        node.answers = node.node_id not in silent
        if node.answers:
            node.silent_since_s = None
        elif node.silent_since_s is None:
            node.silent_since_s = this.moment_s
    _add_up(state, this.moment_s)


def _take_names(cluster: Cluster, state: ClusterState) -> None:
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
    found = ask.topics(cluster)
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
    ends, asked = _ask_offsets(cluster, state, LATEST, silent)
    starts = _ask_offsets(cluster, state, EARLIEST, silent)[0] if this.due(_STARTS_EACH) else None
    if asked and silent == asked:
        cluster.forget_locations()
        cluster.refresh()
    for topic in state.topics.values():
        _put_ends(topic, ends[topic.name], this.moment_s)
        if starts is not None:
            column, _ = _filled(starts[topic.name], topic.starts)
            if column != topic.starts:
                topic.starts = column


def _ask_offsets(
    cluster: Cluster, state: ClusterState, moment: int, silent: set[int]
) -> tuple[dict[str, array[int]], set[int]]:
    """A column of offsets for each topic, and the leaders that were to be asked."""
    questions = state.questions.get(moment)
    if questions is None:
        questions = state.questions[moment] = ask.OffsetQuestions.of(state.topics.values(), moment)
    columns = _blank(state)
    ask.offsets(cluster, questions, columns, silent)
    return columns, set(questions.requests)


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


def _take_sizes(cluster: Cluster, state: ClusterState, silent: set[int], this: Round) -> None:
    columns = _blank(state)
    disk: dict[str, int] = {}
    for node in state.nodes.values():
        if node.node_id in silent or node.fenced:
            continue
        try:
            node.directories = ask.directories(cluster, node.node_id, columns, disk)
        except ApiException as error:
            _logger.info("Broker %d does not answer DescribeLogDirs: %s", node.node_id, error.message)
            if not cluster.nodes().get(node.node_id):
                silent.add(node.node_id)
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


def _take_policies(cluster: Cluster, state: ClusterState) -> None:
    names = list(state.topics)
    for start in range(0, len(names), _TOPICS_PER_REQUEST):
        chunk = names[start : start + _TOPICS_PER_REQUEST]
        wanted = {(ConfigResourceType.TOPIC, name): ["cleanup.policy"] for name in chunk}
        try:
            answers = ask_configs(cluster, wanted)
        except ApiException as error:
            _logger.info("The cluster does not show settings of topics: %s", error.message)
            return
        for _, answer in answers:
            for result in answer.results:
                policy = next(
                    (each.value or "" for each in result.configs if each.name == "cleanup.policy"), ""
                )
                if result.resource_name in state.topics:
                    state.topics[result.resource_name].compacted = "compact" in policy


def _take_groups(cluster: Cluster, state: ClusterState, this: Round, silent: set[int]) -> None:
    if this.due(_GROUPS_EACH):
        fresh: dict[str, GroupState] = {}
        for each in ask.groups(cluster, silent):
            group = state.groups.get(each.group_id)
            if group is None:
                group = GroupState(each.group_id, each.type, each.protocol, each.state, seen_s=this.moment_s)
            group.kind, group.protocol, group.state = each.type, each.protocol, each.state
            fresh[each.group_id] = group
        if silent:
            # Groups whose coordinator does not answer are not listed, and are not gone.
            fresh = dict(sorted((state.groups | fresh).items()))
        state.groups = fresh
        wanted = list(fresh)
    else:
        wanted = [name for name in this.watched_groups if name in state.groups]
    readers = [
        name
        for name in wanted
        if state.groups[name].kind in (CLASSIC, CONSUMER, "Streams")
        and state.groups[name].protocol in ("", "consumer", "streams")
    ]
    by_coordinator = cluster.coordinators(readers) if readers else {}
    for name, offsets in ask.committed(cluster, by_coordinator, silent).items():
        group = state.groups[name]
        group.committed = dict(sorted(offsets.items()))
        group.committed_s = this.moment_s
    for broker, names in by_coordinator.items():
        for kind in (CLASSIC, CONSUMER):
            _describe(
                cluster, state, broker, [each for each in names if state.groups[each].kind == kind], silent
            )
    # Of a large cluster, most rounds only look at the groups on the screen.
    for name in wanted:
        lag.note(state, state.groups[name], this.moment_s)
    if wanted:
        lag.by_topic(state)


def _describe(cluster: Cluster, state: ClusterState, broker: int, names: list[str], silent: set[int]) -> None:
    """Describe groups of one kind on their coordinator, or wherever they are if it is not that any more."""
    if not names or broker in silent:
        return
    # Brokers that do not list types call all groups classic.
    types = (cluster.version_for(ApiKey.LIST_GROUPS, broker) or 0) >= _LISTS_TYPES
    classic = types and state.groups[names[0]].kind == CLASSIC
    for start in range(0, len(names), _GROUPS_PER_REQUEST):
        some = names[start : start + _GROUPS_PER_REQUEST]
        try:
            try:
                found = describe_groups_on(cluster, broker, some, classic=classic)
            except ConnectionFailed:
                raise
            except ApiException:
                found = describe_groups(cluster, some)
        except ConnectionFailed as error:
            _logger.info("Groups are not described: %s", error.message)
            return
        for name, described in found.items():
            if isinstance(described, Group):
                group = state.groups[name]
                group.described, group.members, group.state = (
                    described,
                    len(described.members),
                    described.state,
                )


def _add_up(state: ClusterState, moment_s: float) -> None:
    state.records_per_s = sum(topic.rate for topic in state.topics.values() if not topic.internal)
    state.bytes_per_s = sum(topic.byte_rate for topic in state.topics.values() if not topic.internal)
    state.rate.put(moment_s, state.records_per_s)
    if state.has_byte_rates:
        state.byte_rate.put(moment_s, state.bytes_per_s)
