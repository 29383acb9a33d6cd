"""What happens to clusters while they are mirrored: leaders are lost, and the source elects uncleanly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from integration.mirror_world import (
    CODECS,
    connect,
    copy_once,
    held,
    leader_of,
    make_as,
    produce,
    records,
    wait_for,
)
from ottla.admin.topics import NewTopic, delete_all_of
from ottla.mirror.config import mirror_config
from ottla.mirror.mirror import Mirror
from ottla.pipeline.writer import Place


class Node(Protocol):
    """A process of either system."""

    def kill(self) -> None: ...

    def start(self) -> object: ...


class Nodes(Protocol):
    """A cluster of either system."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def nodes(self) -> Mapping[int, Node]: ...


def in_sync(bootstrap: str, topic: str) -> bool:
    cluster = connect(bootstrap)
    try:
        (found,) = cluster.metadata([topic]).topics
        return all(len(one.isr_nodes) == len(one.replica_nodes) for one in found.partitions)
    finally:
        cluster.close()


def failures_of(given: Mapping[str, str]) -> list[str]:
    """Why partitions stopped in a mirror that runs to the ends of the source."""
    work = Mirror(mirror_config(given), once=True)
    work.start()
    assert work.wait(300)
    return work.failures


def lose_leaders(source: Nodes, target: Nodes, given: Mapping[str, str]) -> None:
    """A mirror follows `orders`; a leader of the copy is killed, then one of the source. Both come back."""
    places = [Place("A.orders", number) for number in range(2)]
    lost: list[Node] = []
    work = Mirror(mirror_config(given))
    work.start()
    try:
        for number, codec in enumerate(CODECS):
            produce(source.bootstrap, "orders", 200, codec=codec, start=1000 * number)
            if number in (1, 3):
                where, name = (target, "A.orders") if number == 1 else (source, "orders")
                lost.append(where.nodes[leader_of(where.bootstrap, name)])
                lost[-1].kill()
            wait_for(lambda number=number: held(target.bootstrap, *places) >= 200 * (number + 1))
    finally:
        work.stop()
    assert not work.failures, work.failures
    for node in lost:
        node.start()
    wait_for(lambda: in_sync(source.bootstrap, "orders") and in_sync(target.bootstrap, "A.orders"))


def elect_uncleanly(
    source: Nodes, target: Nodes, given: Mapping[str, str], name: str, *, longer: bool = False
) -> None:
    """The new leader of the source lacks copied records: that partition stops, the others go on.

    Its log is shorter, or longer again by the time the mirror looks.
    """
    allowed = {"unclean.leader.election.enable": "true"}
    replicas = {0: [1, 2], 1: [3, 1]}
    make_as(source.bootstrap, NewTopic(name, -1, -1, replica_assignments=replicas, topic_configs=allowed))
    produce(source.bootstrap, name, 40)
    copy_once(given)
    source.nodes[2].kill()
    produce(source.bootstrap, name, 60, start=1000)
    copy_once(given)
    before = held(target.bootstrap, Place(f"A.{name}", 0))
    source.nodes[1].kill()
    source.nodes[2].start()
    wait_for(lambda: leader_of(source.bootstrap, name) == 2)
    assert held(source.bootstrap, Place(name, 0)) < before, "records were lost"
    if longer:
        produce(source.bootstrap, name, 200, start=5000)
        wait_for(lambda: held(source.bootstrap, Place(name, 0)) > before)
    (said,) = failures_of(given)
    assert f"{name}-0 " in said and "an unclean election" in said
    assert held(target.bootstrap, Place(f"A.{name}", 0)) == before, "nothing was written to its copy"
    assert records(target.bootstrap, f"A.{name}")[1] == records(source.bootstrap, name)[1], "others go on"
    cluster = connect(target.bootstrap)
    delete_all_of(cluster, [f"A.{name}"])
    cluster.close()
    copy_once(given)
    assert records(target.bootstrap, f"A.{name}") == records(source.bootstrap, name), "copied afresh"
    source.nodes[1].start()
