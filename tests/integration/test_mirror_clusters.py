"""Mirrors between clusters of three brokers: leaders are lost at both sides, and the source elects uncleanly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.mirror_world import (
    CODECS,
    assert_same_records,
    commit,
    committed,
    copy_once,
    held,
    keys,
    leader_of,
    make_as,
    next_record,
    produce,
    records,
    transactions,
    wait_for,
)
from ottla.admin.topics import NewTopic
from ottla.mirror.config import mirror_config
from ottla.mirror.mirror import Mirror
from ottla.pipeline.writer import Place
from ottla.testing.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

DEADLINE_S = 120.0
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
    places = [Place("A.orders", number) for number in range(2)]
    work = Mirror(mirror_config(given))
    work.start()
    lost: list[tuple[Cluster, int]] = []
    try:
        for number, codec in enumerate(CODECS):
            produce(source.bootstrap, "orders", 200, codec=codec, start=1000 * number)
            if number in (1, 3):
                where, name = (target, "A.orders") if number == 1 else (source, "orders")
                lost.append((where, leader_of(where.bootstrap, name)))
                where.kill(lost[-1][1])
            wait_for(lambda number=number: held(target.bootstrap, *places) >= 200 * (number + 1))
    finally:
        work.stop()
    assert not work.failures, work.failures
    for where, node in lost:
        where.start_node(node)
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
    """The new leader lacks copied records: its log is shorter, or longer again by the time the mirror looks."""
    source, target = clusters
    name = f"loose-{longer}".lower()
    allowed = {"unclean.leader.election.enable": "true"}
    make_as(
        source.bootstrap,
        NewTopic(name, -1, -1, replica_assignments={0: [1, 2], 1: [3, 1]}, topic_configs=allowed),
    )
    given = keys(source.bootstrap, target.bootstrap, topics=name, **_THREE)
    produce(source.bootstrap, name, 40)
    copy_once(given)
    source.kill(2)
    produce(source.bootstrap, name, 60, start=1000)
    copy_once(given)
    before = held(target.bootstrap, Place(f"A.{name}", 0))
    source.kill(1)
    source.restart(2)
    wait_for(lambda: leader_of(source.bootstrap, name) == 2)
    assert held(source.bootstrap, Place(name, 0)) < before, "records were lost"
    if longer:
        produce(source.bootstrap, name, 200, start=5000)
        wait_for(lambda: held(source.bootstrap, Place(name, 0)) > before)
    work = Mirror(mirror_config(given), once=True)
    work.start()
    assert work.wait(DEADLINE_S)
    (said,) = work.failures
    assert f"{name}-0 " in said and "an unclean election" in said
    assert held(target.bootstrap, Place(f"A.{name}", 0)) == before, "nothing was written to its copy"
    assert records(target.bootstrap, f"A.{name}")[1] == records(source.bootstrap, name)[1], "others go on"
    source.restart(1)
