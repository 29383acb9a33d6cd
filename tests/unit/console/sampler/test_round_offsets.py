"""Offsets of a round: asked of leaders, put into columns, and kept where no broker answered."""

from __future__ import annotations

from ottla.console.sampler import ask
from ottla.console.sampler.round import Round, _take_offsets
from ottla.console.sampler.state import ClusterState, TopicState
from ottla.errors import ApiException, ErrorCode
from ottla.wire.messages import ListOffsetsRequest, ListOffsetsResponse


class Work:
    """Requests to several leaders."""

    def __init__(self, brokers):
        self.brokers = brokers
        self.failures = {}
        self.asked = []

    def add(self, request, take, leader=None):
        self.asked.append((request, take, leader))

    def run(self):
        for request, take, leader in self.asked:
            try:
                if leader is not None and leader not in self.failures:
                    take(self.brokers.ask(request, leader))
            except ApiException as error:
                self.failures[leader] = error
        return self.failures


class Brokers:
    """Leaders with the ends of their partitions."""

    def __init__(self, ends):
        self.ends = ends
        self.down = set()
        self.failing = set()
        self.requests = []
        self.refreshed = False

    def ask(self, request, leader):
        if not isinstance(request, ListOffsetsRequest):
            raise AssertionError(request)
        self.requests.append((leader, [(each.name, len(each.partitions)) for each in request.topics]))
        if leader in self.down:
            raise ApiException(ErrorCode.NETWORK_EXCEPTION, "gone")
        kind = ListOffsetsResponse
        return kind(
            topics=[
                kind.ListOffsetsTopicResponse(
                    name=each.name,
                    partitions=[
                        kind.ListOffsetsPartitionResponse(
                            partition_index=part.partition_index,
                            error_code=6 if (each.name, part.partition_index) in self.failing else 0,
                            offset=self.ends[each.name][part.partition_index],
                        )
                        for part in each.partitions
                    ],
                )
                for each in request.topics
            ]
        )

    def at_once(self):
        return Work(self)

    def forget_locations(self):
        self.refreshed = True

    def refresh(self):
        pass


def cluster_of(**leaders):
    state = ClusterState("test")
    for name, numbers in leaders.items():
        state.topics[name] = TopicState(name, "id", False, leaders=list(numbers))
    return state


def sample(brokers, state, moment_s, full=False):
    silent = set()
    _take_offsets(brokers, state, Round(1, moment_s, full), silent)
    return silent


def test_ends_rates_and_columns_that_do_not_change():
    brokers = Brokers({"orders": [10, 20], "quiet": [5]})
    state = cluster_of(orders=(1, 2), quiet=(1,))
    sample(brokers, state, 0.0, full=True)
    assert list(state.topics["orders"].ends) == [10, 20] == list(state.topics["orders"].starts)
    brokers.ends["orders"] = [14, 22]
    sample(brokers, state, 2.0)
    assert state.topics["orders"].rate == 3.0
    assert (state.topics["quiet"].rate, state.topics["quiet"].history) == (0.0, None)
    first, second = (ends for _, ends in state.topics["quiet"].past_ends)
    assert first is second


def test_of_a_quiet_time_the_first_and_the_last_sample_are_kept():
    brokers = Brokers({"orders": [10]})
    state = cluster_of(orders=(1,))
    for moment_s in range(0, 300, 15):
        sample(brokers, state, float(moment_s))
    brokers.ends["orders"] = [12]
    sample(brokers, state, 300.0)
    past = state.topics["orders"].past_ends
    assert [(moment_s, list(ends)) for moment_s, ends in past] == [(0.0, [10]), (285.0, [10]), (300.0, [12])]


def test_a_broker_that_is_gone_leaves_the_numbers_of_before_and_marks_them():
    brokers = Brokers({"orders": [10, 20, 30]})
    state = cluster_of(orders=(1, 2, 2))
    sample(brokers, state, 0.0)
    brokers.ends["orders"] = [11, 21, 31]
    brokers.down = {2}
    assert sample(brokers, state, 2.0) == {2}
    topic = state.topics["orders"]
    assert (list(topic.ends), topic.stale) == ([11, 20, 30], {1, 2})
    assert not brokers.refreshed
    brokers.down = {1, 2}
    sample(brokers, state, 4.0)
    assert brokers.refreshed


def test_a_partition_with_an_error_and_one_without_a_leader_stay_unknown():
    brokers = Brokers({"orders": [10, 20, 30]})
    brokers.failing = {("orders", 1)}
    state = cluster_of(orders=(1, 1, -1))
    sample(brokers, state, 0.0)
    topic = state.topics["orders"]
    assert (list(topic.ends), topic.stale) == ([10, -1, -1], {1, 2})


def test_requests_are_made_once_and_bounded(monkeypatch):
    monkeypatch.setattr(ask, "PARTITIONS_PER_REQUEST", 4)
    brokers = Brokers({f"t{number}": [0, 0, 0] for number in range(3)})
    state = cluster_of(**{f"t{number}": (1, 1, 1) for number in range(3)})
    sample(brokers, state, 0.0)
    asked = brokers.requests.copy()
    assert asked == [(1, [("t0", 3), ("t1", 3)]), (1, [("t2", 3)])]
    kept = state.questions.copy()
    sample(brokers, state, 2.0)
    assert brokers.requests == asked * 2 and all(state.questions[each] is kept[each] for each in kept)
