"""Shrinks a failing run: fewer rounds of faults, then fewer clients, as long as it fails in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from ottla.testing.sim.plan import Plan
from ottla.testing.sim.world import Result, run

T = TypeVar("T")

_MOST_RUNS: Final = 80
_DETAILS: Final = re.compile(r"b'[^']*'|\b[a-z]+\d+(\.\d+)?\b|\b[\w-]+-\d+\b|\d+")
"""Values, names and numbers: the parts that differ between two failures of one kind."""


def shrink(result: Result, report: Callable[[str], None], again: Callable[[Plan], Result] = run) -> Result:
    """Return the smallest run that was found to fail in the same way."""
    return _Shrinking(result, report, again).shrink()


def kinds(violations: Sequence[str]) -> set[str]:
    """Return the kinds of violations."""
    return {_DETAILS.sub("_", violation) for violation in violations}


class _Shrinking:
    def __init__(
        self, result: Result, report: Callable[[str], None], again: Callable[[Plan], Result]
    ) -> None:
        self._best = result
        self._report = report
        self._again = again
        self._wanted = kinds(result.violations)
        self._runs = 0

    def shrink(self) -> Result:
        rounds = self._best.plan.rounds or self._best.rounds
        kept = [i for i in range(rounds) if i not in self._best.plan.left_out]
        self._fewer(
            kept,
            lambda some: replace(
                self._best.plan, rounds=rounds, left_out=frozenset(range(rounds)) - frozenset(some)
            ),
        )
        self._fewer(list(self._best.plan.clients), lambda some: replace(self._best.plan, clients=tuple(some)))
        return self._best

    def _fewer(self, things: list[T], plan: Callable[[list[T]], Plan]) -> None:
        """Remove parts, large ones first, as long as the rest fails, too."""
        size = max(len(things) // 2, 1)
        while things and self._runs < _MOST_RUNS:
            left = next((some for some in _without_a_part(things, size) if self._fails(plan(some))), None)
            if left is not None:
                things = left
                size = min(size, max(len(things) // 2, 1))
            elif size == 1:
                return
            else:
                size //= 2

    def _fails(self, plan: Plan) -> bool:
        if self._runs >= _MOST_RUNS:
            return False
        self._runs += 1
        found = self._again(plan)
        if not kinds(found.violations) & self._wanted:
            return False
        rounds = found.rounds - len(plan.left_out)
        self._report(f"still fails: {rounds} rounds of faults, with {', '.join(plan.clients)}")
        self._best = found
        return True


def _without_a_part(things: list[T], size: int) -> Iterator[list[T]]:
    """Yield the list without one part, the last part first: later rounds rarely matter."""
    for start in reversed(range(0, len(things), size)):
        yield things[:start] + things[start + size :]
