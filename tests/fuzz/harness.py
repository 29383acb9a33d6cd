"""Runs the targets: damages inputs from a seed, and holds every case to its bounds of time, memory and errors."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fuzz.targets import Target

MAX_STALL_S = 0.1
HEAP_TIMES = 4
HEAP_EXTRA = 1 << 20
HEAP_EVERY = 97
"""Every so many cases the memory of one is measured, which is slow."""


@dataclass(slots=True)
class Report:
    """What a target made of its cases."""

    target: str
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    heap_bytes: int = 0
    """The most that one case took beside its allowance by the size of its input."""


class Broken(AssertionError):
    """A case that did what no input may make happen; the text replays it."""


def run_target(target: Target, cases: int, seed: int) -> Report:
    report = Report(target.name)
    rng = random.Random(f"{target.name}/{seed}")
    target.reset()
    good = target.good(rng)
    for number in range(cases):
        if number % target.reuse == 0:
            good = target.good(rng)
        data = bytes(target.damage(rng, good))
        try:
            if number % HEAP_EVERY == 0:
                _measured(target, rng, data, report)
            else:
                _timed(target, rng, data, report)
        except Exception as error:
            raise Broken(
                f"{target.name}, seed {seed}, case {number}: {error!r} for {data[:400].hex()}"
            ) from error
        report.cases += 1
    return report


def _timed(target: Target, rng: random.Random, data: bytes, report: Report) -> None:
    state = rng.getstate()
    outcome, took = _clocked(target, rng, data)
    if took > MAX_STALL_S:
        # What its input makes slow is slow again; what a busy core or a collection of garbage did is not.
        rng.setstate(state)
        outcome, took = _clocked(target, rng, data)
    report.outcomes[outcome] += 1
    report.slowest_s = max(report.slowest_s, took)
    if took > MAX_STALL_S:
        raise AssertionError(f"took {took:.3f} s of a core")


def _clocked(target: Target, rng: random.Random, data: bytes) -> tuple[str, float]:
    began = time.thread_time()
    outcome = feed(target, rng, data)
    return outcome, time.thread_time() - began


def _measured(target: Target, rng: random.Random, data: bytes, report: Report) -> None:
    # What a first use compiles or caches is not the input's fault.
    state = rng.getstate()
    feed(target, rng, data)
    rng.setstate(state)
    tracemalloc.start()
    try:
        report.outcomes[feed(target, rng, data)] += 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    beside = peak - HEAP_TIMES * len(data)
    report.heap_bytes = max(report.heap_bytes, beside)
    if beside > HEAP_EXTRA + target.extra_bytes:
        raise AssertionError(f"took {peak} bytes for an input of {len(data)}")


def feed(target: Target, rng: random.Random, data: bytes) -> str:
    """Return "read", or the name of the error that the target may raise."""
    try:
        target.feed(rng, data)
    except target.allowed as error:
        return type(error).__name__
    return "read"


def run_all(
    targets: Iterable[Target],
    cases: int,
    seed: int,
    report_result: Callable[[Report], None] = lambda report: None,
) -> list[Report]:
    """Spread so many cases over the targets, by their shares."""
    chosen = list(targets)
    whole = sum(target.share for target in chosen)
    reports = []
    for target in chosen:
        reports.append(run_target(target, max(cases * target.share // whole, 1), seed))
        report_result(reports[-1])
    return reports
