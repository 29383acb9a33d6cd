"""The Python client API beside kafka-python, whose interface it has, on the same broker."""

from __future__ import annotations

from bench import load
from bench.context import Bench
from bench.load import Load
from bench.sheet import KAFKA, OTTLA

_RECORDS = 300_000
_PEER_RECORDS = 100_000
"""It takes ten times as long for each."""


def client(bench: Bench) -> None:
    """Both on the Ottla broker. In these figures the column of the peer is kafka-python's."""
    bench.sheet.note("client API: the peer's figures are those of kafka-python on the same Ottla broker")
    (system,) = [each for each in bench.systems if each.name == OTTLA]
    for size in (100, 1000):
        row = f"client API, {size} B"
        for _ in bench.turns(bench.scale.few_rounds, [system]):
            for name, prefix, records in ((OTTLA, "client", _RECORDS), (KAFKA, "peer", _PEER_RECORDS)):
                topic = bench.topic(system, "client", 1)
                plan = Load(system.bootstrap, topic, records, size)
                for kind in ("produce", "consume"):
                    figures = load.run(f"{prefix}-{kind}", plan)
                    bench.sheet.add(name, row, kind, "records/s", figures["records/s"], higher=True)
                    bench.sheet.add(name, row, f"{kind}, client's CPU", "µs/record", figures["CPU"])
                load.delete_topic(system.bootstrap, topic)
