"""`make chaos CONTINUE=1`: runs of some minutes, until the tally of the build has as many kills, pauses and partitions.

A run counts when its history was checked. One that is interrupted ends in order, and counts too; one that was killed
does not.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ottla.testing.chaos.faults import WEIGHTS
from ottla.testing.chaos.run import Plan, Verdict, run
from ottla.testing.tally import KILLS, PARTITIONS, PAUSES, Tally

CLASSES: Final[Mapping[str, tuple[str, ...]]] = {"kills": KILLS, "pauses": PAUSES, "partitions": PARTITIONS}
_OTHERS: Final = 4
"""Kinds beside those that are counted, in each run: other ones each time."""
_OTHERS_SHARE: Final = 0.15
_MOST_BARREN: Final = 3
"""Runs in a row that ended without a fault."""


def lacking(tally: Tally, wanted: Mapping[str, int]) -> dict[str, float]:
    """Return how many faults of each class the build lacks."""
    done = tally.totals("chaos")
    left = {name: wanted[name] - sum(done.get(kind, 0) for kind in CLASSES[name]) for name in CLASSES}
    return {name: count for name, count in left.items() if count > 0}


def kinds_and_weights(
    left: Mapping[str, float], possible: Sequence[str], rng: random.Random
) -> tuple[list[str], dict[str, float]]:
    """Choose the faults of a run: classes by what they lack, and some other kinds."""
    weights: dict[str, float] = {}
    for name, count in left.items():
        own = [kind for kind in CLASSES[name] if kind in possible]
        whole = sum(WEIGHTS[kind] for kind in own)
        weights |= {kind: count * WEIGHTS[kind] / whole for kind in own}
    counted = {kind for kinds in CLASSES.values() for kind in kinds}
    rest = [kind for kind in possible if kind not in counted]
    others = rng.sample(rest, min(_OTHERS, len(rest)))
    share = sum(weights.values()) * _OTHERS_SHARE / max(len(others), 1)
    weights |= dict.fromkeys(others, share)
    return [kind for kind in possible if kind in weights], weights


def go_on(
    plan: Plan,
    tally: Tally,
    wanted: Mapping[str, int],
    say: Callable[[str], None],
    enough: threading.Event,
    one: Callable[[Plan, Callable[[str], None], threading.Event], Verdict] = run,
) -> int:
    """Run until nothing is lacking; returns the exit code. `plan` has the faults that are possible."""
    failed = [entry for entry in tally.entries("chaos") if entry.failures]
    for entry in failed:
        say(f"run {entry.key} failed: {entry.failures[0]}")
    barren = 0
    while (left := lacking(tally, wanted)) and not enough.is_set():
        impossible = [name for name in left if not set(CLASSES[name]) & set(plan.kinds)]
        if impossible:
            say(
                f"{' and '.join(impossible)} are lacking, and cannot be had here: see the faults that are skipped"
            )
            return 2
        say("lacking " + ", ".join(f"{count:,.0f} {name}" for name, count in left.items()))
        seed = plan.seed + len(tally.entries("chaos"))
        kinds, weights = kinds_and_weights(left, plan.kinds, random.Random(seed))
        directory = plan.directory / f"{time.strftime('%Y%m%d-%H%M%S')}-{seed}"
        each = replace(plan, directory=directory, kinds=kinds, weights=weights, seed=seed, each_once=False)
        began = time.monotonic()
        try:
            verdict = one(each, say, enough)
            counts, found = _counts(verdict), [f"{a.kind}: {a.what}" for a in verdict.anomalies]
        except Exception as error:  # noqa: BLE001  a run that breaks off is a finding, and the next may hold
            counts, found = {}, [f"the run broke off: {error!r}"]
        tally.add("chaos", directory.name, counts, failures=found, seconds=time.monotonic() - began)
        if found:
            failed.append(tally.entries("chaos")[-1])
            say(f"run {directory.name} failed: {found[0]}; its history is in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
        barren = 0 if set(counts) & set(WEIGHTS) else barren + 1
        if barren >= _MOST_BARREN:
            say(f"{barren} runs in a row had no fault: giving up")
            return 2
    return int(bool(failed))


def _counts(verdict: Verdict) -> dict[str, float]:
    return {
        **verdict.faults,
        "records acknowledged": verdict.acknowledged,
        "records polled": verdict.polled,
        **{f"transactions {outcome}": count for outcome, count in verdict.transactions.items()},
    }
