"""The groups of a round: their coordinators list them, and are asked for offsets and members as soon as they have.

A broker lists the groups that it coordinates, so that nobody has to be asked where they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.admin.connection import ConnectionFailed
from ottla.admin.groups import (
    CLASSIC,
    CONSUMER,
    Group,
    classic_groups_in,
    committed_offsets,
    consumer_groups_in,
    describe_groups,
    list_groups_on,
)
from ottla.console.sampler.samples import UNKNOWN
from ottla.console.sampler.state import GroupState
from ottla.errors import ApiException
from ottla.ids import GroupId
from ottla.wire.apis import ApiKey
from ottla.wire.messages import (
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
)

if TYPE_CHECKING:
    from ottla.admin.at_once import AtOnce
    from ottla.admin.cluster import Cluster
    from ottla.console.sampler.state import ClusterState
    from ottla.wire.messages import (
        ConsumerGroupDescribeResponse,
        DescribeGroupsResponse,
        ListGroupsResponse,
        OffsetFetchResponse,
    )

_logger = logging.getLogger(__name__)

GROUPS_PER_REQUEST: Final = 100
_TOPICS_BY_NAME: Final = 9
_SEVERAL_GROUPS: Final = 8
_LISTS_TYPES: Final = 5
"""The first version of ListGroups that tells the types of groups."""
_WITH_OFFSETS: Final = (CLASSIC, CONSUMER, "Streams")
_PROTOCOLS: Final = ("", "consumer", "streams")


class GroupQuestions:
    """What one round asks about groups. Requests are added to the work; `finish` asks what has to be asked again."""

    def __init__(self, cluster: Cluster, work: AtOnce, state: ClusterState, moment_s: float) -> None:
        self._cluster = cluster
        self._work = work
        self._state = state
        self._moment_s = moment_s
        self.listed: dict[str, GroupState] = {}
        self._not_listed: list[int] = []
        """Brokers that could not list their groups yet."""
        self._one_by_one: list[GroupId] = []
        """Groups whose coordinator is too old for requests about several groups."""
        self._not_described: list[GroupId] = []

    def list_all(self, brokers: Iterable[int]) -> None:
        """List the groups of brokers, and ask about each of them."""
        for broker in brokers:
            self._work.add(ListGroupsRequest(), partial(self._take_list, broker), broker)

    def ask(self, names: Sequence[str]) -> None:
        """Ask about some groups that are known."""
        by_broker: dict[int, list[GroupState]] = {}
        unknown = []
        for name in names:
            group = self._state.groups[name]
            if group.coordinator == UNKNOWN:
                unknown.append(name)
            else:
                by_broker.setdefault(group.coordinator, []).append(group)
        if unknown:
            for broker, found in self._cluster.coordinators(unknown).items():
                for name in found:
                    group = self._state.groups[name]
                    group.coordinator = broker
                    by_broker.setdefault(broker, []).append(group)
        for broker, groups in by_broker.items():
            try:
                self._ask(broker, groups)
            except ApiException as failure:
                self._work.failures.setdefault(broker, failure)

    def finish(self) -> None:
        """Ask again, one after the other, where a broker was too old, or busy with a change of coordinators."""
        failures = self._work.failures
        for broker in self._not_listed:
            try:
                self._take_list(broker, list_groups_on(self._cluster, broker))
            except ConnectionFailed as failure:
                failures.setdefault(broker, failure)
        if self._not_listed:
            self._work.run()
        try:
            for name in self._one_by_one:
                offsets = committed_offsets(self._cluster, name)
                self._put_offsets(name, {partition: each.offset for partition, each in offsets.items()})
            for some in _chunks(self._not_described):
                self._put_described(describe_groups(self._cluster, some))
        except ConnectionFailed as failure:
            _logger.info("Some groups are not described: %s", failure.message)
        for group in self._state.groups.values() if failures else ():
            if group.coordinator in failures:
                group.coordinator = UNKNOWN

    def _known(self, name: str) -> GroupState | None:
        return self.listed.get(name) or self._state.groups.get(name)

    def _take_list(self, broker: int, answer: ListGroupsResponse) -> None:
        if answer.error_code:
            self._not_listed.append(broker)
            return
        groups = []
        for each in answer.groups:
            kind = each.group_type.capitalize() or CLASSIC
            group = self._state.groups.get(each.group_id)
            if group is None:
                group = GroupState(
                    each.group_id, kind, each.protocol_type, each.group_state, seen_s=self._moment_s
                )
            group.kind, group.protocol, group.state = kind, each.protocol_type, each.group_state
            group.coordinator = broker
            self.listed[each.group_id] = group
            groups.append(group)
        self._ask(broker, groups)

    def _ask(self, broker: int, groups: Sequence[GroupState]) -> None:
        readers = [each for each in groups if each.kind in _WITH_OFFSETS and each.protocol in _PROTOCOLS]
        names = [GroupId(each.group_id) for each in readers]
        version = self._cluster.version_for
        if (version(ApiKey.OFFSET_FETCH, broker) or 0) < _SEVERAL_GROUPS:
            self._one_by_one += names
        else:
            wanted = OffsetFetchRequest.OffsetFetchRequestGroup
            for some in _chunks(names):
                request = OffsetFetchRequest(groups=[wanted(group_id=name, topics=None) for name in some])
                self._work.add(request, self._take_offsets, broker, _TOPICS_BY_NAME)
        # Brokers that do not list types call all groups classic.
        typed = (version(ApiKey.LIST_GROUPS, broker) or 0) >= _LISTS_TYPES
        new = version(ApiKey.CONSUMER_GROUP_DESCRIBE, broker) is not None
        maybe_new = [
            GroupId(each.group_id)
            for each in readers
            if new and (each.kind == CONSUMER or (each.kind == CLASSIC and not typed))
        ]
        for some in _chunks(maybe_new):
            self._work.add(
                ConsumerGroupDescribeRequest(group_ids=some), partial(self._take_consumer, broker), broker
            )
        asked = set(maybe_new)
        self._ask_classic(
            broker,
            [
                GroupId(each.group_id)
                for each in readers
                if each.kind in (CLASSIC, CONSUMER) and each.group_id not in asked
            ],
        )

    def _ask_classic(self, broker: int, names: Sequence[GroupId]) -> None:
        for some in _chunks(names):
            self._work.add(DescribeGroupsRequest(groups=some), partial(self._take_classic, broker), broker)

    def _take_offsets(self, answer: OffsetFetchResponse) -> None:
        for group in answer.groups:
            if group.error_code:
                known = self._known(group.group_id)
                if known is not None:
                    known.coordinator = UNKNOWN
                continue
            self._put_offsets(
                group.group_id,
                {
                    (topic.name, each.partition_index): each.committed_offset
                    for topic in group.topics
                    for each in topic.partitions
                    if not each.error_code and each.committed_offset >= 0
                },
            )

    def _put_offsets(self, name: str, offsets: dict[tuple[str, int], int]) -> None:
        group = self._known(name)
        if group is not None:
            group.committed = dict(sorted(offsets.items()))
            group.committed_s = self._moment_s

    def _take_consumer(self, broker: int, answer: ConsumerGroupDescribeResponse) -> None:
        try:
            found, classic = consumer_groups_in(self._cluster, broker, answer)
        except ApiException:
            self._not_described += [GroupId(each.group_id) for each in answer.groups]
            return
        self._put_described(found)
        self._ask_classic(broker, [GroupId(name) for name in classic])

    def _take_classic(self, broker: int, answer: DescribeGroupsResponse) -> None:
        try:
            found = classic_groups_in(self._cluster, broker, answer)
        except ApiException:
            self._not_described += [GroupId(each.group_id) for each in answer.groups]
            return
        self._put_described(found)

    def _put_described(self, found: dict[str, Group | ApiException]) -> None:
        for name, described in found.items():
            group = self._known(name)
            if group is not None and isinstance(described, Group):
                group.described, group.members = described, len(described.members)
                group.state = described.state


def _chunks(names: Sequence[GroupId]) -> Iterable[list[GroupId]]:
    for start in range(0, len(names), GROUPS_PER_REQUEST):
        yield list(names[start : start + GROUPS_PER_REQUEST])
