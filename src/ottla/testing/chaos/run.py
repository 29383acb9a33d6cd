"""One chaos run: a cluster, its load, faults (sometimes two at once), the final reads, the verdict."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import TopicPartition

from ottla.testing.chaos import disk as disks
from ottla.testing.chaos import network as networks
from ottla.testing.chaos import preload
from ottla.testing.chaos.broken_disk import BrokenDisk
from ottla.testing.chaos.clients import Reader, Sender, Transactor, Worker, read_to_end
from ottla.testing.chaos.faults import (
    BROKEN_DISK_FAULTS,
    CLOCK_FAULTS,
    DISK_FAULTS,
    FAULTS,
    MEMBER_FAULTS,
    NETWORK_FAULTS,
    QUORUM_FAULTS,
    UPGRADE_FAULTS,
    WEIGHTS,
    Scene,
)
from ottla.testing.chaos.quorum import DynamicCluster
from ottla.testing.chaos.wrong_clock import WrongClock
from ottla.testing.checks.checker import check, excused
from ottla.testing.checks.history import Fault, Outcome, Recorder
from ottla.testing.checks.seen import Anomaly
from ottla.testing.cluster import Cluster

QUEUE, OUTPUT, LEDGER = "queue", "output", "ledger"
TOPICS: Final = {QUEUE: 4, OUTPUT: 4, LEDGER: 3}
SETTINGS: Final[dict[str, object]] = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "broker.session.timeout.ms": 5_000,
    "replica.lag.time.max.ms": 4_000,
    "log.segment.bytes": 1 << 20,
    # A broker whose clock is behind takes records whose time is far ahead of it.
    "log.message.timestamp.after.max.ms": (1 << 63) - 1,
    "auto.create.topics.enable": "false",
    "offsets.topic.segment.bytes": 1 << 20,
    "transaction.state.log.segment.bytes": 1 << 20,
}
_DISK_BYTES_PER_S: Final = 64 << 10
"""More than what a second of load needs."""
_PROGRESS_S: Final = 90.0
"""After a fault is healed, writes must continue within this time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run. It ends after `seconds` or after `cycles` faults, whichever comes first."""

    directory: Path
    kinds: Sequence[str]
    seconds: float = 60.0
    cycles: int | None = None
    seed: int = 1
    nodes: int = 3
    mixed: float = 0.15
    """The share of faults that come in pairs."""
    pauses_s: tuple[float, float] = (1.0, 12.0)
    cuts_s: tuple[float, float] = (2.0, 12.0)
    between: int = 60
    """Acknowledged sends between two faults."""
    pause_s: float = 0.01
    """Between two sends of one sender."""
    old_source: Path | None = None
    """The source tree of an earlier version: all nodes begin with it, and `upgrade` changes between the two."""
    weights: Mapping[str, float] = field(default_factory=lambda: WEIGHTS)
    """The relative frequency of each fault."""
    each_once: bool = True
    """Whether each kind comes once before the weights decide."""


@dataclass(slots=True)
class Verdict:
    """The result of a run."""

    faults: Counter[str]
    sends: int
    acknowledged: int
    transactions: Counter[str]
    polled: int
    seconds: float
    history: Path
    longest_gap_s: float
    excused: int
    """Duplicates that their producer caused itself."""
    anomalies: list[Anomaly] = field(default_factory=list)


def possible(kinds: Sequence[str] = tuple(FAULTS), *, upgrades: bool = False) -> list[str]:
    """Return the faults that this machine allows; `upgrades` if there is an earlier version."""
    network, disk, preloaded = networks.usable(), disks.usable(), preload.usable()
    return [
        kind
        for kind in kinds
        if (upgrades or kind not in UPGRADE_FAULTS)
        and (network or kind not in NETWORK_FAULTS)
        and (disk or kind not in DISK_FAULTS)
        and (preloaded or kind not in {**BROKEN_DISK_FAULTS, **CLOCK_FAULTS})
    ]


def run(
    plan: Plan,
    report: Callable[[str], None] = lambda line: None,
    enough: threading.Event | None = None,
    beside: Callable[[Cluster, Recorder], contextlib.AbstractContextManager[None]] | None = None,
) -> Verdict:
    """Run the plan. The history stays in `plan.directory`. Setting `enough` ends the run early and cleanly.

    `beside` runs more on the same cluster, from the start of the load to the last reads. It may add to the history.
    """
    enough = enough or threading.Event()
    plan.directory.mkdir(parents=True, exist_ok=True)
    history = plan.directory / "history.jsonl"
    began = time.monotonic()
    anomalies: list[Anomaly] = []
    with contextlib.ExitStack() as stack:
        recorder = stack.enter_context(Recorder(history))
        scene = _set(plan, stack)
        workers = _workers(scene.cluster.bootstrap, recorder, plan)
        for worker in workers:
            worker.start()
        stack.callback(_stop, workers)
        if beside is not None:
            stack.enter_context(beside(scene.cluster, recorder))
        try:
            if not recorder.wait_for_more(plan.between, _PROGRESS_S):
                anomalies.append(Anomaly("no progress", "the load did not start"))
            else:
                anomalies += _faults(plan, scene, recorder, report, enough)
            anomalies += _finish(scene, workers, recorder)
        finally:
            for node_id in scene.cluster.nodes:
                (plan.directory / f"node-{node_id}.log").write_text(scene.cluster.log(node_id))
        anomalies += [
            Anomaly("crash", f"node {node_id} logged a traceback")
            for node_id in scene.cluster.nodes
            if "Traceback" in scene.cluster.log(node_id) and node_id not in _with_bad_disks(scene)
        ]
        verdict = _verdict(recorder, history, time.monotonic() - began)
    verdict.anomalies = [*anomalies, *check(recorder.history)]
    return verdict


def _with_bad_disks(scene: Scene) -> set[int]:
    return scene.sick | {each[0] for each in (scene.disks, scene.broken_disk) if each is not None}


def _set(plan: Plan, stack: contextlib.ExitStack) -> Scene:
    spares = 1 if set(plan.kinds) & set(MEMBER_FAULTS) else 0
    everyone = range(1, plan.nodes + spares + 1)
    network = None
    if set(plan.kinds) & set(NETWORK_FAULTS):
        network = stack.enter_context(networks.Network(everyone))
    rng = random.Random(plan.seed)
    launchers = {i: list(network.launchers[i]) if network else [] for i in everyone}
    clocks: dict[int, WrongClock] = {}
    if set(plan.kinds) & set(CLOCK_FAULTS):
        clocks = {i: WrongClock(plan.directory, f"node-{i}") for i in everyone}
    preloads = {i: [clocks[i].preload] if i in clocks else [] for i in everyone}
    broken_disk = None
    if set(plan.kinds) & set(BROKEN_DISK_FAULTS):
        node_id = rng.randrange(1, plan.nodes + 1)
        broken_disk = (node_id, BrokenDisk(plan.directory, plan.directory / "data" / f"node-{node_id}"))
        preloads[node_id].append(broken_disk[1].preload)
    make = DynamicCluster if set(plan.kinds) & set(QUORUM_FAULTS) else Cluster
    cluster = make(
        plan.directory / "data",
        plan.nodes,
        spares=spares,
        settings=SETTINGS,
        hosts=network.hosts if network else None,
        launchers={i: launchers[i] + preload.launcher(preloads[i]) for i in everyone},
    )
    small_disks = None
    if set(plan.kinds) & set(DISK_FAULTS):
        small_disks = _small_disks(cluster, rng.randrange(1, plan.nodes + 1), plan.seconds, stack)
    stack.callback(cluster.kill_all)
    if plan.old_source is not None:
        for node in cluster.nodes.values():
            node.environment["PYTHONPATH"] = str(plan.old_source)
    cluster.start(120)
    for topic, partitions in TOPICS.items():
        cluster.create_topic(topic, partitions)
    return Scene(
        cluster,
        rng,
        dict(TOPICS),
        network,
        small_disks,
        broken_disk,
        clocks,
        plan.pauses_s,
        plan.cuts_s,
        coordinated=["copy-1", "txn-1", "group"],
        old_source=plan.old_source,
        old_nodes=set(cluster.nodes) if plan.old_source is not None else set(),
    )


def _small_disks(
    cluster: Cluster, node_id: int, seconds: float, stack: contextlib.ExitStack
) -> tuple[int, dict[str, disks.SmallDisk]]:
    """Give a node two log directories and one for metadata, each a disk of its own."""
    plan = cluster.plans[node_id]
    found: dict[str, disks.SmallDisk] = {}
    for name in ("logs-1", "logs-2", "metadata"):
        size = disks.SIZE_BYTES + int(seconds * _DISK_BYTES_PER_S)
        found[name] = disks.SmallDisk(plan.data / name, size)
        stack.callback(found[name].close)
    own = {
        "log.dirs": f"{plan.data / 'logs-1'},{plan.data / 'logs-2'}",
        "metadata.log.dir": str(plan.data / "metadata"),
    }
    cluster.plans[node_id] = dataclasses.replace(plan, properties={**plan.properties, **own})
    return node_id, found


def _partitions(*topics: str) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic in topics for index in range(TOPICS[topic])]


def _workers(bootstrap: str, recorder: Recorder, plan: Plan) -> list[Worker]:
    """Create the clients. Senders fill the queue, copiers copy it to the output; the ledger gets transactions only."""
    seed, everything = plan.seed, _partitions(*TOPICS)
    queue, ledger = _partitions(QUEUE), _partitions(LEDGER)
    workers: list[Worker] = [
        Sender(f"send-{number}", bootstrap, recorder, seed, partitions=queue, pause_s=plan.pause_s)
        for number in (1, 2)
    ]
    workers += [
        Transactor(f"txn-{number}", bootstrap, recorder, seed, partitions=ledger + _partitions(QUEUE))
        for number in (1, 2)
    ]
    workers.append(
        Transactor(
            "copy-1",
            bootstrap,
            recorder,
            seed,
            partitions=_partitions(OUTPUT),
            source=QUEUE,
            source_partitions=TOPICS[QUEUE],
        )
    )
    workers += [
        Reader(f"group-{number}", bootstrap, recorder, seed, partitions=everything, group="group")
        for number in (1, 2)
    ]
    workers.append(Reader("assigned", bootstrap, recorder, seed, partitions=everything))
    workers.append(Reader("dirty", bootstrap, recorder, seed, partitions=everything, committed=False))
    return workers


def _faults(
    plan: Plan, scene: Scene, recorder: Recorder, report: Callable[[str], None], enough: threading.Event
) -> list[Anomaly]:
    deadline = time.monotonic() + plan.seconds
    weights = [plan.weights[kind] for kind in plan.kinds]
    order = list(plan.kinds) if plan.each_once else []
    scene.rng.shuffle(order)
    done = 0
    while time.monotonic() < deadline and not enough.is_set() and done != plan.cycles:
        kinds = [order.pop() if order else scene.rng.choices(list(plan.kinds), weights)[0]]
        if scene.rng.random() < plan.mixed:
            kinds += [kind for kind in ("pause", "cut-one-way") if kind in plan.kinds and kind != kinds[0]][
                :1
            ]
        began = time.monotonic()
        failed = _do(kinds, scene, recorder)
        if failed:
            return failed
        healed = time.monotonic()
        if not recorder.wait_for_more(plan.between, _PROGRESS_S):
            return [Anomaly("no progress", f"no writes within {_PROGRESS_S} s after {' and '.join(kinds)}")]
        done += 1
        report(
            f"{done:4} {' + '.join(kinds):24} {healed - began:5.1f} s,"
            f" then {time.monotonic() - healed:4.1f} s to go on;"
            f" {recorder.acknowledged} acknowledged, {recorder.polled} polled,"
            f" {max(deadline - time.monotonic(), 0):.0f} s left"
        )
    return []


def _do(kinds: list[str], scene: Scene, recorder: Recorder) -> list[Anomaly]:
    """Run one or more faults at once. A node that does not come back ends the run."""
    failed: list[Anomaly] = []

    def one(kind: str) -> None:
        began = time.monotonic()
        try:
            what = FAULTS[kind](scene)
        except Exception as error:  # noqa: BLE001  every error of a thread belongs to the verdict
            what = f"failed: {error}"
            failed.append(Anomaly("no recovery", f"{kind}: {str(error)[:2000]}"))
        recorder.add(Fault(kind, what[:200], began, time.monotonic()))

    threads = [threading.Thread(target=one, args=(kind,)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def _finish(scene: Scene, workers: list[Worker], recorder: Recorder) -> list[Anomaly]:
    """Heal everything, stop the clients, and read all records."""
    if scene.network is not None:
        scene.network.heal()
    down = [i for i in scene.cluster.nodes if not scene.cluster.running(i) and i not in scene.cluster.spares]
    try:
        for node_id in down:
            scene.cluster.nodes[node_id].launch()
        for node_id in down:
            scene.cluster.nodes[node_id].wait_ready(90)
        for topic, partitions in scene.topics.items():
            scene.cluster.wait_in_sync(topic, partitions, 90)
    except Exception as error:  # noqa: BLE001  the verdict reports it
        return [Anomaly("no recovery", str(error)[:2000])]
    _stop(workers)
    anomalies = [
        Anomaly("client failed", f"{worker.client}: {worker.trouble!r}")
        for worker in workers
        if worker.trouble is not None or worker.is_alive()
    ]
    try:
        for committed in (True, False):
            read_to_end(
                scene.cluster.bootstrap,
                recorder,
                _partitions(*scene.topics),
                committed=committed,
                timeout_s=90,
            )
    except TimeoutError as error:
        anomalies.append(Anomaly("no recovery", str(error)))
    return anomalies


def _stop(workers: list[Worker]) -> None:
    for worker in workers:
        worker.stopping.set()
    deadline = time.monotonic() + 180
    for worker in workers:
        worker.join(max(deadline - time.monotonic(), 0.1))


def _verdict(recorder: Recorder, history: Path, seconds: float) -> Verdict:
    found = recorder.history
    ended = sorted(send.ended for send in found.sends if send.outcome is Outcome.OK)
    return Verdict(
        Counter(fault.kind for fault in found.faults),
        len(found.sends),
        recorder.acknowledged,
        Counter(transaction.outcome.value for transaction in found.transactions),
        recorder.polled,
        seconds,
        history,
        max((b - a for a, b in itertools.pairwise(ended)), default=0.0),
        excused(found),
    )
