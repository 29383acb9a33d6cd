"""Three replicas under kills, cuts, deaf brokers and elections, drawn from a seed: no acknowledged record is lost.

Real logs, the real leader and follower sides and the controller's own decisions, on a virtual clock and network.
"""

from __future__ import annotations

import random

import pytest

from ottla.errors import ApiException, ErrorCode
from unit.replica.cluster_scene import ClusterScene, Node, Produced

NODES = (1, 2, 3)


class Story:
    """A run of a partition, and the responses to its producer."""

    def __init__(self, seed: int, min_isr: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = ClusterScene(seed=seed, replica_lag_time_max_ms="3000")
        self.cluster.network.jitter_s = 0.003
        self.cluster.create_topic(configs={"min.insync.replicas": str(min_isr)})
        self.sent = 0
        self.waiting: list[tuple[bytes, Produced]] = []
        self.acknowledged: dict[int, bytes] = {}
        """By offset."""

    # -- what happens

    def produce(self) -> None:
        believed = [
            node for node in self.cluster.node.values() if node.alive and self._believes_to_lead(node)
        ]
        if not believed:
            return
        value = b"%d" % self.sent
        self.sent += 1
        self.waiting.append((value, self.cluster.produce(value, to=self.rng.choice(believed).id)))

    def _believes_to_lead(self, node: Node) -> bool:
        try:
            return bool(node.partition().is_leader)
        except ApiException:
            return False

    def kill(self) -> None:
        alive = [node for node in self.cluster.node.values() if node.alive]
        if alive:
            node = self.rng.choice(alive)
            node.clean_epoch = -1
            node.kill()
            if self.rng.random() < 0.7:
                self.cluster.fence(node.id)

    def restart(self) -> None:
        dead = [node for node in self.cluster.node.values() if not node.alive]
        if dead:
            node = self.rng.choice(dead)
            node.deaf = False
            self.cluster.restart(node.id)

    def cut(self) -> None:
        self.cluster.network.cut(*self.rng.sample(NODES, 2))

    def heal(self) -> None:
        self.cluster.network.heal()

    def deafen(self) -> None:
        """A broker that stands still: the controller fences it, and it does not hear of it."""
        node = self.rng.choice(list(self.cluster.node.values()))
        if node.alive and not node.deaf:
            node.deaf = True
            self.cluster.network.isolate(node.id, list(NODES))
            if self.rng.random() < 0.7:
                self.cluster.fence(node.id)

    def wake(self) -> None:
        self.cluster.network.heal()
        for node in self.cluster.node.values():
            if node.deaf:
                node.deaf = False
                if node.alive:
                    node.publish(self.cluster.image)
                    self.cluster.unfence(node.id)

    def elect(self) -> None:
        registration = self.cluster.registration()
        unfenced = [
            replica
            for replica in registration.isr
            if not self.cluster.image.brokers[replica].fenced and replica != registration.leader
        ]
        if unfenced and registration.leader >= 0:
            self.cluster.move_leader(self.rng.choice(unfenced))

    def pass_time(self) -> None:
        self.cluster.run(self.rng.choice((0.001, 0.01, 0.1, 1, 5)))

    # -- what is true

    def look(self) -> None:
        left = []
        for value, produced in self.waiting:
            if produced.code is None:
                left.append((value, produced))
            elif produced.code is ErrorCode.NONE:
                assert produced.offset not in self.acknowledged, "two records at one offset"
                self.acknowledged[produced.offset] = value
        self.waiting = left
        self.check_committed()

    def check_committed(self) -> None:
        """Below their high watermarks all logs are the same, and hold what was acknowledged."""
        committed: dict[int, bytes] = {}
        for node in self.cluster.node.values():
            if not node.alive:
                continue
            try:
                log = node.partition().log
            except ApiException:
                continue
            if log is None:
                continue
            for offset, value in enumerate(node.values(end=log.high_watermark)):
                assert committed.setdefault(offset, value) == value, f"{offset} differs on {node.id}"
        for offset, value in self.acknowledged.items():
            assert committed.get(offset, value) == value

    def settle(self) -> None:
        """Everyone comes back; the logs become one, with all that was acknowledged."""
        self.wake()
        for node in self.cluster.node.values():
            if not node.alive:
                self.cluster.restart(node.id)
        self.cluster.run(30)
        self.look()
        assert self.cluster.leader() is not None
        produced = self.cluster.produce(b"last")
        self.cluster.run(10)
        assert produced.code is ErrorCode.NONE
        assert set(self.cluster.registration().isr) == set(NODES)
        logs = [node.values() for node in self.cluster.node.values()]
        assert logs[0] == logs[1] == logs[2]
        for offset, value in self.acknowledged.items():
            assert logs[0][offset] == value


def run(seed: int, min_isr: int, steps: int) -> Story:
    story = Story(seed, min_isr)
    actions = [
        (story.produce, 30),
        (story.pass_time, 30),
        (story.kill, 4),
        (story.restart, 6),
        (story.cut, 4),
        (story.heal, 6),
        (story.deafen, 3),
        (story.wake, 5),
        (story.elect, 4),
    ]
    for _ in range(steps):
        story.rng.choices([a for a, _ in actions], [w for _, w in actions])[0]()
        story.look()
    story.settle()
    return story


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("min_isr", [1, 2])
def test_no_acknowledged_record_is_lost(seed, min_isr):
    run(seed, min_isr, 120)


def test_the_stories_are_worth_telling():
    """Records are acknowledged in them, and leaders change."""
    story = run(1, 1, 200)
    assert len(story.acknowledged) > 10
    assert story.cluster.registration().leader_epoch > 3
