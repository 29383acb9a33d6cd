"""`python -m ottla.testing.sim --seed N` runs one seed; `--seeds COUNT` many, with a line for each that fails."""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys
import time

from ottla.testing.sim.faults import FAULTS
from ottla.testing.sim.mutations import MUTATIONS
from ottla.testing.sim.plan import Plan, drawn
from ottla.testing.sim.world import Result, run


def main() -> None:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of names must follow from the seed, too.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "ottla.testing.sim", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    words = argparse.ArgumentParser(prog="python -m ottla.testing.sim", description=__doc__)
    words.add_argument("--seed", type=int, default=1, help="the first seed, or the only one")
    words.add_argument("--seeds", type=int, default=1, help="how many, counted up from --seed")
    words.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side")
    words.add_argument("--faults", help=f"some of {', '.join(FAULTS)}; all if left out")
    words.add_argument("--seconds", type=float, default=12.0, help="how long faults go on, in simulated time")
    words.add_argument("--mutation", choices=MUTATIONS, help="break the brokers on purpose")
    given = words.parse_args()
    kinds = tuple(given.faults.split(",")) if given.faults else tuple(FAULTS)
    plans = [
        drawn(seed, fault_s=given.seconds, kinds=kinds, mutation=given.mutation)
        for seed in range(given.seed, given.seed + given.seeds)
    ]
    if len(plans) == 1:
        result = run(plans[0])
        _say("\n".join(result.notes))
        _tell(result)
        sys.exit(bool(result.violations))
    sys.exit(_many(plans, given.jobs))


def _many(plans: list[Plan], jobs: int) -> int:
    failed: list[int] = []
    begin = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        for done, result in enumerate(pool.map(run, plans), 1):
            if result.violations:
                failed.append(result.plan.seed)
                sys.stderr.write("\r\x1b[K" if sys.stderr.isatty() else "")
                _tell(result)
            if sys.stderr.isatty():
                rate = done / (time.monotonic() - begin)
                left = (len(plans) - done) / rate
                sys.stderr.write(
                    f"\r\x1b[K{done}/{len(plans)} seeds, {len(failed)} failed, {left:.0f} s left"
                )
    _say(f"{len(plans)} seeds in {time.monotonic() - begin:.0f} s, {len(failed)} failed {failed or ''}")
    return int(bool(failed))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _tell(result: Result) -> None:
    _say(
        f"seed {result.plan.seed}: trace {result.trace:08x}, {result.steps} steps, {result.seconds:.0f} s simulated, "
        f"{result.acknowledged} records acknowledged, {result.committed} transactions committed"
    )
    for violation in result.violations[:20]:
        _say(f"  VIOLATED {violation}")


if __name__ == "__main__":
    main()
