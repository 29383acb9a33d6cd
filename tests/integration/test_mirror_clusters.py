"""Mirrors between clusters of three brokers: leaders are lost at both sides, and the source elects uncleanly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.mirror_stories import elect_uncleanly, lose_leaders
from integration.mirror_world import (
    assert_same_records,
    commit,
    committed,
    copy_once,
    keys,
    make_as,
    next_record,
    records,
    transactions,
)
from ottla.admin.topics import NewTopic
from ottla.pipeline.writer import Place
from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_THREE = {
    "replication__factor": "3",
    "offset__storage__replication__factor": "3",
    "offset-syncs__topic__replication__factor": "3",
    "checkpoints__topic__replication__factor": "3",
}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Cluster]]:
    folder = tmp_path_factory.mktemp("clusters")
    with Cluster(folder / "source", 3) as source, Cluster(folder / "target", 3) as target:
        yield source, target


def test_a_leader_is_lost_at_each_side_while_a_mirror_runs(clusters: tuple[Cluster, Cluster]) -> None:
    source, target = clusters
    make_as(source.bootstrap, NewTopic("orders", 2, 3))
    given = keys(source.bootstrap, target.bootstrap, tasks__max="2", topics="orders", **_THREE)
    lose_leaders(source, target, given)
    transactions(source.bootstrap, "orders", 4, size=5)
    ends = {number: part[-1][0] + 1 for number, part in records(source.bootstrap, "orders").items()}
    commit(source.bootstrap, "billing", {Place("orders", one): end // 2 for one, end in ends.items()})
    copy_once(given)
    assert_same_records(source.bootstrap, "orders", target.bootstrap, "A.orders")
    theirs, ours = records(source.bootstrap, "orders"), records(target.bootstrap, "A.orders")
    for number, end in ends.items():
        position = committed(target.bootstrap, "billing")[Place("A.orders", number)]
        assert next_record(ours[number], position) == next_record(theirs[number], end // 2)


@pytest.mark.parametrize("longer", [False, True])
def test_an_unclean_election_at_the_source_stops_that_partition_only(
    clusters: tuple[Cluster, Cluster], longer: bool
) -> None:
    source, target = clusters
    name = f"loose-{longer}".lower()
    given = keys(source.bootstrap, target.bootstrap, topics=name, **_THREE)
    elect_uncleanly(source, target, given, name, longer=longer)
