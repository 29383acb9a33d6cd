"""Brokers that register, crash, return, shut down and are forgotten, and what it means for their partitions."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.brokers import (
    BrokerControlState,
    heartbeat,
    register_broker,
    register_controller,
    unregister_broker,
)
from ottla.controller.topics import create_topics
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import NO_LEADER, LeaderRecoveryState, MetadataImage, PartitionRegistration
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.messages import (
    BrokerHeartbeatRequest,
    ControllerRegistrationRequest,
    CreateTopicsRequest,
    UnregisterBrokerRequest,
)
from unit.controller.controller_harness import image_with_brokers, registration, replayed, settings_with, uuid

SETTINGS = settings_with()


def with_topic(image: MetadataImage, partitions: int = 1, factor: int = 1) -> MetadataImage:
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=partitions, replication_factor=factor)
    request = CreateTopicsRequest(topics=[topic])
    return replayed(image, create_topics(image, request, SETTINGS, VirtualClock()).records)


def partition(image: MetadataImage, index: int = 0) -> PartitionRegistration:
    return image.topics.by_name["t"].partitions[index]


def register(
    image: MetadataImage, request: Any, *, session_is_alive: bool = False
) -> tuple[MetadataImage, int]:
    result = register_broker(
        image, request, SETTINGS, next_offset=image.offset + 1, session_is_alive=session_is_alive
    )
    return replayed(image, result.records), result.response.broker_epoch


def beat(image: MetadataImage, broker_id: int = 1, **wishes: Any) -> tuple[MetadataImage, Any]:
    wishes.setdefault("current_metadata_offset", image.offset)
    request = BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=image.brokers[broker_id].epoch, **wishes
    )
    _, result = heartbeat(image, request, SETTINGS, registration_offset=50, others_know_shutdown=True)
    return replayed(image, result.records), result.response


def test_a_new_broker_is_registered_fenced_with_the_offset_as_its_epoch() -> None:
    image, epoch = register(image_with_brokers(), registration())
    broker = image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.incarnation_id) == (epoch, True, uuid(1))
    assert broker.listeners["PLAINTEXT"].port == 9092
    assert broker.features["metadata.version"] == (7, 30)
    assert broker.directories == (uuid(10_010),)


def test_the_same_incarnation_may_amend_its_registration() -> None:
    image, epoch = register(image_with_brokers(), registration())
    request = registration()
    request.rack = "r2"
    image, again = register(image, request, session_is_alive=True)
    assert again == epoch
    assert image.brokers[1].rack == "r2"


def _with(**changes: Any) -> Any:
    request = registration()
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def _without_feature(name: str) -> Any:
    request = registration()
    request.features = [feature for feature in request.features if feature.name != name]
    return request


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (_with(cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (_with(log_dirs=[]), ErrorCode.INVALID_REGISTRATION),
        (_with(log_dirs=[uuid(5), uuid(5)]), ErrorCode.INVALID_REGISTRATION),
        (_with(log_dirs=[bytes(15) + b"\x02"]), ErrorCode.INVALID_REGISTRATION),
        (_with(log_dirs=[uuid(10_020)]), ErrorCode.INVALID_REGISTRATION),
        (_with(is_migrating_zk_broker=True), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (_without_feature("metadata.version"), ErrorCode.INVALID_REGISTRATION),
        (_without_feature("group.version"), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_registrations_that_are_refused(request_: Any, code: ErrorCode) -> None:
    with pytest.raises(ApiException) as refused:
        register(image_with_brokers(2), request_)
    assert refused.value.code is code


def test_a_living_brokers_id_cannot_be_taken() -> None:
    image = image_with_brokers(1)
    with pytest.raises(ApiException) as refused:
        register(image, registration(incarnation=99), session_is_alive=True)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_fenced_broker_is_let_in_once_it_has_caught_up() -> None:
    image, _ = register(image_with_brokers(), registration())
    behind, answer = beat(image, current_metadata_offset=49)
    assert (answer.is_caught_up, answer.is_fenced) == (False, True)
    assert behind.brokers[1].fenced
    image, answer = beat(behind, current_metadata_offset=50)
    assert (answer.is_caught_up, answer.is_fenced) == (True, False)
    assert not image.brokers[1].fenced


def test_a_heartbeat_of_an_old_epoch_is_refused() -> None:
    image = image_with_brokers(1)
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=1)
    with pytest.raises(ApiException) as refused:
        heartbeat(image, request, SETTINGS, registration_offset=0, others_know_shutdown=True)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_after_a_crash_the_only_broker_leads_again() -> None:
    image = with_topic(image_with_brokers(1))
    image, _ = register(image, registration(incarnation=2))
    lost = partition(image)
    assert (lost.leader, lost.isr, lost.elr, lost.last_known_elr) == (NO_LEADER, (), (), (1,))
    assert (lost.leader_epoch, lost.partition_epoch) == (1, 1)
    image, _ = beat(image, current_metadata_offset=50)
    back = partition(image)
    assert (back.leader, back.isr, back.last_known_elr) == (1, (1,), ())
    assert back.leader_recovery_state == LeaderRecoveryState.RECOVERING
    assert (back.leader_epoch, back.partition_epoch) == (2, 2)


def test_after_a_clean_stop_it_leads_again_as_an_eligible_replica() -> None:
    image = with_topic(image_with_brokers(1))
    epoch = image.brokers[1].epoch
    image, _ = register(image, registration(incarnation=2, previous_epoch=epoch))
    lost = partition(image)
    assert (lost.leader, lost.isr, lost.elr) == (NO_LEADER, (), (1,))
    image, _ = beat(image, current_metadata_offset=50)
    back = partition(image)
    assert (back.leader, back.isr, back.elr) == (1, (1,), ())
    assert back.leader_recovery_state == LeaderRecoveryState.RECOVERED


def test_without_elr_the_last_in_sync_replica_stays_in_the_isr() -> None:
    image = with_topic(image_with_brokers(1, elr=False))
    image, _ = register(image, registration(incarnation=2))
    assert (partition(image).leader, partition(image).isr) == (NO_LEADER, (1,))
    image, _ = beat(image, current_metadata_offset=50)
    assert (partition(image).leader, partition(image).isr) == (1, (1,))


def test_controlled_shutdown_hands_the_partitions_over() -> None:
    image = with_topic(image_with_brokers(1, 2), partitions=4, factor=2)
    image, answer = beat(image, want_shut_down=True)
    assert not answer.should_shut_down
    assert image.brokers[1].in_controlled_shutdown
    for index in range(4):
        assert (partition(image, index).leader, partition(image, index).isr) == (2, (2,))
    image, answer = beat(image, want_shut_down=True)
    assert answer.should_shut_down
    assert image.brokers[1].fenced


def test_a_shutting_down_broker_waits_until_the_others_know() -> None:
    image = with_topic(image_with_brokers(1, 2), partitions=2, factor=2)
    image, _ = beat(image, want_shut_down=True)
    broker = image.brokers[1]
    assert broker.in_controlled_shutdown
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=broker.epoch, want_shut_down=True)
    state, result = heartbeat(image, request, SETTINGS, registration_offset=0, others_know_shutdown=False)
    assert state is BrokerControlState.CONTROLLED_SHUTDOWN
    assert not result.response.should_shut_down
    assert not result.records


def test_a_broker_without_partitions_may_stop_at_once() -> None:
    image, answer = beat(image_with_brokers(1), want_shut_down=True)
    assert answer.should_shut_down
    assert image.brokers[1].fenced


def test_a_broker_may_ask_to_be_fenced() -> None:
    image, answer = beat(with_topic(image_with_brokers(1)), want_fence=True)
    assert answer.is_fenced
    assert image.brokers[1].fenced
    assert partition(image).leader == NO_LEADER


def test_a_failed_directory_takes_only_its_partitions_offline() -> None:
    image = with_topic(image_with_brokers(1))
    (directory,) = image.brokers[1].directories
    image, _ = beat(image, offline_log_dirs=[directory])
    assert partition(image).leader == NO_LEADER
    assert not image.brokers[1].fenced


def test_an_unregistered_broker_is_forgotten() -> None:
    image = with_topic(image_with_brokers(1, 2), partitions=2, factor=2)
    result = unregister_broker(image, UnregisterBrokerRequest(broker_id=1), SETTINGS)
    image = replayed(image, result.records)
    assert set(image.brokers) == {2}
    assert {partition(image, index).isr for index in range(2)} == {(2,)}
    with pytest.raises(ApiException) as refused:
        unregister_broker(image, UnregisterBrokerRequest(broker_id=1), SETTINGS)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_unclean_election_only_where_it_is_allowed() -> None:
    image = with_topic(image_with_brokers(1, 2, elr=False), factor=2)
    leader = partition(image).leader
    other = 3 - leader
    image, _ = beat(image, other, want_fence=True)
    image, _ = beat(image, leader, want_fence=True)
    assert (partition(image).leader, partition(image).isr) == (NO_LEADER, (leader,))
    refused, _ = beat(image, other, current_metadata_offset=50)
    assert partition(refused).leader == NO_LEADER
    allowing = settings_with(unclean_leader_election_enable="true")
    request = BrokerHeartbeatRequest(
        broker_id=other, broker_epoch=image.brokers[other].epoch, current_metadata_offset=50
    )
    _, result = heartbeat(image, request, allowing, registration_offset=50, others_know_shutdown=True)
    elected = partition(replayed(image, result.records))
    assert (elected.leader, elected.isr) == (other, (other,))
    assert elected.leader_recovery_state == LeaderRecoveryState.RECOVERING


def test_controllers_register_too() -> None:
    request = ControllerRegistrationRequest(controller_id=1, incarnation_id=uuid(4))
    request.listeners = [
        ControllerRegistrationRequest.Listener(name="CONTROLLER", host="h", port=9093, security_protocol=0)
    ]
    image = image_with_brokers()
    image = replayed(image, register_controller(image, request).records)
    assert image.controllers[1].incarnation_id == uuid(4)
    assert image.controllers[1].listeners["CONTROLLER"].port == 9093
