"""A leader asks for another in-sync set: what it gets, and by which code it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.alter_partition import alter_partition
from ottla.errors import ApiException, ErrorCode
from ottla.metadata.image import LeaderRecoveryState, MetadataImage
from ottla.wire.messages import AlterPartitionRequest, BrokerRegistrationChangeRecord
from unit.controller.controller_harness import (
    TOPIC_ID,
    changed,
    fenced,
    image_with_brokers,
    replayed,
    set_config,
    settings_with,
    the_partition,
    uuid,
    with_partitions,
)

SETTINGS = settings_with()


def ask(
    image: MetadataImage, isr: list[int], *, broker_id: int = 1, version: int = 3, **fields: Any
) -> tuple[MetadataImage, Any]:
    """Ask for this ISR of partition 0; gives the image after it and the partition's answer."""
    partition = the_partition(image)
    data = AlterPartitionRequest.PartitionData(
        partition_index=fields.pop("index", 0),
        leader_epoch=fields.pop("leader_epoch", partition.leader_epoch),
        partition_epoch=fields.pop("partition_epoch", partition.partition_epoch),
        leader_recovery_state=fields.pop("recovery", LeaderRecoveryState.RECOVERED),
    )
    epochs = fields.pop("epochs", {})
    if version >= 3:
        data.new_isr_with_epochs = [
            AlterPartitionRequest.BrokerState(
                broker_id=b, broker_epoch=epochs.get(b, image.brokers[b].epoch if b in image.brokers else -1)
            )
            for b in isr
        ]
    else:
        data.new_isr = isr
    topic = AlterPartitionRequest.TopicData(topic_id=fields.pop("topic_id", TOPIC_ID), partitions=[data])
    request = AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=fields.pop("broker_epoch", image.brokers[broker_id].epoch),
        topics=[topic],
    )
    assert not fields
    result = alter_partition(image, request, SETTINGS, version)
    return replayed(image, result.records), result.response.topics[0].partitions[0]


@pytest.fixture
def image() -> MetadataImage:
    return with_partitions(image_with_brokers(1, 2, 3), (1, 2, 3))


@pytest.mark.parametrize("version", [2, 3])
def test_the_isr_shrinks_and_grows_within_a_leader_epoch(image: MetadataImage, version: int) -> None:
    image, answer = ask(image, [1, 2], version=version)
    assert (answer.error_code, answer.isr, answer.leader_id) == (0, [1, 2], 1)
    assert (answer.leader_epoch, answer.partition_epoch) == (0, 1)
    image, answer = ask(image, [1, 2, 3], version=version)
    assert (answer.isr, answer.leader_epoch, answer.partition_epoch) == ([1, 2, 3], 0, 2)
    assert the_partition(image).isr == (1, 2, 3)


def test_what_is_so_already_is_answered_without_a_record(image: MetadataImage) -> None:
    after, answer = ask(image, [1, 2, 3])
    assert (answer.error_code, answer.partition_epoch) == (0, 0)
    assert after.offset == image.offset


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic_id": uuid(99)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"topic_id": bytes(16)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 3}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        ({"recovery": LeaderRecoveryState.RECOVERING}, ErrorCode.INVALID_REQUEST),
        ({"epochs": {2: 1}}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_refusals(image: MetadataImage, fields: Any, code: ErrorCode) -> None:
    for leader in (2, 1, 2, 1):
        image = changed(image, leader=leader)
    after, answer = ask(image, [1, 2], **fields)
    assert answer.error_code == code
    assert after.offset == image.offset


@pytest.mark.parametrize("isr", [[1, 4], [2, 3], [1, 1], []])
def test_isrs_that_cannot_be(image: MetadataImage, isr: list[int]) -> None:
    assert ask(image, isr)[1].error_code == ErrorCode.INVALID_REQUEST


def test_brokers_that_may_not_be_in_sync(image: MetadataImage) -> None:
    image = fenced(image, 3)
    assert ask(image, [1, 2, 3])[1].error_code == ErrorCode.INELIGIBLE_REPLICA
    leaving = BrokerRegistrationChangeRecord(
        broker_id=2, broker_epoch=image.brokers[2].epoch, in_controlled_shutdown=1
    )
    image = replayed(image, [leaving])
    assert ask(image, [1, 2])[1].error_code == ErrorCode.INELIGIBLE_REPLICA
    assert ask(image, [1])[1].error_code == 0


def test_an_epoch_that_is_not_known_is_not_checked(image: MetadataImage) -> None:
    assert ask(image, [1, 2], epochs={2: -1})[1].error_code == 0


def test_a_broker_of_an_older_epoch_is_refused_as_a_whole(image: MetadataImage) -> None:
    with pytest.raises(ApiException) as refused:
        ask(image, [1, 2], broker_epoch=5)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_leader_that_has_recovered_says_so(image: MetadataImage) -> None:
    image = changed(image, isr=[1], leader_recovery_state=LeaderRecoveryState.RECOVERING)
    assert (
        ask(image, [1, 2], recovery=LeaderRecoveryState.RECOVERING)[1].error_code == ErrorCode.INVALID_REQUEST
    )
    image, answer = ask(image, [1, 2])
    assert (answer.error_code, answer.leader_recovery_state) == (0, LeaderRecoveryState.RECOVERED)
    assert the_partition(image).leader_recovery_state == LeaderRecoveryState.RECOVERED


def test_below_min_isr_who_leaves_stays_eligible_until_there_are_enough_again(image: MetadataImage) -> None:
    image = set_config(image, "min.insync.replicas", "2")
    image, _ = ask(image, [1])
    assert the_partition(image).elr == (2, 3)
    image, _ = ask(image, [1, 3])
    assert the_partition(image).elr == ()


def test_the_isr_that_completes_a_reassignment_ends_it(image: MetadataImage) -> None:
    image = with_partitions(image_with_brokers(1, 2, 3, 4), (1, 2, 3))
    image = changed(
        image,
        replicas=[1, 2, 4, 3],
        adding_replicas=[4],
        removing_replicas=[3],
        directories=[image.brokers[b].directories[0] for b in (1, 2, 4, 3)],
    )
    image, answer = ask(image, [1, 2, 3, 4])
    assert (answer.error_code, answer.isr) == (0, [1, 2, 4])
    partition = the_partition(image)
    assert (partition.replicas, partition.isr) == ((1, 2, 4), (1, 2, 4))
    assert not partition.is_reassigning
    # Who was taken out must not be taken for a replica of this epoch any more.
    assert partition.leader_epoch == 1


def test_a_leader_that_reassigns_itself_away_is_told_of_the_new_one(image: MetadataImage) -> None:
    image = with_partitions(image_with_brokers(1, 2, 3, 4), (1, 2))
    image = changed(
        image,
        replicas=[3, 2, 1],
        adding_replicas=[3],
        removing_replicas=[1],
        directories=[image.brokers[b].directories[0] for b in (3, 2, 1)],
    )
    image, answer = ask(image, [1, 2, 3])
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = the_partition(image)
    assert (partition.leader, partition.replicas, partition.isr) == (3, (3, 2), (2, 3))
