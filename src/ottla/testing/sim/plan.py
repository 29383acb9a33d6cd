"""The plan of a run: the cluster, its settings, the clients and the faults, all chosen by the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from ottla.testing.sim.faults import FAULTS
from ottla.testing.sim.history import DELIVERIES
from ottla.testing.sim.node import CONTROLLER_PORT

COMBINED: Final = "broker,controller"
DEFAULT_FAULT_S: Final = 12.0

_LAYOUTS: Final = (
    *[(COMBINED,) * 3] * 6,
    *[(COMBINED,) * 3 + ("broker",)] * 3,
    ("controller",) * 3 + ("broker",) * 3,
)

_PATIENCE: Final = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "600",
    "controller.quorum.fetch.timeout.ms": "1200",
    "controller.quorum.election.backoff.max.ms": "400",
    "replica.lag.time.max.ms": "3000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "600",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.min.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "300",
    "group.share.heartbeat.interval.ms": "600",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.session.timeout.ms": "2000",
    "group.share.record.lock.duration.ms": "2000",
    "group.share.min.record.lock.duration.ms": "1000",
}
"""Shorter timeouts than in production, so that faults of seconds have consequences."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run. `drawn` creates one; shrinking removes parts."""

    seed: int
    layout: tuple[str, ...] = (COMBINED,) * 3
    """The roles of each node."""
    clients: tuple[str, ...] = ("p0", "p1", "t0", "t1", "u0", "r0")
    """The first letter is the kind, see `ottla.testing.sim.clients`."""
    kinds: tuple[str, ...] = tuple(FAULTS)
    fault_s: float = DEFAULT_FAULT_S
    rounds: int | None = None
    """The highest number of rounds of faults."""
    left_out: frozenset[int] = frozenset()
    """Rounds of faults that are left out; the others do not change."""
    pause_s: float = 0.4
    """The longest pause of a client between two requests."""
    dynamic: bool = False
    """Whether the quorum is dynamic; the first three controllers are its first voters."""
    settings: dict[str, str] = field(default_factory=dict)
    """Additional settings of the brokers."""
    internal_segment_bytes: int | None = None
    """The segment size of the clients' topics."""
    mutation: str | None = None
    """The mutation of the brokers, see `ottla.testing.sim.mutations`."""


_ALWAYS: Final = ("p0", "p1", "t0", "t1", "u0", "r0")
_FAMILIES: Final = (("g0", "g1"), ("c0", "c1"), ("x0", "x1"), ("q0", "s0", "s1"))
"""Groups of the consumer protocol, classic groups, transactional copies, and share groups with what feeds them."""
CLIENTS: Final = _ALWAYS + sum(_FAMILIES, ())


def _some_clients(rng: random.Random) -> tuple[str, ...]:
    """Choose two or three families of clients: all together would slow each other down."""
    chosen = rng.sample(_FAMILIES, rng.choice((2, 2, 3)))
    return tuple(name for name in CLIENTS if name in _ALWAYS or any(name in family for family in chosen))


def drawn(
    seed: int,
    *,
    kinds: tuple[str, ...] | None = None,
    clients: tuple[str, ...] | None = None,
    fault_s: float | None = None,
    rounds: int | None = None,
    left_out: frozenset[int] = frozenset(),
    mutation: str | None = None,
) -> Plan:
    """Return the plan of a seed; arguments override its choices."""
    rng = random.Random(f"plan {seed}")
    settings: dict[str, str] = {}
    if rng.random() < 0.4:
        settings["metadata.log.max.record.bytes.between.snapshots"] = str(rng.choice((500, 2000, 8000)))
        settings["internal.metadata.log.segment.bytes"] = str(rng.choice((1000, 10_000)))
    if rng.random() < 0.3:
        settings["log.roll.ms"] = str(rng.choice((500, 3000)))
    if rng.random() < 0.4:
        settings |= {
            "log.cleaner.backoff.ms": "800",
            "log.cleaner.min.cleanable.ratio": "0.1",
            "log.roll.ms": "1000",
        }
    segment_bytes = rng.choice((None, None, 600, 3000))
    layout = rng.choice(_LAYOUTS)
    pause_s = rng.choice((0.3, 0.6, 0.9))
    some_clients = _some_clients(rng)
    dynamic = rng.random() < 0.4
    if rng.random() < 0.3:
        settings["log.dirs"] = "/data,/more"
    if rng.random() < 0.3:
        settings["metadata.log.dir"] = "/metadata"
    if dynamic and len(layout) == 4:
        layout = (COMBINED,) * 4
    return Plan(
        seed,
        layout=layout,
        clients=some_clients if clients is None else clients,
        kinds=tuple(FAULTS) if kinds is None else kinds,
        fault_s=DEFAULT_FAULT_S if fault_s is None else fault_s,
        rounds=rounds,
        left_out=left_out,
        pause_s=pause_s,
        dynamic=dynamic,
        settings=settings,
        internal_segment_bytes=segment_bytes,
        mutation=mutation,
    )


def properties(plan: Plan, node_id: int) -> dict[str, str]:
    """Return the configuration of one node."""
    roles = plan.layout[node_id - 1]
    voters = [i for i, each in enumerate(plan.layout, 1) if "controller" in each]
    listeners = []
    if "broker" in roles:
        listeners.append(f"PLAINTEXT://n{node_id}:9092")
    if "controller" in roles:
        listeners.append(f"CONTROLLER://n{node_id}:{CONTROLLER_PORT}")
    quorum = (
        {"controller.quorum.bootstrap.servers": ",".join(f"n{i}:{CONTROLLER_PORT}" for i in voters)}
        if plan.dynamic
        else {"controller.quorum.voters": ",".join(f"{i}@n{i}:{CONTROLLER_PORT}" for i in voters)}
    )
    factor = str(min(3, sum("broker" in each for each in plan.layout)))
    return {
        "process.roles": roles,
        "node.id": str(node_id),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        **quorum,
        "log.dirs": "/data",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": "2",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": "2",
        "min.insync.replicas": "2",
        "group.share.delivery.count.limit": str(DELIVERIES),
        **_PATIENCE,
        **plan.settings,
    }
