"""Elections on request, by the clock and because of the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller import elections
from ottla.controller.elections import balance_leaders, elect_leaders, elect_unclean_leaders
from ottla.errors import ApiException, ErrorCode
from ottla.ids import TopicName
from ottla.metadata.image import NO_LEADER, LeaderRecoveryState, MetadataImage
from ottla.wire.messages import ElectLeadersRequest
from unit.controller.controller_harness import (
    changed,
    fenced,
    image_with_brokers,
    replayed,
    set_config,
    settings_with,
    the_partition,
    with_partitions,
)

SETTINGS = settings_with()
PREFERRED, UNCLEAN = 0, 1


def elect(
    image: MetadataImage, election: int, partitions: dict[str, list[int]] | None, version: int = 2
) -> tuple[MetadataImage, dict[tuple[TopicName, int], int]]:
    request = ElectLeadersRequest(election_type=election, topic_partitions=None)
    if partitions is not None:
        request.topic_partitions = [
            ElectLeadersRequest.TopicPartitions(topic=name, partitions=indexes)
            for name, indexes in partitions.items()
        ]
    result = elect_leaders(image, request, SETTINGS, version)
    codes = {
        (topic.topic, p.partition_id): p.error_code
        for topic in result.response.replica_election_results
        for p in topic.partition_result
    }
    return replayed(image, result.records), codes


@pytest.fixture
def image() -> MetadataImage:
    image = with_partitions(image_with_brokers(1, 2, 3), (1, 2, 3), (2, 3, 1))
    return changed(image, leader=3)


def test_the_preferred_replica_leads_again(image: MetadataImage) -> None:
    after, codes = elect(image, PREFERRED, {"t": [0, 1, 9], "nowhere": [0]})
    assert codes == {
        ("t", 0): 0,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (the_partition(after).leader, the_partition(after).leader_epoch) == (1, 2)


def test_all_partitions_are_meant_when_none_is_named(image: MetadataImage) -> None:
    after, codes = elect(image, PREFERRED, None)
    assert codes == {("t", 0): 0}
    assert the_partition(after).leader == 1


def test_version_0_knows_the_preferred_replica_only(image: MetadataImage) -> None:
    assert elect(image, UNCLEAN, {"t": [0]}, version=0)[1] == {("t", 0): 0}


def test_a_preferred_replica_that_is_not_in_sync_cannot_lead(image: MetadataImage) -> None:
    image = fenced(image, 1)
    assert elect(image, PREFERRED, {"t": [0]})[1] == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_an_unclean_election_on_request_needs_no_configuration(image: MetadataImage) -> None:
    image = with_partitions(image_with_brokers(1, 2, elr=False), (1, 2))
    image = changed(fenced(changed(image, isr=[1]), 1))
    assert the_partition(image).leader == NO_LEADER
    after, codes = elect(image, UNCLEAN, {"t": [0]})
    assert codes == {("t", 0): 0}
    partition = the_partition(after)
    assert (partition.leader, partition.isr) == (2, (2,))
    assert partition.leader_recovery_state == LeaderRecoveryState.RECOVERING
    assert elect(after, UNCLEAN, {"t": [0]})[1] == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}


def test_with_nobody_alive_an_unclean_election_is_in_vain(image: MetadataImage) -> None:
    image = fenced(image, 1, 2, 3)
    assert elect(image, UNCLEAN, {"t": [0]})[1] == {("t", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_an_unknown_kind_of_election(image: MetadataImage) -> None:
    with pytest.raises(ApiException) as refused:
        elect(image, 7, {"t": [0]})
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_leaders_are_balanced_by_the_clock(image: MetadataImage) -> None:
    result = balance_leaders(image, SETTINGS)
    assert not result.response
    assert the_partition(replayed(image, result.records)).leader == 1
    assert not balance_leaders(replayed(image, result.records), SETTINGS).records


def test_a_turn_is_bounded(image: MetadataImage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "MAX_ELECTIONS_PER_TURN", 1)
    image = changed(image, 1, leader=1)
    first = balance_leaders(image, SETTINGS)
    assert (len(first.records), first.response) == (1, True)


@pytest.mark.parametrize("elr", [True, False])
def test_unclean_elections_only_where_the_topic_allows_them(elr: bool) -> None:
    image = with_partitions(image_with_brokers(1, 2, elr=elr), (1, 2))
    image = fenced(changed(image, isr=[1]), 1)
    assert not elect_unclean_leaders(image, SETTINGS).records
    image = set_config(image, "unclean.leader.election.enable", "true")
    after = replayed(image, elect_unclean_leaders(image, SETTINGS).records)
    assert (the_partition(after).leader, the_partition(after).isr, the_partition(after).elr) == (2, (2,), ())


def test_the_last_leader_comes_back_without_an_unclean_election_being_allowed(image: MetadataImage) -> None:
    image = with_partitions(image_with_brokers(1, 2), (1, 2))
    image = fenced(changed(image, isr=[1]), 1)
    assert the_partition(image).last_known_elr == (1,)
    request: Any = {"t": [0]}
    assert elect(image, PREFERRED, request)[1] == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
