"""A failing run made smaller: fewer kinds of faults, fewer clients, less time, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from ottla.testing.sim.plan import Plan
from ottla.testing.sim.world import Result, run

_MOST_RUNS: Final = 60


def shrink(result: Result, tell: Callable[[str], None]) -> Result:
    """The smallest failing run that was found; of whatever kind its failure is."""
    runs = 0
    smaller = True
    while smaller:
        smaller = False
        for plan in _less(result.plan):
            runs += 1
            if runs > _MOST_RUNS:
                return result
            found = run(plan)
            if found.violations:
                tell(
                    f"fails, too: {', '.join(plan.kinds)} for {plan.fault_s:g} s, with {', '.join(plan.clients)}"
                )
                result, smaller = found, True
                break
    return result


def _less(plan: Plan) -> Iterator[Plan]:
    """Half of it first, then all but one."""
    if plan.fault_s > 1:
        yield replace(plan, fault_s=plan.fault_s / 2)
    for half in _halves(plan.kinds):
        yield replace(plan, kinds=half)
    for half in _halves(plan.clients):
        yield replace(plan, clients=half)
    for left_out in plan.kinds if len(plan.kinds) > 2 else ():
        yield replace(plan, kinds=tuple(kind for kind in plan.kinds if kind != left_out))
    for left_out in plan.clients if len(plan.clients) > 2 else ():
        yield replace(plan, clients=tuple(name for name in plan.clients if name != left_out))


def _halves(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if len(words) > 1:
        middle = len(words) // 2
        yield words[:middle]
        yield words[middle:]
