"""Ottla's parts alone, and the limits of the machine: the reference for the other figures."""

from __future__ import annotations

from bench import machine
from bench.context import Bench
from bench.sheet import MACHINE, OTTLA


def micro(bench: Bench) -> None:
    from bench import micro as parts

    for name, microseconds in parts.run().items():
        bench.sheet.add(OTTLA, "microbenchmark", name, "µs", microseconds)


def limits(bench: Bench) -> None:
    for _ in range(bench.scale.few_rounds):
        for name, rate in machine.limits().items():
            bench.sheet.add(MACHINE, "the machine", name, "GB/s", rate, higher=True)
