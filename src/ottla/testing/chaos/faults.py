"""The faults of a chaos run: each begins, lasts, and is healed. The seed chooses the victims."""

from __future__ import annotations

import contextlib
import random
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ottla.errors import ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.testing.chaos import features, machine
from ottla.testing.chaos.broken_disk import OPERATIONS, SLOW_OPERATIONS, BrokenDisk
from ottla.testing.chaos.disk import SmallDisk
from ottla.testing.chaos.network import OUTSIDE, Network
from ottla.testing.chaos.quorum import DynamicCluster
from ottla.testing.chaos.wrong_clock import WrongClock
from ottla.testing.cluster import Cluster
from ottla.wire import messages

_GROUP, _TRANSACTION = 0, 1
_LONG_S = 25.0
"""Longer than every timeout of the cluster and its clients but `transaction.max.timeout.ms`."""
_DRIFT_STEP_S = 0.05


@dataclass(slots=True)
class Scene:
    """Everything that a fault can act on."""

    cluster: Cluster
    rng: random.Random
    topics: dict[str, int]
    """Topics under load and how many partitions each has."""
    network: Network | None = None
    disks: tuple[int, dict[str, SmallDisk]] | None = None
    """The node whose directories are small disks, each by its purpose."""
    broken_disk: tuple[int, BrokenDisk] | None = None
    clocks: dict[int, WrongClock] = field(default_factory=dict)
    pauses_s: tuple[float, float] = (1.0, 12.0)
    cuts_s: tuple[float, float] = (2.0, 12.0)
    downs_s: tuple[float, float] = (0.0, 3.0)
    coordinated: Sequence[str] = field(default_factory=list)
    """Ids of groups and transactions whose coordinators are victims."""
    sick: set[int] = field(default_factory=set)
    """Nodes whose machine failed: they may have logged tracebacks."""
    old_source: Path | None = None
    """The source tree of an earlier version, for upgrades."""
    old_nodes: set[int] = field(default_factory=set)
    """The nodes that run it."""

    def lasting(self, bounds: tuple[float, float]) -> float:
        """Return a duration within the bounds, more often short than long."""
        low, high = bounds
        return low + (high - low) * self.rng.random() ** 2

    def victim(self, role: str) -> int:
        """Return the node that has a role now; a random one if that is unknown."""
        running = [node_id for node_id in self.cluster.broker_ids if self.cluster.running(node_id)]
        found: int | None = None
        with contextlib.suppress(OSError):
            match role:
                case "leader":
                    topic = self.rng.choice(sorted(self.topics))
                    found = self.cluster.leader_of(topic, self.rng.randrange(self.topics[topic]))
                case "controller":
                    found = self.cluster.controller_id()
                case "coordinator":
                    found = self._coordinator()
        return found if found in running else self.rng.choice(running)

    def _coordinator(self) -> int:
        key_type = self.rng.choice((_GROUP, _TRANSACTION))
        request = messages.FindCoordinatorRequest(
            key_type=key_type, coordinator_keys=[self.rng.choice(list(self.coordinated) or ["any"])]
        )
        return int(self.cluster.ask(request, 4).coordinators[0].node_id)

    def role(self) -> str:
        return self.rng.choice(("leader", "controller", "coordinator", "any"))


def wait(seconds: float) -> None:
    """Wait while a fault lasts: for a time, not for an event."""
    time.sleep(seconds)


def launch(cluster: Cluster, node_ids: Sequence[int], timeout_s: float = 90.0) -> None:
    """Start nodes together: a single one may wait for the others."""
    for node_id in node_ids:
        cluster.nodes[node_id].launch()
    for node_id in node_ids:
        cluster.nodes[node_id].wait_ready(timeout_s)


# -- processes


def kill(scene: Scene) -> str:
    """Kill a leader, controller or coordinator."""
    role = scene.role()
    victim = scene.victim(role)
    scene.cluster.kill(victim)
    wait(scene.lasting(scene.downs_s))
    scene.cluster.start_node(victim, 90)
    return f"{role} {victim}"


def kill_two(scene: Scene) -> str:
    """Kill two nodes: writes are refused until one is back."""
    victims = scene.rng.sample([i for i in scene.cluster.broker_ids if scene.cluster.running(i)], 2)
    for victim in victims:
        scene.cluster.kill(victim)
        wait(scene.rng.random() * 0.2)
    wait(scene.lasting(scene.downs_s))
    scene.rng.shuffle(victims)
    launch(scene.cluster, victims)
    return f"nodes {sorted(victims)}"


def kill_all(scene: Scene) -> str:
    """Kill all nodes at the same moment."""
    running = [node_id for node_id in scene.cluster.nodes if scene.cluster.running(node_id)]
    scene.cluster.kill_all()
    wait(scene.lasting(scene.downs_s) / 3)
    scene.rng.shuffle(running)
    launch(scene.cluster, running)
    return f"nodes {sorted(running)}"


def pause(scene: Scene) -> str:
    """Pause a node (SIGSTOP), then resume it."""
    role = scene.role()
    victim = scene.victim(role)
    seconds = scene.lasting(scene.pauses_s)
    scene.cluster.pause(victim)
    try:
        wait(seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            scene.cluster.resume(victim)
    return f"{role} {victim} for {seconds:.1f} s"


def pause_long(scene: Scene) -> str:
    """Pause a node for longer than the timeouts of sessions, replicas, groups and transactions."""
    role = scene.role()
    victim = scene.victim(role)
    scene.cluster.pause(victim)
    try:
        wait(_LONG_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            scene.cluster.resume(victim)
    return f"{role} {victim} for {_LONG_S} s"


def upgrade(scene: Scene) -> str:
    """Restart all nodes one after the other in the other version: the earlier one, or the present one again."""
    assert scene.old_source is not None
    source = None if scene.old_nodes else scene.old_source
    for node_id in scene.cluster.broker_ids:
        scene.cluster.stop(node_id)
        machine.use_source(scene, node_id, source)
        scene.cluster.start_node(node_id, 90)
        for topic, partitions in scene.topics.items():
            scene.cluster.wait_in_sync(topic, partitions, 90)
    return "to the earlier version" if source else "to the present version"


# -- machines


def flip_bit(scene: Scene) -> str:
    """Kill a node while all replicas are in sync, flip a bit of its files, start it, and repair it after a while."""
    for topic, partitions in scene.topics.items():
        scene.cluster.wait_in_sync(topic, partitions, 90)
    victim = scene.victim("any")
    scene.sick.add(victim)
    scene.cluster.kill(victim)
    damage = machine.damage(scene.cluster.plans[victim].data, scene.rng)
    scene.cluster.nodes[victim].launch()
    wait(scene.lasting(scene.cuts_s))
    scene.cluster.kill(victim)
    if damage is not None:
        machine.repair(damage)
    scene.cluster.start_node(victim, 90)
    return f"node {victim}: {damage.path.name if damage else 'nothing'}"


def _limited(scene: Scene, what: str, kind: int, limit: Callable[[int], tuple[int, int]]) -> str:
    role = scene.role()
    victim = scene.victim(role)
    scene.sick.add(victim)
    pid = scene.cluster.nodes[victim].pid
    before = limit(pid)
    seconds = scene.lasting(scene.cuts_s)
    try:
        wait(seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, kind, before)
    # A node that could not write has given up its disk, as it should.
    scene.cluster.restart(victim, 90)
    return f"no {what} for {role} {victim} for {seconds:.1f} s"


def no_descriptors(scene: Scene) -> str:
    """Let a node open no file and accept no connection."""
    return _limited(scene, "descriptors", resource.RLIMIT_NOFILE, machine.limit_descriptors)


def no_memory(scene: Scene) -> str:
    """Leave a node 4 MiB of memory beyond what it has."""
    return _limited(scene, "memory", resource.RLIMIT_AS, machine.limit_memory)


def restart(scene: Scene) -> str:
    """Restart a node cleanly."""
    role = scene.role()
    victim = scene.victim(role)
    scene.cluster.restart(victim, 90)
    return f"{role} {victim}"


def rolling(scene: Scene) -> str:
    """Restart all nodes cleanly, one after the other."""
    for node_id in scene.cluster.broker_ids:
        if scene.cluster.running(node_id):
            scene.cluster.restart(node_id, 90)
            for topic, partitions in scene.topics.items():
                scene.cluster.wait_in_sync(topic, partitions, 90)
    return "all nodes"


def change_features(scene: Scene) -> str:
    """Lower the level of a feature, and raise it again after a while."""
    feature, level = features.choose(scene.rng)
    with features.lowered(scene.cluster, feature, level):
        wait(scene.lasting(scene.cuts_s))
    return f"{feature} at {level}"


# -- the network


def _cut(scene: Scene, what: str, cut: Callable[[Network, int, list[int]], None], role: str = "any") -> str:
    assert scene.network is not None
    victim = scene.victim(role)
    others = [node_id for node_id in scene.network.node_ids if node_id != victim]
    seconds = scene.lasting(scene.cuts_s)
    cut(scene.network, victim, others)
    try:
        wait(seconds)
    finally:
        scene.network.heal()
    return f"{what} {role} {victim} for {seconds:.1f} s"


def cut_leader(scene: Scene) -> str:
    """Isolate a leader or the controller from other nodes; clients still reach it."""
    role = scene.rng.choice(("leader", "controller", "coordinator"))
    return _cut(scene, "alone:", lambda network, victim, others: network.separate([victim], others), role)


def cut_minority(scene: Scene) -> str:
    """Isolate one node from all others and from clients."""
    return _cut(
        scene, "gone:", lambda network, victim, others: network.separate([victim], [*others, OUTSIDE])
    )


def cut_one_way(scene: Scene) -> str:
    """Cut one direction between a node and the others."""
    deaf = scene.rng.random() < 0.5

    def cut(network: Network, victim: int, others: list[int]) -> None:
        for other in others:
            network.cut(other, victim) if deaf else network.cut(victim, other)

    return _cut(scene, "deaf:" if deaf else "mute:", cut, scene.role())


def flap(scene: Scene) -> str:
    """Cut and mend the links of a node again and again, in one direction or both."""
    assert scene.network is not None
    role = scene.role()
    victim = scene.victim(role)
    others = [node_id for node_id in scene.network.node_ids if node_id != victim]
    both, end = scene.rng.random() < 0.5, time.monotonic() + scene.lasting(scene.cuts_s)
    try:
        while time.monotonic() < end:
            for other in others:
                scene.network.cut(victim, other)
                if both:
                    scene.network.cut(other, victim)
            wait(scene.rng.random() ** 2 * 1.5)
            scene.network.heal()
            wait(scene.rng.random() ** 2)
    finally:
        scene.network.heal()
    return f"{role} {victim}"


def cut_ring(scene: Scene) -> str:
    """Let nodes reach their neighbours only: with three nodes, two reach only the third."""

    def cut(network: Network, victim: int, others: list[int]) -> None:
        ring = [victim, *scene.rng.sample(others, len(others))]
        ring = [node_id for node_id in ring if scene.cluster.running(node_id)]
        if len(ring) < 4:
            network.separate([ring[0]], [ring[1]])
            return
        for index, node_id in enumerate(ring):
            near = {ring[index - 1], node_id, ring[(index + 1) % len(ring)]}
            network.separate([node_id], [other for other in ring if other not in near])

    return _cut(scene, "ring:", cut, scene.role())


def cut_all(scene: Scene) -> str:
    """Isolate every node."""

    def cut(network: Network, victim: int, others: list[int]) -> None:
        for node_id in network.node_ids:
            network.separate([node_id], [other for other in network.node_ids if other > node_id])

    return _cut(scene, "each alone:", cut)


# -- disks and members


def full_disk(scene: Scene) -> str:
    """Fill one directory of a node, or all. The node may stop, and is restarted when there is space again."""
    assert scene.disks is not None
    node_id, disks = scene.disks
    what = scene.rng.choice([*disks, "all"])
    full = [disk for name, disk in disks.items() if what in (name, "all")]
    for disk in full:
        disk.fill()
    try:
        wait(scene.lasting((1.0, 4.0)))
    finally:
        for disk in full:
            disk.free()
    ended = not scene.cluster.running(node_id)
    # A failed directory stays offline until a restart, in Kafka too.
    scene.cluster.kill(node_id)
    scene.cluster.start_node(node_id, 90)
    return f"{what} of node {node_id}, which {'ended' if ended else 'went on'}"


def broken_disk(scene: Scene) -> str:
    """Let writes, syncs, reads or all operations on one node's disk fail with EIO, then repair the disk."""
    assert scene.broken_disk is not None
    node_id, disk = scene.broken_disk
    what = scene.rng.choice(sorted(OPERATIONS))
    disk.fail(what)
    try:
        wait(scene.lasting((1.0, 4.0)))
    finally:
        disk.mend()
    ended = not scene.cluster.running(node_id)
    scene.cluster.kill(node_id)
    scene.cluster.start_node(node_id, 90)
    return f"{what} of node {node_id}, which {'ended' if ended else 'went on'}"


def slow_disk(scene: Scene) -> str:
    """Let each sync of one node take a second, and writes and reads 20 ms."""
    assert scene.broken_disk is not None
    node_id, disk = scene.broken_disk
    what = scene.rng.choice(sorted(SLOW_OPERATIONS))
    disk.slow(what)
    seconds = scene.lasting(scene.cuts_s)
    try:
        wait(seconds)
    finally:
        disk.mend()
    return f"{what} of node {node_id} for {seconds:.1f} s"


# -- clocks


def clock_jump(scene: Scene) -> str:
    """Set a node's clock hours ahead or behind, then right again."""
    role = scene.role()
    victim = scene.victim(role)
    hours = scene.rng.choice((-1, 1)) * scene.rng.uniform(1, 12)
    seconds = scene.lasting(scene.cuts_s)
    scene.clocks[victim].set(int(hours * 3_600_000))
    try:
        wait(seconds)
    finally:
        scene.clocks[victim].set(0)
    return f"{role} {victim} by {hours:+.1f} h for {seconds:.1f} s"


def clock_drift(scene: Scene) -> str:
    """Let a node's clock run away by some seconds in each second, then set it right."""
    role = scene.role()
    victim = scene.victim(role)
    pace_ms = scene.rng.choice((-1, 1)) * scene.rng.randrange(20, 500)
    began = time.monotonic()
    end = began + scene.lasting(scene.cuts_s)
    try:
        while (now := time.monotonic()) < end:
            scene.clocks[victim].set(int((now - began) / _DRIFT_STEP_S * pace_ms))
            wait(_DRIFT_STEP_S)
    finally:
        scene.clocks[victim].set(0)
    return f"{role} {victim} by {pace_ms / 1000 / _DRIFT_STEP_S:+.1f} s each second for {end - began:.1f} s"


def change_voters(scene: Scene) -> str:
    """Remove a voter, perhaps restart it as an observer, and add it again."""
    cluster = scene.cluster
    assert isinstance(cluster, DynamicCluster)
    voters = cluster.wait_for(cluster.voters, 60)
    leader = scene.victim("controller")
    victim = leader if leader in voters and scene.rng.random() < 0.5 else scene.rng.choice(sorted(voters))
    cluster.remove_voter(victim, voters[victim])
    killed = scene.rng.random() < 0.5
    if killed:
        cluster.kill(victim)
        wait(scene.lasting(scene.downs_s))
        cluster.start_node(victim, 90)
    cluster.add_voter(victim, voters[victim])
    return f"{'leader' if victim == leader else 'node'} {victim}{', killed in between' if killed else ''}"


def reassign(scene: Scene) -> str:
    """Remove a replica of each partition of a topic, then add one on a random broker."""
    topic = scene.rng.choice(sorted(scene.topics))
    brokers = [node_id for node_id in scene.cluster.broker_ids if scene.cluster.running(node_id)]
    for count in (2, 3):
        wanted = {index: scene.rng.sample(brokers, count) for index in range(scene.topics[topic])}
        move(scene.cluster, topic, wanted)
    return f"{topic} among {brokers}"


def move(cluster: Cluster, topic: str, wanted: dict[int, list[int]]) -> None:
    """Reassign partitions to these replicas."""
    request = messages.AlterPartitionReassignmentsRequest
    asked = request(
        timeout_ms=20_000,
        topics=[
            request.ReassignableTopic(
                name=TopicName(topic),
                partitions=[
                    request.ReassignablePartition(
                        partition_index=index, replicas=[BrokerId(i) for i in replicas]
                    )
                    for index, replicas in wanted.items()
                ],
            )
        ],
    )

    def accepted() -> bool:
        answer = cluster.ask(asked, 0, timeout_s=30)
        return answer.error_code == ErrorCode.NONE and all(
            part.error_code == ErrorCode.NONE for named in answer.responses for part in named.partitions
        )

    cluster.wait_for(accepted, 60)

    def moved() -> bool:
        found = [cluster.partition(topic, index) for index in wanted]
        return all(
            part is not None
            and sorted(part.replica_nodes) == sorted(replicas)
            and set(part.isr_nodes) == set(part.replica_nodes)
            for part, replicas in zip(found, wanted.values(), strict=True)
        )

    cluster.wait_for(moved, 120)


def add_and_remove(scene: Scene) -> str:
    """Add a broker, move partitions to it and back, then unregister it."""
    newcomer = scene.cluster.spares[0]
    members = [node_id for node_id in scene.cluster.broker_ids if node_id not in scene.cluster.spares]
    scene.cluster.start_node(newcomer, 90)
    for topic, partitions in scene.topics.items():
        wanted = {index: [newcomer, *scene.rng.sample(members, 2)] for index in range(partitions)}
        move(scene.cluster, topic, wanted)
    for topic, partitions in scene.topics.items():
        move(scene.cluster, topic, {index: scene.rng.sample(members, 3) for index in range(partitions)})
    for topic in _internal(scene.cluster):
        _withdraw(scene, topic, newcomer, members)
    scene.cluster.stop(newcomer, 60)
    request = messages.UnregisterBrokerRequest(broker_id=BrokerId(newcomer))

    def unregistered() -> bool:
        code: int = scene.cluster.ask(request, 0, timeout_s=20).error_code
        return code in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED)

    scene.cluster.wait_for(unregistered, 60)
    return f"broker {newcomer}"


def _internal(cluster: Cluster) -> list[str]:
    answer = cluster.ask(messages.MetadataRequest(topics=None), 12)
    return [topic.name for topic in answer.topics if topic.is_internal and topic.name is not None]


def _withdraw(scene: Scene, topic: str, leaver: int, members: list[int]) -> None:
    answer = scene.cluster.ask(
        messages.MetadataRequest(
            topics=[messages.MetadataRequest.MetadataRequestTopic(name=TopicName(topic))]
        ),
        12,
    )
    wanted = {
        part.partition_index: scene.rng.sample(members, 3)
        for part in answer.topics[0].partitions
        if leaver in part.replica_nodes
    }
    if wanted:
        move(scene.cluster, topic, wanted)


Fault = Callable[[Scene], str]
PROCESS_FAULTS: dict[str, Fault] = {
    "kill": kill,
    "kill-two": kill_two,
    "kill-all": kill_all,
    "pause": pause,
    "pause-long": pause_long,
    "restart": restart,
    "rolling": rolling,
    "flip-bit": flip_bit,
    "descriptors": no_descriptors,
    "memory": no_memory,
    "reassign": reassign,
    "features": change_features,
}
NETWORK_FAULTS: dict[str, Fault] = {
    "cut-leader": cut_leader,
    "cut-minority": cut_minority,
    "cut-one-way": cut_one_way,
    "cut-ring": cut_ring,
    "cut-all": cut_all,
    "flap": flap,
}
UPGRADE_FAULTS: dict[str, Fault] = {"upgrade": upgrade}
DISK_FAULTS: dict[str, Fault] = {"full-disk": full_disk}
BROKEN_DISK_FAULTS: dict[str, Fault] = {"broken-disk": broken_disk, "slow-disk": slow_disk}
CLOCK_FAULTS: dict[str, Fault] = {"clock-jump": clock_jump, "clock-drift": clock_drift}
MEMBER_FAULTS: dict[str, Fault] = {"add-remove": add_and_remove}
QUORUM_FAULTS: dict[str, Fault] = {"voters": change_voters}
FAULTS: dict[str, Fault] = {
    **PROCESS_FAULTS,
    **NETWORK_FAULTS,
    **DISK_FAULTS,
    **BROKEN_DISK_FAULTS,
    **CLOCK_FAULTS,
    **MEMBER_FAULTS,
    **QUORUM_FAULTS,
    **UPGRADE_FAULTS,
}
WEIGHTS: dict[str, int] = {
    "kill": 20,
    "kill-two": 4,
    "kill-all": 3,
    "pause": 8,
    "restart": 4,
    "rolling": 1,
    "reassign": 2,
    "cut-leader": 4,
    "cut-minority": 2,
    "cut-one-way": 2,
    "cut-ring": 2,
    "cut-all": 1,
    "full-disk": 1,
    "broken-disk": 2,
    "slow-disk": 2,
    "clock-jump": 2,
    "clock-drift": 1,
    "add-remove": 1,
    "voters": 3,
    "pause-long": 1,
    "flip-bit": 2,
    "descriptors": 2,
    "memory": 2,
    "flap": 2,
    "features": 1,
    "upgrade": 1,
}
"""The relative frequency of each fault."""
