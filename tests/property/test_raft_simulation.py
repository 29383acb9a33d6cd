"""A quorum under random crashes, losses of power, partitions, pauses and restarts, replayable from its seed.

What must hold at every step: one leader an epoch, batches committed once and for all and in order everywhere (the
judges of the harness), no acknowledged record lost; and progress once the network is whole and the nodes are back.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.wire import messages as m
from unit.raft.raft_cluster import CLUSTER_ID, Cluster, voter

STEPS = 120


class Chaos:
    def __init__(self, seed: int, *, size: int, dynamic: bool, snapshots: bool) -> None:
        self.rng = random.Random(seed)
        self.answers: list[Any] = []
        self.cluster = Cluster(
            size,
            dynamic=dynamic,
            seed=seed,
            settings={"metadata.max.retention.bytes": "3000", "metadata.log.segment.ms": "2000"},
            snapshot_bytes=1500 if snapshots else 1 << 40,
        )
        self.cluster.network.jitter_s = 0.003
        self.cluster.start()
        self.cluster.observe(101)

    def step(self) -> None:
        rng, cluster = self.rng, self.cluster
        up, down = list(cluster.processes), [i for i in cluster.disks if i not in cluster.processes]
        match rng.randrange(12):
            case 0 if up:
                cluster.kill(rng.choice(up), rng if rng.random() < 0.7 else None)
            case 1 if cluster.leader is not None:
                cluster.kill(cluster.leader.node_id, rng if rng.random() < 0.7 else None)
            case 2 | 3 if down:
                node_id = rng.choice(down)
                cluster.start(node_id, is_controller=node_id < 100)
            case 4:
                one, other = rng.sample([*cluster.ids, 101], 2)
                cluster.network.cut(one, other)
            case 5 if cluster.leader is not None:
                cluster.network.isolate(cluster.leader.node_id, [*cluster.ids, 101])
            case 6 | 7:
                cluster.network.heal()
            case 8 if up:
                cluster.processes[rng.choice(up)].paused = True
            case 9:
                self.resume()
            case 10 | 11 if cluster.dynamic:
                self.change_voters()
        for _ in range(rng.randrange(6)):
            cluster.try_append()
            cluster.run(rng.random() * 0.02)
        cluster.run(rng.choice((0.01, 0.1, 0.5, 2.5)) * rng.random())

    def change_voters(self) -> None:
        """Ask the leader to let a voter go, or to take one in again."""
        rng, leader = self.rng, self.cluster.leader
        if leader is None:
            return
        node_id = rng.choice(self.cluster.ids)
        node = voter(node_id)
        if node_id in leader.raft.voters.ids:
            leader.raft.voter_changes.remove(
                m.RemoveRaftVoterRequest(
                    cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=node.key.directory_id
                ),
                self.answers.append,
            )
        else:
            cls = m.AddRaftVoterRequest
            leader.raft.voter_changes.add(
                cls(
                    cluster_id=CLUSTER_ID,
                    voter_id=node_id,
                    voter_directory_id=node.key.directory_id,
                    listeners=[
                        cls.Listener(name=n, host=e.host, port=e.port) for n, e in node.listeners.items()
                    ],
                ),
                self.answers.append,
            )

    def resume(self) -> None:
        for process in list(self.cluster.processes.values()):
            if process.paused:
                process.resume()

    def heal(self) -> None:
        cluster = self.cluster
        cluster.network.heal()
        self.resume()
        for node_id in cluster.disks:
            if node_id not in cluster.processes:
                cluster.start(node_id, is_controller=node_id < 100)

    def check(self) -> None:
        cluster = self.cluster
        known = len(cluster.acknowledged)
        for _ in range(10):
            # A leader from before the healing may still be deposed.
            cluster.elect()
            cluster.try_append()
            cluster.run(1.0)
        assert len(cluster.acknowledged) > known + 3, "there is no progress"
        cluster.run_until(cluster.settled)
        for node_id in cluster.processes:
            missing = set(cluster.acknowledged) - cluster.features(node_id)
            assert not missing, f"node {node_id} lacks {sorted(missing)}"
        assert len({frozenset(cluster.features(i)) for i in cluster.processes}) == 1


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 12))]
)
def test_a_quorum_of_three_survives_everything(seed: int) -> None:
    chaos = Chaos(seed, size=3, dynamic=seed % 2 == 1, snapshots=seed % 3 > 0)
    for _ in range(STEPS):
        chaos.step()
    chaos.heal()
    chaos.check()
    assert len(chaos.cluster.acknowledged) >= 20
    if chaos.cluster.dynamic:
        assert chaos.answers, "nobody was ever asked to change the voters"


@pytest.mark.parametrize(
    "seed", [100, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(101, 104))]
)
def test_a_quorum_of_five_survives_everything(seed: int) -> None:
    chaos = Chaos(seed, size=5, dynamic=seed % 2 == 1, snapshots=True)
    for _ in range(STEPS // 2):
        chaos.step()
    chaos.heal()
    chaos.check()
