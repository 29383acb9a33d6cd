"""Placement: replicas striped over racks and brokers."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.placement import UsableBroker, place_replicas
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId


def brokers(count: int, racks: int = 0, fenced: frozenset[int] = frozenset()) -> list[UsableBroker]:
    return [UsableBroker(i, f"rack{i % racks}" if racks else None, i in fenced) for i in range(count)]


def test_one_broker_gets_everything() -> None:
    assert place_replicas(brokers(1), 5, 1, random.Random(1)) == [[0]] * 5


def test_leaders_are_spread_evenly() -> None:
    placed = place_replicas(brokers(3), 9, 2, random.Random(7))
    assert Counter(replicas[0] for replicas in placed) == {0: 3, 1: 3, 2: 3}
    assert all(len(set(replicas)) == 2 for replicas in placed)


def test_replicas_of_a_partition_are_on_different_racks() -> None:
    usable = brokers(6, racks=3)
    racks = {broker.id: broker.rack for broker in usable}
    for replicas in place_replicas(usable, 50, 3, random.Random(3)):
        assert len({racks[replica] for replica in replicas}) == 3


def test_a_fenced_broker_never_leads_a_new_partition() -> None:
    placed = place_replicas(brokers(3, fenced=frozenset({2})), 30, 2, random.Random(5))
    assert all(replicas[0] != 2 for replicas in placed)


@pytest.mark.parametrize(
    ("count", "fenced", "factor", "message"),
    [
        (0, frozenset(), 1, "fenced"),
        (2, frozenset({0, 1}), 1, "fenced"),
        (2, frozenset(), 3, "only 2 broker(s) are registered"),
        (2, frozenset(), 0, "must be positive"),
    ],
)
def test_what_cannot_be_placed(count: int, fenced: frozenset[int], factor: int, message: str) -> None:
    with pytest.raises(ApiException) as refused:
        place_replicas(brokers(count, fenced=fenced), 1, factor, random.Random(1))
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert message in refused.value.message


@given(
    count=st.integers(1, 9),
    racks=st.integers(0, 4),
    partitions=st.integers(1, 40),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_every_placement_is_sound(
    count: int, racks: int, partitions: int, seed: int, data: st.DataObject
) -> None:
    fenced = data.draw(st.frozensets(st.integers(0, count - 1), max_size=count - 1))
    factor = data.draw(st.integers(1, count))
    placed = place_replicas(brokers(count, racks, fenced), partitions, factor, random.Random(seed))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert replicas[0] not in fenced
        # A fenced broker is used only when there is no other left in its rack.
        assert set(replicas) <= set(range(count))


def test_replicas_of_a_partition_are_on_different_machines_of_a_rack() -> None:
    brokers = [
        UsableBroker(BrokerId(machine + 1000 * process), f"zone-{machine % 2}", False, f"host-{machine}")
        for machine in (1, 2, 3, 4)
        for process in range(2)
    ]
    machine_of = {broker.id: broker.machine for broker in brokers}
    for seed in range(50):
        for replicas in place_replicas(brokers, 16, 4, random.Random(seed)):
            assert len({machine_of[replica] for replica in replicas}) == 4
            assert len(set(replicas)) == 4


def test_brokers_that_all_share_a_machine_or_none_are_placed_as_kafka_places_them() -> None:
    for machine in (lambda number: "host", lambda number: f"host-{number}"):
        here = [UsableBroker(BrokerId(number), None, False, machine(number)) for number in range(6)]
        kafka = [UsableBroker(BrokerId(number), None, False) for number in range(6)]
        placed = place_replicas(here, 20, 3, random.Random(7))
        assert placed == place_replicas(kafka, 20, 3, random.Random(7))
