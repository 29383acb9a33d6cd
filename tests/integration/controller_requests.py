"""Requests that the active controller answers, for tests that ask every API in every version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire import messages
from ottla.wire.apis import ApiKey


def _elect_leaders(asked: Any) -> Any:
    request = messages.ElectLeadersRequest
    return request(
        topic_partitions=[request.TopicPartitions(topic=asked.name, partitions=[0])], timeout_ms=1000
    )


def _alter_reassignments(asked: Any) -> Any:
    request = messages.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=[1])
    return request(topics=[request.ReassignableTopic(name=asked.name, partitions=[partition])])


def _list_reassignments(asked: Any) -> Any:
    request = messages.ListPartitionReassignmentsRequest
    topic = request.ListPartitionReassignmentsTopics(name=asked.name, partition_indexes=[0])
    return request(topics=[topic])


def _add_voter(asked: Any) -> Any:
    request = messages.AddRaftVoterRequest
    listener = request.Listener(name="CONTROLLER", host="localhost", port=1)
    return request(
        cluster_id=None,
        timeout_ms=1000,
        voter_id=77,
        voter_directory_id=bytes(15) + b"\x77",
        listeners=[listener],
    )


def _remove_voter(asked: Any) -> Any:
    return messages.RemoveRaftVoterRequest(
        cluster_id=None, voter_id=77, voter_directory_id=bytes(15) + b"\x77"
    )


CONTROLLER_REQUESTS: dict[int, Callable[[Any], Any]] = {
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_reassignments,
    ApiKey.ADD_RAFT_VOTER: _add_voter,
    ApiKey.REMOVE_RAFT_VOTER: _remove_voter,
}
"""By API: what brokers pass on."""


def _alter_partition(asked: Any) -> Any:
    request = messages.AlterPartitionRequest
    partition = request.PartitionData(partition_index=0, leader_epoch=0, partition_epoch=0)
    if asked.version >= 3:
        partition.new_isr_with_epochs = [request.BrokerState(broker_id=1)]
    else:
        partition.new_isr = [1]
    topic = request.TopicData(topic_id=asked.topic_id, partitions=[partition])
    return request(broker_id=1, broker_epoch=0, topics=[topic])


def _register_broker(asked: Any) -> Any:
    return messages.BrokerRegistrationRequest(broker_id=9, cluster_id="another", rack=None)


def _heartbeat(asked: Any) -> Any:
    return messages.BrokerHeartbeatRequest(broker_id=9, broker_epoch=5, current_metadata_offset=0)


def _register_controller(asked: Any) -> Any:
    return messages.ControllerRegistrationRequest(controller_id=77, incarnation_id=bytes(range(16)))


def _assign(asked: Any) -> Any:
    return messages.AssignReplicasToDirsRequest(broker_id=9, broker_epoch=5)


def _allocate(asked: Any) -> Any:
    return messages.AllocateProducerIdsRequest(broker_id=9, broker_epoch=5)


NODE_REQUESTS: dict[int, Callable[[Any], Any]] = {
    ApiKey.ALTER_PARTITION: _alter_partition,
    ApiKey.BROKER_REGISTRATION: _register_broker,
    ApiKey.BROKER_HEARTBEAT: _heartbeat,
    ApiKey.CONTROLLER_REGISTRATION: _register_controller,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _assign,
    ApiKey.ALLOCATE_PRODUCER_IDS: _allocate,
}
"""By API: what only other nodes ask, on the controllers' listeners; here by a broker that is not registered."""
