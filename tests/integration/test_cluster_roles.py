"""Clusters whose controllers are nodes of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.cluster_load import Load, check_nothing_lost
from ottla.errors import ErrorCode
from ottla.testing.cluster import FIRST_CONTROLLER_ID, Cluster
from ottla.testing.process import BrokerFailed
from ottla.testing.raw_client import RawClient
from ottla.wire import messages
from ottla.wire.apis import ApiKey

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def two_and_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers and one controller."""
    settings = {
        "offsets.topic.replication.factor": 2,
        "transaction.state.log.replication.factor": 2,
        "transaction.state.log.min.isr": 1,
    }
    with Cluster(
        tmp_path_factory.mktemp("cluster"), 2, controllers=1, settings=settings, racks=["a", "b"]
    ) as cluster:
        yield cluster


def test_brokers_and_a_controller_of_their_own(two_and_one: Cluster, topic: str) -> None:
    cluster = two_and_one
    cluster.wait_for(lambda: cluster.controller_id() == FIRST_CONTROLLER_ID)
    cluster.create_topic(topic, 4, 2)
    load = Load(cluster.bootstrap, topic).start()
    load.wait_for_more(200)
    check_nothing_lost(cluster.bootstrap, load.stop())
    assert load.errors == []
    answer = cluster.ask(messages.DescribeClusterRequest(), 2)
    assert {broker.broker_id: broker.rack for broker in answer.brokers} == {1: "a", 2: "b"}
    assert answer.controller_id in (1, 2)


def test_a_controller_serves_controllers_and_brokers_only(two_and_one: Cluster) -> None:
    controller = two_and_one.plans[FIRST_CONTROLLER_ID].address
    with RawClient(*controller) as client:
        request = messages.ApiVersionsRequest(client_software_name="t", client_software_version="1")
        keys = {api.api_key for api in client.ask(request, 4).api_keys}
    assert {ApiKey.VOTE, ApiKey.FETCH, ApiKey.BROKER_HEARTBEAT, ApiKey.ENVELOPE} <= keys
    assert not keys & {ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.JOIN_GROUP}
    with RawClient(*two_and_one.plans[1].address) as client:
        keys = {api.api_key for api in client.ask(request, 4).api_keys}
    assert {ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.JOIN_GROUP, ApiKey.DESCRIBE_QUORUM} <= keys
    assert not keys & {ApiKey.VOTE, ApiKey.BROKER_HEARTBEAT, ApiKey.ENVELOPE, ApiKey.ALTER_PARTITION}


def test_the_controller_tells_of_the_controllers(two_and_one: Cluster) -> None:
    with RawClient(*two_and_one.plans[FIRST_CONTROLLER_ID].address) as client:
        answer = client.ask(messages.DescribeClusterRequest(endpoint_type=2), 1)
        assert answer.error_code == ErrorCode.NONE
        assert [broker.broker_id for broker in answer.brokers] == [FIRST_CONTROLLER_ID]
        assert answer.controller_id == FIRST_CONTROLLER_ID


def test_brokers_go_on_without_a_controller_and_find_it_again(two_and_one: Cluster, topic: str) -> None:
    cluster = two_and_one
    cluster.create_topic(topic, 2, 2)
    load = Load(cluster.bootstrap, topic).start()
    load.wait_for_more(100)
    cluster.kill(FIRST_CONTROLLER_ID)
    # Nobody decides any more, but those who lead go on leading.
    load.wait_for_more(200)
    cluster.start_node(FIRST_CONTROLLER_ID)
    cluster.create_topic(f"{topic}-after", 1, 2)
    load.wait_for_more(100)
    check_nothing_lost(cluster.bootstrap, load.stop())
    assert load.errors == []


def test_three_controllers_and_three_brokers(tmp_path_factory: pytest.TempPathFactory, topic: str) -> None:
    with Cluster(tmp_path_factory.mktemp("cluster"), 3, controllers=3) as cluster:
        cluster.create_topic(topic, 6)
        load = Load(cluster.bootstrap, topic).start()
        load.wait_for_more(100)
        controller = cluster.wait_for(cluster.controller_id)
        assert controller is not None and controller in cluster.controller_ids
        cluster.kill(controller)
        load.wait_for_more(100)
        cluster.wait_for(lambda: cluster.controller_id() not in (None, controller))
        leader = cluster.leader_of(topic)
        assert leader is not None
        cluster.kill(leader)
        load.wait_for_more(200)
        cluster.start_node(controller)
        cluster.start_node(leader)
        cluster.wait_in_sync(topic, 6)
        check_nothing_lost(cluster.bootstrap, load.stop())
        assert load.errors == []


def test_a_node_among_others_does_not_make_up_the_clusters_id(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for plan in cluster.plans.values():
        plan.write_file()
    with pytest.raises(BrokerFailed, match="not formatted: run `ottla storage format"):
        cluster.start_node(1)


def test_a_node_without_its_quorum_says_what_it_waits_for_and_gives_up(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, settings={"initial.broker.registration.timeout.ms": 9000})
    cluster.prepare()
    with pytest.raises(BrokerFailed) as failed:
        cluster.start_node(1)
    assert re.search(
        r"Waiting for the active controller to register this broker.* \(\d+ s so far\)", str(failed.value)
    )
    assert re.search(r"timed out after \d+ s waiting for the active controller", str(failed.value))
