"""Groups and transactions: rebalances, commits, transactions. Left out, with a note, where they are not served."""

from __future__ import annotations

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.systems import System
from ottla.testing.raw_client import RawClient
from ottla.wire.apis import ApiKey
from ottla.wire.messages import ApiVersionsRequest

_MEMBERS = 50
_GROUP_PARTITIONS = 100


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
    for protocol, key in needed.items():
        row = f"group of {_MEMBERS}, {protocol} protocol"
        if not _all_serve(bench, row, key):
            continue
        for system in bench.turns(bench.scale.few_rounds):
            topic = bench.topic(system, "group", _GROUP_PARTITIONS)
            plan = Load(
                system.bootstrap,
                topic,
                partitions=_GROUP_PARTITIONS,
                connections=_MEMBERS,
                protocol=protocol,
            )
            for name, seconds in load.run("rebalance", plan).items():
                bench.sheet.add(system.name, row, name, "s", seconds)
            load.delete_topic(system.bootstrap, topic)
    if _all_serve(bench, "commits", ApiKey.OFFSET_COMMIT):
        _rate(bench, "commits")


def transactions(bench: Bench) -> None:
    if _all_serve(bench, "transactions", ApiKey.END_TXN):
        _rate(bench, "transactions")


def _rate(bench: Bench, kind: str) -> None:
    for system in bench.turns(bench.scale.few_rounds):
        topic = bench.topic(system, kind, 1)
        plan = Load(system.bootstrap, topic, partitions=1, seconds=bench.scale.seconds / 2)
        (figure,) = load.run(kind, plan).items()
        bench.sheet.add(system.name, kind, "one after the other", figure[0], figure[1], higher=True)
        load.delete_topic(system.bootstrap, topic)
