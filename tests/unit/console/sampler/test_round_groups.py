"""Groups of a round: their coordinators list them, and are asked about them at once."""

from __future__ import annotations

from ottla.console.sampler.groups import GroupQuestions
from ottla.console.sampler.samples import UNKNOWN
from ottla.console.sampler.state import ClusterState
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)


class Brokers:
    """Coordinators of groups: broker, type, protocol and committed offset by name."""

    def __init__(self, **groups):
        self.groups = groups
        self.asked = []
        self.down = set()
        self.looked_up = []
        self.work = []
        self.failures = {}

    def version_for(self, api_key, broker=None):
        return {ApiKey.OFFSET_FETCH: 9, ApiKey.LIST_GROUPS: 5}.get(api_key, 0)

    def nodes(self):
        return {1: "first", 2: "second"}

    def coordinators(self, names):
        self.looked_up += names
        found = {}
        for name in names:
            found.setdefault(self.groups[name][0], []).append(name)
        return found

    def add(self, request, take, broker, max_version=None):
        self.work.append((request, take, broker))

    def run(self):
        while self.work:
            request, take, broker = self.work.pop(0)
            if broker in self.down:
                self.failures[broker] = ApiException(ErrorCode.NETWORK_EXCEPTION, "gone")
                continue
            self.asked.append((type(request).__name__, broker))
            take(self.answer(request, broker))

    def answer(self, request, broker):
        if isinstance(request, ListGroupsRequest):
            kind = ListGroupsResponse.ListedGroup
            return ListGroupsResponse(
                groups=[
                    kind(group_id=name, group_type=each[1], protocol_type=each[2], group_state="Stable")
                    for name, each in self.groups.items()
                    if each[0] == broker
                ]
            )
        if isinstance(request, OffsetFetchRequest):
            return OffsetFetchResponse(
                groups=[self.offsets(each.group_id, broker) for each in request.groups]
            )
        if isinstance(request, ConsumerGroupDescribeRequest):
            new = ConsumerGroupDescribeResponse.DescribedGroup
            return ConsumerGroupDescribeResponse(
                groups=[
                    new(group_id=each, group_state="Assigning", group_epoch=4) for each in request.group_ids
                ]
            )
        assert isinstance(request, DescribeGroupsRequest)
        old = DescribeGroupsResponse.DescribedGroup
        return DescribeGroupsResponse(
            groups=[
                old(group_id=each, group_state="Empty", protocol_type="consumer") for each in request.groups
            ]
        )

    def offsets(self, name, broker):
        kind = OffsetFetchResponse.OffsetFetchResponseGroup
        if self.groups[name][0] != broker:
            return kind(group_id=name, error_code=ErrorCode.NOT_COORDINATOR)
        topic = OffsetFetchResponse.OffsetFetchResponseTopics
        part = OffsetFetchResponse.OffsetFetchResponsePartitions
        offset = self.groups[name][3]
        return kind(
            group_id=name,
            topics=[topic(name="orders", partitions=[part(partition_index=0, committed_offset=offset)])],
        )


def listed(brokers, state):
    questions = GroupQuestions(brokers, brokers, state, 5.0)
    questions.list_all(brokers.nodes())
    brokers.run()
    questions.finish()
    return questions.listed


def test_groups_are_described_by_the_brokers_that_list_them():
    brokers = Brokers(
        old=(1, "classic", "consumer", 10),
        new=(2, "consumer", "consumer", 20),
        tasks=(2, "classic", "connect", 0),
    )
    state = ClusterState("test")
    found = state.groups = listed(brokers, state)
    assert {name: (each.coordinator, each.kind, each.state) for name, each in found.items()} == {
        "old": (1, "Classic", "Empty"),
        "new": (2, "Consumer", "Assigning"),
        "tasks": (2, "Classic", "Stable"),
    }
    assert found["old"].committed == {("orders", 0): 10} and found["new"].described.epoch == 4
    assert not found["tasks"].committed and found["tasks"].described is None
    assert sorted(brokers.asked) == [
        ("ConsumerGroupDescribeRequest", 2),
        ("DescribeGroupsRequest", 1),
        ("ListGroupsRequest", 1),
        ("ListGroupsRequest", 2),
        ("OffsetFetchRequest", 1),
        ("OffsetFetchRequest", 2),
    ]
    assert not brokers.looked_up


def test_a_group_on_the_screen_follows_its_coordinator():
    brokers = Brokers(app=(1, "consumer", "consumer", 10))
    state = ClusterState("test")
    state.groups = listed(brokers, state)

    def look():
        questions = GroupQuestions(brokers, brokers, state, 6.0)
        questions.ask(["app"])
        brokers.run()
        questions.finish()
        return state.groups["app"]

    brokers.groups["app"] = (2, "consumer", "consumer", 11)
    group = look()
    assert (group.coordinator, group.committed) == (UNKNOWN, {("orders", 0): 10})
    assert not brokers.looked_up
    group = look()
    assert (group.coordinator, group.committed) == (2, {("orders", 0): 11})
    assert brokers.looked_up == ["app"]
    brokers.down = {2}
    assert look().coordinator == UNKNOWN
