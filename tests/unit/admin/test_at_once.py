"""Requests to several brokers at the same time, against brokers made of canned responses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from ottla.admin.cluster import Cluster
from ottla.admin.connection import ConnectionFailed
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.messages import (
    DescribeLogDirsRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    MetadataResponse,
)
from unit.admin.test_cluster_client import Respond, broker, cluster_at


@contextmanager
def brokers(*answer: Respond, **settings: object) -> Iterator[Cluster]:
    """A client of brokers with the ids 0, 1, ... with these answers to ListGroups."""
    ports: list[int] = []

    def metadata() -> MetadataResponse:
        node = MetadataResponse.MetadataResponseBroker
        return MetadataResponse(
            brokers=[
                node(node_id=number, host="127.0.0.1", port=port, rack=None)
                for number, port in enumerate(ports)
            ]
        )

    def respond(own: Respond) -> Respond:
        return lambda key, version: metadata() if key == ApiKey.METADATA else own(key, version)

    with ExitStack() as stack:
        for own in answer:
            ports.append(stack.enter_context(broker(respond(own), connections=2)))
        cluster = cluster_at(ports[-1], **settings)
        try:
            yield cluster
        finally:
            cluster.close()


def groups(error_code: int = 0) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error_code)


def test_all_brokers_work_before_the_first_response_is_read() -> None:
    other_is_asked = threading.Event()

    def first(key: int, version: int) -> object:
        return groups(1) if other_is_asked.wait(10) else None

    def second(key: int, version: int) -> object:
        other_is_asked.set()
        return groups(2)

    with brokers(first, second) as cluster:
        work, taken = cluster.at_once(), []
        for node_id in (0, 1):
            for _ in range(3):
                work.add(ListGroupsRequest(), lambda answer: taken.append(answer.error_code), node_id)
        assert work.run() == {}
    assert sorted(taken) == [1, 1, 1, 2, 2, 2]


def test_what_takes_a_response_asks_on() -> None:
    with brokers(lambda key, version: groups(1), lambda key, version: groups(2)) as cluster:
        work, taken = cluster.at_once(), []

        def take(answer: ListGroupsResponse) -> None:
            taken.append(answer.error_code)
            if len(taken) < 5:
                work.add(ListGroupsRequest(), take, len(taken) % 2)

        work.add(ListGroupsRequest(), take, 0)
        assert work.run() == {}
    assert taken == [1, 2, 1, 2, 1]


def test_a_broker_that_fails_costs_only_its_own_responses() -> None:
    with brokers(lambda key, version: None, lambda key, version: groups(2)) as cluster:
        work, own, anywhere = cluster.at_once(), [], []
        work.add(ListGroupsRequest(), own.append, 0)
        for _ in range(4):
            work.add(ListGroupsRequest(), anywhere.append)
        work.add(ListGroupsRequest(), own.append, 1)
        failures = work.run()
        work.add(ListGroupsRequest(), own.append, 0)
        assert work.run() is failures
    assert list(failures) == [0] and isinstance(failures[0], ConnectionFailed)
    assert (len(own), len(anywhere)) == (1, 4)


def test_a_restarted_broker_is_asked_again() -> None:
    answers: list[object] = [None, groups(7)]
    with brokers(lambda key, version: answers.pop(0)) as cluster:
        work, taken = cluster.at_once(), []
        work.add(ListGroupsRequest(), taken.append, 0)
        assert work.run() == {}
        assert [each.error_code for each in taken] == [7]


def test_a_broker_that_does_not_answer_in_time_is_given_up() -> None:
    ended = threading.Event()

    def silent(key: int, version: int) -> object:
        return ended.wait(30) and None

    with brokers(silent, lambda key, version: groups(2), request_timeout_s=0.2) as cluster:
        work, taken = cluster.at_once(), []
        for node_id in (0, 1):
            work.add(ListGroupsRequest(), taken.append, node_id)
        failures = work.run()
        ended.set()
        assert list(failures) == [0] and failures[0].code == ErrorCode.NETWORK_EXCEPTION
        assert [each.error_code for each in taken] == [2]


def test_a_request_that_no_broker_knows_is_an_error() -> None:
    with brokers(lambda key, version: groups(), lambda key, version: groups()) as cluster:
        work = cluster.at_once()
        work.add(DescribeLogDirsRequest(topics=None), lambda answer: None)
        with pytest.raises(ApiException, match="does not support DescribeLogDirs"):
            work.run()
        work = cluster.at_once()
        work.add(DescribeLogDirsRequest(topics=None), lambda answer: None, 1)
        work.add(ListGroupsRequest(), lambda answer: None, 0)
        assert [(each, error.code) for each, error in work.run().items()] == [
            (1, ErrorCode.UNSUPPORTED_VERSION)
        ]
