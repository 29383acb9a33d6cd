"""Nobody poses as a node: neither a client with every right, nor another node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.errors import ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.testing.raw_client import RawClient
from ottla.wire import messages
from security.secured_node import SecuredNode

pytestmark = pytest.mark.slow

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    made = SecuredNode(tmp_path_factory.mktemp("identity"), {"ottla.node.principals": "7=User:CN=node7"})
    with made.broker:
        admin = AdminClient(made.client())
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        producer = Producer(made.client())
        producer.produce("t", b"one")
        assert producer.flush(60) == 0
        yield made
        assert "Traceback" not in made.broker.log, made.broker.log


def fetch_as(client: RawClient, node_id: int) -> Any:
    """The error of a follower's Fetch."""
    request = messages.FetchRequest
    partition = request.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
    asked = request(
        replica_id=BrokerId(node_id),
        max_wait_ms=0,
        max_bytes=1000,
        topics=[request.FetchTopic(topic=TopicName("t"), partitions=[partition])],
    )
    answer = client.ask(asked, 12)
    return answer.responses[0].partitions[0] if answer.responses else answer


def node_requests(node_id: int) -> list[tuple[Any, int]]:
    """A request of each API that carries the id of its sender, with the version to send it in."""
    metadata = TopicName("__cluster_metadata")
    vote, begin, end = messages.VoteRequest, messages.BeginQuorumEpochRequest, messages.EndQuorumEpochRequest
    sender = BrokerId(node_id)
    vote_part = vote.PartitionData(replica_id=sender)
    begin_part, end_part = begin.PartitionData(leader_id=sender), end.PartitionData(leader_id=sender)
    return [
        (vote(topics=[vote.TopicData(topic_name=metadata, partitions=[vote_part])]), 2),
        (begin(topics=[begin.TopicData(topic_name=metadata, partitions=[begin_part])]), 1),
        (end(topics=[end.TopicData(topic_name=metadata, partitions=[end_part])]), 1),
        (messages.FetchSnapshotRequest(replica_id=sender), 1),
        (messages.UpdateRaftVoterRequest(voter_id=sender), 0),
        (messages.BrokerRegistrationRequest(broker_id=sender), 4),
        (messages.BrokerHeartbeatRequest(broker_id=sender), 1),
        (messages.AlterPartitionRequest(broker_id=sender), 3),
        (messages.AssignReplicasToDirsRequest(broker_id=sender), 0),
        (messages.AllocateProducerIdsRequest(broker_id=sender), 0),
        (messages.ControllerRegistrationRequest(controller_id=sender), 0),
        (messages.FetchRequest(replica_state=messages.FetchRequest.ReplicaState(replica_id=sender)), 17),
    ]


def codes(client: RawClient, node_id: int) -> dict[str, int]:
    return {
        type(request).__name__: client.ask(request, version).error_code
        for request, version in node_requests(node_id)
    }


def test_a_node_may_not_send_the_requests_of_another_node(node: SecuredNode) -> None:
    with node.certified("CONTROLLER", "admin", node_id=2) as client:
        assert set(codes(client, 1).values()) == {DENIED}
    with node.certified("INTERNAL", "admin", node_id=2) as client:
        assert fetch_as(client, 1).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert fetch_as(client, 2).error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_node_sends_its_own_requests(node: SecuredNode) -> None:
    with node.certified("CONTROLLER", "admin", node_id=1) as client:
        assert DENIED not in codes(client, 1).values()


def test_an_id_that_belongs_to_a_principal_is_refused_to_everyone_else(node: SecuredNode) -> None:
    """Without a certificate that names a node, CLUSTER_ACTION decides, as in Kafka; 7 belongs to CN=node7."""
    with node.certified("CONTROLLER", "admin") as client:
        assert set(codes(client, 7).values()) == {DENIED}
        assert DENIED not in codes(client, 3).values()


def test_a_client_listener_serves_no_follower_even_to_a_super_user(node: SecuredNode) -> None:
    with node.certified("CERTIFICATES", "admin", node_id=1) as client:
        assert fetch_as(client, 1).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert fetch_as(client, -1).error_code == ErrorCode.NONE
        state = messages.ReadShareGroupStateRequest
        part = state.PartitionData(partition=0)
        asked = state(group_id="g", topics=[state.ReadStateData(topic_id=bytes(16), partitions=[part])])
        assert client.ask(asked, 0).results[0].partitions[0].error_code == DENIED
    assert "is Denied to act as node 1" in node.broker.log


def test_raft_requests_close_the_connection_on_a_broker_listener(node: SecuredNode) -> None:
    for listener in ("CERTIFICATES", "INTERNAL"):
        for request, version in node_requests(1)[:-1]:
            with node.certified(listener, "admin", node_id=1) as client:
                client.send(request, version)
                assert client.closed_by_broker()


def test_required_refuses_who_is_no_node(tmp_path: Any) -> None:
    made = SecuredNode(tmp_path, {"ottla.node.identity": "required"})
    with made.broker, made.certified("CONTROLLER", "admin") as client:
        assert set(codes(client, 3).values()) == {DENIED}
        assert set(codes(client, -1).values()) == {DENIED}
