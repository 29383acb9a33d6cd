"""Groups and transactions: rebalances, commits, transactions. Left out, with a note, where they are not served."""

from __future__ import annotations

import itertools
from collections import Counter

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.systems import System, cpu_seconds
from ottla.testing.raw_client import RawClient
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ApiVersionsRequest

_GROUPS = ((10, 30, 0), (50, 100, 500))
"""Members, partitions, and the heartbeat interval of classic members in ms (0: the client's own)."""

_CLIENTS = (
    ("one after the other", 1, ""),
    ("of ten clients", 10, ""),
    # Ten clients with librdkafka take more CPU than the broker, and all of it in one interpreter.
    ("of ten bare sockets", 10, "bare-"),
)
"""Names of figures, clients, and what their load begins with."""

_FLAT = 1.05
_WARM_RUNS = 10
"""A system is warm when a run is no faster than the one before by more than this factor, or after so many runs."""


def serves(system: System, *keys: ApiKey) -> bool:
    """Whether ApiVersions names all of these."""
    host, _, port = system.bootstrap.rpartition(":")
    with RawClient(host, int(port), timeout_s=30) as client:
        answer = client.ask(ApiVersionsRequest(), 0)
    return {int(key) for key in keys} <= {each.api_key for each in answer.api_keys}


def _all_serve(bench: Bench, row: str, *keys: ApiKey) -> bool:
    missing = [system.name for system in bench.systems if not serves(system, *keys)]
    for name in missing:
        bench.sheet.note(f"{row}: left out, {name} does not serve {', '.join(key.name for key in keys)}")
    return not missing


def groups(bench: Bench) -> None:
    needed = {"classic": ApiKey.JOIN_GROUP, "consumer": ApiKey.CONSUMER_GROUP_HEARTBEAT}
    for (members, partitions, heartbeat_ms), (protocol, key) in itertools.product(_GROUPS, needed.items()):
        row = f"group of {members}, {protocol} protocol"
        if not _all_serve(bench, row, key):
            continue
        rounds: Counter[str] = Counter()
        for system in bench.turns(bench.scale.few_rounds + 1):
            topic = bench.topic(system, "group", partitions)
            rounds[system.name] += 1
            plan = Load(
                system.bootstrap,
                topic,
                partitions=partitions,
                connections=members,
                protocol=protocol,
                heartbeat_ms=heartbeat_ms,
                # Both systems meet the members at the same moments between two heartbeats, others in each round.
                seed=rounds[system.name],
            )
            for name, seconds in load.run("rebalance", plan).items():
                bench.sheet.add(system.name, row, name, "s", seconds)
            load.delete_topic(system.bootstrap, topic)


def commits(bench: Bench) -> None:
    if _all_serve(bench, "commits", ApiKey.OFFSET_COMMIT):
        _rate(bench, "commits")


def transactions(bench: Bench) -> None:
    if _all_serve(bench, "transactions", ApiKey.END_TXN):
        _rate(bench, "transactions")


def _rate(bench: Bench, kind: str) -> None:
    for name, clients, how in _CLIENTS:
        for system in bench.turns(rounds=1):
            _warm(bench, system, how + kind, clients)
        for system in bench.turns(bench.scale.few_rounds):
            before_s = cpu_seconds(system.pid)
            unit, rate = _run(bench, system, how + kind, clients, bench.scale.seconds)
            spent_s = cpu_seconds(system.pid) - before_s
            bench.sheet.add(system.name, kind, name, unit, rate, higher=True)
            each = f"µs/{kind.removesuffix('s')}"
            bench.sheet.add(
                system.name, kind, f"{name}, broker CPU", each, spent_s * 1e6 / (rate * bench.scale.seconds)
            )


def _warm(bench: Bench, system: System, kind: str, clients: int) -> None:
    """Until it is no longer getting faster: a JVM goes on compiling for a minute of this work."""
    before = 0.0
    for _ in range(_WARM_RUNS):
        _, rate = _run(bench, system, kind, clients, bench.scale.seconds / 2)
        if rate <= before * _FLAT:
            return
        before = rate


def _run(bench: Bench, system: System, kind: str, clients: int, seconds: float) -> tuple[str, float]:
    topic = bench.topic(system, kind, 1)
    plan = Load(system.bootstrap, topic, partitions=1, seconds=seconds, connections=clients)
    (figure,) = load.run(kind, plan).items()
    load.delete_topic(system.bootstrap, topic)
    return figure
