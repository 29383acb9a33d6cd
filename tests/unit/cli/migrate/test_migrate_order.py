"""Which node is replaced next, what its absence means, and what a migration waits for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.cli.migrate.order import (
    ClusterView,
    NodeView,
    PartitionView,
    System,
    commands,
    consequences,
    reasons_to_wait,
    replacement_order,
)
from ottla.cli.migrate.steps import Stepper, TookTooLong

APACHE, OTTLA, UNKNOWN = System.APACHE, System.OTTLA, System.UNKNOWN


def node(node_id: int, system: System = APACHE, **options: object) -> NodeView:
    given = {"version": "1", "is_voter": True, **options}
    return NodeView(node_id, f"host{node_id}:9092", system, **given)  # type: ignore[arg-type]


def view(*nodes: NodeView, **options: object) -> ClusterView:
    return ClusterView("cluster", nodes, **{"quorum_leader": 1, **options})  # type: ignore[arg-type]


def partition(
    name: str, replicas: tuple[int, ...], in_sync: tuple[int, ...], least: int = 1
) -> PartitionView:
    return PartitionView(name, in_sync[0] if in_sync else -1, replicas, in_sync, least)


def test_few_leaders_first_controllers_later_the_active_one_last() -> None:
    seen = view(
        node(1, leaders=0, leads_quorum=True),
        node(2, leaders=9),
        node(3, leaders=2),
        node(4, OTTLA, leaders=1),
        node(101, is_broker=False),
    )
    assert [each.id for each in replacement_order(seen, OTTLA)] == [3, 2, 101, 1]
    assert [each.id for each in replacement_order(seen, APACHE)] == [4]


def test_what_a_node_alone_holds_is_named() -> None:
    seen = view(
        node(1),
        node(2),
        partitions=[
            partition("single-0", (1,), (1,)),
            partition("strict-0", (1, 2), (1, 2), 2),
            partition("safe-0", (1, 2), (1, 2)),
        ],
    )
    alone, strict, quorum = consequences(seen, seen.nodes[0])
    assert "single-0" in alone and "not available" in alone
    assert "strict-0" in strict and "acks=all" in strict
    assert "1 of 2 controllers are no majority" in quorum
    assert "2 of 3 controllers are left" in consequences(view(node(1), node(2), node(3)), node(1))[0]
    assert consequences(view(node(1), node(2, is_voter=False)), node(2, is_voter=False)) == []


def test_no_node_is_stopped_while_another_is_missing() -> None:
    assert reasons_to_wait(view(node(1), partitions=[partition("a-0", (1, 2), (2, 1))])) == []
    lacking = reasons_to_wait(view(node(1), partitions=[partition("a-0", (1, 2), (1,))], missing=[2]))
    assert lacking == ["1 of 1 partitions lack a replica (a-0)", "node 2 is not there"]
    assert reasons_to_wait(view(node(1), voters_behind=[3, 2])) == [
        "nodes 2 and 3 are behind in the controllers' quorum"
    ]
    assert reasons_to_wait(view(node(1), quorum_leader=-1)) == ["the controllers have no leader"]
    assert reasons_to_wait(view(node(1, UNKNOWN))) == ["node 1 is not answering"]
    assert reasons_to_wait(view(node(1), reassigning=4)) == ["4 partitions are being reassigned"]


def test_the_commands_name_the_node() -> None:
    assert [command for command, _ in commands(node(7), OTTLA)] == [
        "ottla migrate check server.properties",
        "bin/kafka-server-stop.sh --node-id=7",
        "ottla start --config server.properties",
    ]
    assert commands(node(7), APACHE)[-1][0] == "bin/kafka-server-start.sh server.properties"


class Script:
    """Shows one view after the other, on a clock that each pause moves."""

    def __init__(self, *views: ClusterView) -> None:
        self._views: Iterator[ClusterView] = iter(views)
        self.now = 0.0
        self.said: list[str] = []

    def stepper(self, target: System = OTTLA, timeout_s: float = 100) -> Stepper:
        return Stepper(
            lambda: next(self._views),
            self.said.append,
            target,
            timeout_s,
            now=lambda: self.now,
            pause=self._pause,
        )

    def _pause(self, seconds: float) -> None:
        self.now += 10 * seconds


def test_a_step_waits_names_the_node_and_sees_it_through() -> None:
    whole = partition("a-0", (1, 2), (1, 2))
    lacking = partition("a-0", (1, 2), (2,))
    script = Script(
        view(node(1), node(2), partitions=[lacking]),
        view(node(1, leads_quorum=True), node(2), partitions=[whole]),
        view(node(1), node(2), partitions=[whole]),
        view(node(1), node(2, UNKNOWN), partitions=[lacking]),
        view(node(1), node(2, OTTLA), partitions=[lacking]),
        view(node(1), node(2, OTTLA), partitions=[lacking]),
        view(node(1), node(2, OTTLA), partitions=[whole]),
    )
    stepper = script.stepper()
    seen, next_node = stepper.next_node()
    assert next_node is not None and next_node.id == 2
    stepper.describe(seen, next_node)
    stepper.watch(next_node)
    text = "\n".join(script.said)
    assert "waiting before the next node may be stopped: 1 of 1 partitions lack a replica (a-0)" in text
    assert "0 of 2 nodes run Ottla. Next is node 2 at host2:9092" in text
    assert "node 2 still runs Apache Kafka 1" in text
    assert "node 2 is away: start Ottla there" in text
    assert "waiting for all replicas to be in sync" in text
    assert text.endswith("node 2 is replaced and everything is in sync, after 15 s")


def test_a_step_gives_up_with_the_reason() -> None:
    behind = view(node(1), voters_behind=[3])
    script = Script(*[behind] * 9)
    with pytest.raises(TookTooLong, match=r"gave up after .* node 3 is behind in the controllers' quorum"):
        script.stepper(timeout_s=20).next_node()


def test_a_step_that_may_not_wait_says_why_no_node_may_be_stopped() -> None:
    script = Script(view(node(1), reassigning=2))
    with pytest.raises(TookTooLong, match="no node may be stopped now: 2 partitions are being reassigned"):
        script.stepper(timeout_s=0).next_node()


def test_nothing_is_left_to_do() -> None:
    assert Script(view(node(1, OTTLA))).stepper().next_node()[1] is None
