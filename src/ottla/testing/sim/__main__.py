"""`python -m ottla.testing.sim --seed N` runs one seed; `--seeds COUNT` many, with a line for each that fails.

With `--continue` only those run that this build has not run yet, and each adds to the tally of the build.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import signal
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from ottla.testing.sim.faults import FAULTS
from ottla.testing.sim.mutations import MUTATIONS
from ottla.testing.sim.plan import CLIENTS, DEFAULT_FAULT_S, Plan, drawn
from ottla.testing.sim.shrinking import shrink
from ottla.testing.sim.world import Result, run
from ottla.testing.tally import Tally, TallyError, at_most, open_tally

_LINE_EACH: Final = 50
"""Seeds."""
_MOST_CPU_S: Final = 300.0
"""For one seed of many, which takes about one second."""


def main() -> None:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings must follow from the seed, too.
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
    words.add_argument("--clients", help=f"some of {', '.join(CLIENTS)}; all if left out")
    words.add_argument("--seconds", type=float, help="how long faults go on, in simulated time")
    words.add_argument("--rounds", type=int, help="how many rounds of faults at most")
    words.add_argument("--without", help="numbers of rounds that are left out, counted from 0")
    words.add_argument("--mutation", choices=MUTATIONS, help="break the brokers on purpose")
    words.add_argument("--shrink", action="store_true", help="shrink a failing run")
    words.add_argument("--until-failure", action="store_true", help="stop at the first seed that fails")
    words.add_argument("--minutes", type=float, default=1e9, help="stop after this time")
    words.add_argument(
        "--continue",
        action="store_true",
        dest="go_on",
        help="run what this build has not run yet, and count it",
    )
    given = words.parse_args()
    if given.go_on and any(
        (given.faults, given.clients, given.seconds, given.rounds, given.without, given.mutation)
    ):
        words.error("--continue counts whole seeds only: leave out what changes or limits them")
    plans = [
        drawn(
            seed,
            fault_s=given.seconds,
            kinds=_names(given.faults),
            clients=_names(given.clients),
            rounds=given.rounds,
            left_out=frozenset(int(number) for number in _names(given.without) or ()),
            mutation=given.mutation,
        )
        for seed in range(given.seed, given.seed + given.seeds)
    ]
    if len(plans) == 1 and not given.go_on:
        sys.exit(_one(plans[0], shrunk=given.shrink))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    end = time.monotonic() + given.minutes * 60
    limits = Limits(given.jobs, end, given.until_failure)
    try:
        if given.go_on:
            sys.exit(_go_on(plans, open_tally(), limits))
        sys.exit(_many(plans, limits, shrunk=given.shrink))
    except TallyError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        _print("interrupted")
        sys.exit(130)


@dataclass(frozen=True, slots=True)
class Limits:
    """How a run of many seeds is limited."""

    jobs: int
    end: float
    until_failure: bool


def _names(given: str | None) -> tuple[str, ...] | None:
    """Return None for all; an empty string means none."""
    return None if given is None else tuple(name for name in given.split(",") if name)


def _one(plan: Plan, *, shrunk: bool) -> int:
    result = run(plan)
    if result.violations and shrunk:
        result = shrink(result, _print)
        _print(f"the smallest failing run: {_command(result.plan)}")
    _print("\n".join(result.notes))
    _report(result)
    return int(bool(result.violations))


def _command(plan: Plan) -> str:
    words = [f"python -m ottla.testing.sim --seed {plan.seed} --clients {','.join(plan.clients)}"]
    if plan.fault_s != DEFAULT_FAULT_S:
        words.append(f"--seconds {plan.fault_s:g}")
    if plan.kinds != tuple(FAULTS):
        words.append(f"--faults {','.join(plan.kinds)}")
    if plan.rounds is not None:
        words.append(f"--rounds {plan.rounds}")
    if plan.left_out:
        words.append(f"--without {','.join(map(str, sorted(plan.left_out)))}")
    if plan.mutation:
        words.append(f"--mutation {plan.mutation}")
    return " ".join(words)


def _go_on(plans: list[Plan], tally: Tally, limits: Limits) -> int:
    """Run the seeds that the tally does not have yet."""
    done = {entry.key: entry for entry in tally.entries("sim")}
    known = [done[str(plan.seed)] for plan in plans if str(plan.seed) in done]
    _print(f"{len(known)} of {len(plans)} seeds are in {tally.path}")
    for entry in known:
        if entry.failures:
            _print(f"seed {entry.key} failed before: {entry.failures[0]}")
    failed_before = any(entry.failures for entry in known)
    left = [plan for plan in plans if str(plan.seed) not in done]
    return (_many(left, limits, tally=tally) if left else 0) or int(failed_before)


def _many(plans: list[Plan], limits: Limits, *, shrunk: bool = False, tally: Tally | None = None) -> int:
    failed: list[Result] = []
    begin = time.monotonic()
    done, cpu_s = 0, 0.0
    with contextlib.closing(_results(plans, limits.jobs)) as results:
        for done, (result, took_s) in enumerate(results, 1):
            cpu_s += took_s
            if tally is not None:
                tally.add(
                    "sim", str(result.plan.seed), _counts(result), failures=result.violations, cpu_s=took_s
                )
            if result.violations:
                failed.append(result)
                _clear_line()
                _report(result)
                if limits.until_failure:
                    break
            if time.monotonic() > limits.end:
                break
            _show(_progress(done, len(plans), len(failed), time.monotonic() - begin), done)
    _clear_line()
    seconds = time.monotonic() - begin
    _print(
        f"{done} seeds in {seconds:.0f} s ({cpu_s / done:.1f} s of CPU each), {len(failed)} failed "
        f"{[result.plan.seed for result in failed] if failed else ''}"
    )
    if failed and shrunk:
        _one(failed[0].plan, shrunk=True)
    return int(bool(failed))


def _counts(result: Result) -> dict[str, float]:
    return {
        "seeds": 1,
        "rounds of faults": result.rounds,
        "records acknowledged": result.acknowledged,
        "transactions committed": result.committed,
    }


def _results(plans: list[Plan], jobs: int) -> Generator[tuple[Result, float], None, None]:
    """Yield results in the order of completion, each with its seconds of CPU."""
    with concurrent.futures.ProcessPoolExecutor(jobs, initializer=_leave_interrupts) as pool:
        futures = [pool.submit(_clocked, plan) for plan in plans]
        try:
            for future in concurrent.futures.as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _leave_interrupts() -> None:
    """Let the first process decide: it waits for the seeds that run, and starts no others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _clocked(plan: Plan) -> tuple[Result, float]:
    began = time.process_time()
    try:
        with at_most(_MOST_CPU_S):
            result = run(plan)
    except Exception as error:  # noqa: BLE001  a seed that breaks the simulator is a finding
        result = Result(plan, 0, 0, 0.0, [f"the simulator broke off: {error!r}"])
    return result, time.process_time() - began


def _progress(done: int, count: int, failed: int, seconds: float) -> str:
    filled = 30 * done // count
    left_s = (count - done) * seconds / done
    return f"[{'#' * filled}{'.' * (30 - filled)}] {done}/{count} seeds, {failed} failed, {left_s:.0f} s left"


def _show(progress: str, done: int) -> None:
    """Show the progress: on a terminal in one line, otherwise a line now and then."""
    if sys.stderr.isatty():
        _clear_line()
        sys.stderr.write(progress)
        sys.stderr.flush()
    elif done % _LINE_EACH == 0:
        _print(progress)


def _clear_line() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _report(result: Result) -> None:
    _print(
        f"seed {result.plan.seed}: trace {result.trace:08x}, {result.steps} steps, {result.seconds:.0f} s simulated, "
        f"{result.acknowledged} records acknowledged, {result.committed} transactions committed"
    )
    for violation in result.violations[:20]:
        _print(f"  VIOLATED {violation}")


if __name__ == "__main__":
    main()
