"""`make fuzz CONTINUE=1`: cases in pieces of one target and one seed, each of which adds to the tally of the build."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from fuzz import hostile_peer
from fuzz.harness import Broken, run_target
from fuzz.login_targets import LOGIN_TARGETS
from fuzz.part_targets import PART_TARGETS
from fuzz.request_targets import REQUEST_TARGETS
from fuzz.schema_targets import SCHEMA_TARGETS
from fuzz.targets import TARGETS, Target
from ottla.testing.tally import Tally, at_most

ALL_TARGETS: list[Target] = [
    *TARGETS,
    *SCHEMA_TARGETS,
    *PART_TARGETS,
    *REQUEST_TARGETS,
    *LOGIN_TARGETS,
]
CASES_PER_SHARE = 1000
FRAMES = 5_000
QUORUMS = 30
_QUORUM_TICKS = 40
_MOST_CPU_S = 300.0
"""For one piece, which takes some seconds."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The cases of one target with one seed."""

    target: str
    seed: int

    @property
    def key(self) -> str:
        return f"{self.target}/{self.seed}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a piece gave."""

    piece: Piece
    cases: int
    failures: tuple[str, ...]
    cpu_s: float
    seconds: float


def pieces(count: int, targets: Sequence[Target], others: Sequence[str] = ()) -> list[Piece]:
    """Return pieces with at least so many cases together, seed by seed over all targets."""
    per_seed = CASES_PER_SHARE * sum(target.share for target in targets)
    names = [*(target.name for target in targets), *others]
    return [Piece(name, seed) for seed in range(1, -(-count // per_seed) + 1) for name in names]


Others = dict[str, Callable[[int], int]]
"""What is more than bytes for a function, by name: runs the cases of a seed, and returns their number."""


def lying_quorums(seed: int) -> int:
    """Run quorums with liars in them; returns how many lies there were."""
    first = seed * QUORUMS
    return sum(
        hostile_peer.run(one, _QUORUM_TICKS, dynamic=one % 2 == 1).lies
        for one in range(first, first + QUORUMS)
    )


def run_piece(piece: Piece, others: Others) -> Outcome:
    """Run one piece in this process."""
    logging.disable(logging.CRITICAL)
    began, cpu = time.monotonic(), _cpu_s()
    cases, failures = 0, ()
    try:
        with at_most(_MOST_CPU_S):
            if piece.target in others:
                cases = others[piece.target](piece.seed)
            else:
                target = next(each for each in ALL_TARGETS if each.name == piece.target)
                cases = run_target(target, CASES_PER_SHARE * target.share, piece.seed).cases
    except Broken as broken:
        failures = (str(broken),)
    except Exception as error:  # noqa: BLE001  a broker or quorum that does not hold is a finding
        failures = (f"{piece.key}: {error!r}",)
    return Outcome(piece, cases, failures, _cpu_s() - cpu, time.monotonic() - began)


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def go_on(
    wanted: Sequence[Piece], tally: Tally, others: Others, jobs: int, say: Callable[[str], None]
) -> int:
    """Run the pieces that the tally does not have, and add each; returns the exit code."""
    before = {entry.key: entry for entry in tally.entries("fuzz")}
    left = [piece for piece in wanted if piece.key not in before]
    failed = [before[piece.key].failures[0] for piece in wanted if _failed(before.get(piece.key))]
    say(f"{len(wanted) - len(left)} of {len(wanted)} pieces are in {tally.path}")
    with contextlib.closing(_outcomes(left, others, jobs)) as outcomes:
        for done, each in enumerate(outcomes, 1):
            tally.add(
                "fuzz",
                each.piece.key,
                {each.piece.target: each.cases},
                failures=each.failures,
                cpu_s=each.cpu_s,
                seconds=each.seconds,
            )
            failed += each.failures
            rate = each.cases / max(each.cpu_s, 1e-9)
            say(f"{done}/{len(left)} {each.piece.key:28} {each.cases:6} cases, {rate:7.0f} per CPU second")
    for text in failed:
        say(f"BROKEN {text}")
    return int(bool(failed))


def _failed(entry: object) -> bool:
    return bool(getattr(entry, "failures", ()))


def _outcomes(left: Sequence[Piece], others: Others, jobs: int) -> Generator[Outcome, None, None]:
    if not left:
        return
    with concurrent.futures.ProcessPoolExecutor(jobs, initializer=_begin, initargs=(others,)) as pool:
        futures = [pool.submit(_run_here, piece) for piece in left]
        try:
            for future in concurrent.futures.as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


_others: Others = {}


def _begin(others: Others) -> None:
    """Let the first process decide: it waits for the pieces that run, and starts no others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _others.update(others)


def _run_here(piece: Piece) -> Outcome:
    return run_piece(piece, _others)
