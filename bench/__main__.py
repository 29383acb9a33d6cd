"""`make bench`: run rows on both systems, print the table, write the JSON and the charts."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from bench import chart, pauses, report, stalls
from bench.context import Bench
from bench.pauses import Pauses
from bench.rows import FULL_ROWS, OWN_ROWS, QUICK_ROWS, ROWS, WARM_ROWS
from bench.rows.warm import warm_up
from bench.scale import SCALES
from bench.sheet import MACHINE, OTTLA, Sheet, Span
from bench.stalls import Stall
from bench.systems import HELD_SETTINGS, Kafka, Ottla, System, stop_cleanly

_LONG_STALL_S = 0.05
"""Of longer stalls the result says where they were."""


def main() -> None:
    given = _words()
    names = _rows(given)
    sheet = Sheet()
    scratch = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=given.directory))
    failed = False
    try:
        systems: list[System] = [
            Ottla(scratch / "ottla", HELD_SETTINGS),
            Kafka(scratch / "kafka", HELD_SETTINGS),
        ]
        systems = [one for one in systems if given.only in (None, one.name)]
        bench = Bench(systems, SCALES[given.scale], sheet, scratch)
        bench.stalls.mkdir()
        os.environ[stalls.WATCHDOG] = str(bench.stalls)
        with pauses.measured(scratch / "pauses.json") as of_machine:
            # Measure the machine first, before anything fills its page cache.
            _run(bench, [name for name in OWN_ROWS if name in names])
            if on_warm := [name for name in WARM_ROWS if name in names]:
                _run_warm(bench, on_warm)
        _add_stalls(bench, of_machine)
    except Exception as error:  # noqa: BLE001 - show what was measured before it
        traceback.print_exc()
        failed = True
        sheet.note(f"This run ended early, after {len(sheet.spans)} rows, and no file was written: {error!r}")
    finally:
        os.environ.pop(stalls.WATCHDOG, None)
        shutil.rmtree(scratch, ignore_errors=True)
    result = report.document(sheet, given.scale)
    if failed:
        print(report.page(result))
        sys.exit(1)
    if given.add and given.json.exists():
        result = report.joined(json.loads(given.json.read_text()), result)
    given.json.write_text(json.dumps(result, indent=1) + "\n")
    if given.charts is not None:
        chart.write(result, given.charts)
    print(report.page(result))


def _words() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="bench", description=__doc__)
    words.add_argument("--rows", help=f"some of {', '.join(ROWS)}")
    words.add_argument("--scale", choices=SCALES, default="full", help="how much work each row does")
    words.add_argument("--quick", dest="scale", action="store_const", const="quick", help="--scale quick")
    words.add_argument("--only", choices=("ottla", "kafka"), help="leave the other system out")
    words.add_argument("--json", type=Path, default=Path("bench-result.json"), help="where the result goes")
    words.add_argument(
        "--add", action="store_true", help="keep the rows there that this run does not measure"
    )
    words.add_argument("--charts", type=Path, help="a directory for bench.svg and bench-curves.svg")
    words.add_argument("--directory", type=Path, help="where brokers keep their data while they run")
    return words.parse_args()


def _rows(given: argparse.Namespace) -> list[str]:
    if not given.rows:
        return list(FULL_ROWS if given.scale == "full" else QUICK_ROWS)
    names = [name.strip() for name in given.rows.split(",") if name.strip()]
    if unknown := [name for name in names if name not in ROWS]:
        sys.exit(f"no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return names


def _run(bench: Bench, names: Sequence[str]) -> None:
    for name in names:
        begin, before = time.monotonic(), len(list(bench.stalls.iterdir()))
        ROWS[name](bench)
        end, after = time.monotonic(), len(list(bench.stalls.iterdir()))
        bench.sheet.spans.append(Span(name, begin, end, watched=name in WARM_ROWS or after > before))
        bench.say(f"{name}: {end - begin:.0f} s")


def _run_warm(bench: Bench, names: Sequence[str]) -> None:
    try:
        for system in bench.systems:
            system.start()
        warm_up(bench)
        _run(bench, names)
        stop_cleanly(bench.systems)
    finally:
        for system in bench.systems:
            system.kill()


def _add_stalls(bench: Bench, of_machine: Pauses) -> None:
    """Add the longest stall of an event loop in each row, and what the machine itself did meanwhile.

    The watchdog records stalls over 20 ms. A core that paused during a stall may or may not have been the loop's.
    """
    found, sheet = stalls.found(bench.stalls), bench.sheet
    for span in sheet.spans:
        if not span.watched:
            continue
        within = [stall for stall in found if span.begin <= stall.at <= span.end]
        worst = max(within, key=lambda stall: stall.seconds, default=Stall(span.end, 0.0))
        name = f"longest stall in {span.row}"
        paused = of_machine.within(worst.begin, worst.at)
        sheet.add(OTTLA, "event loop", name, "ms", worst.seconds * 1000)
        sheet.add(MACHINE, "event loop", f"{name}, a core paused", "ms", paused * 1000)
        longest = of_machine.longest(span.begin, span.end)
        sheet.add(MACHINE, "event loop", f"longest pause of a core in {span.row}", "ms", longest * 1000)
        for stall in within:
            if stall.seconds >= _LONG_STALL_S:
                where = stall.place or "a place that was not taken"
                paused = of_machine.within(stall.begin, stall.at)
                sheet.note(
                    f"{span.row}: the event loop stood for {stall.seconds * 1000:.0f} ms in {where}; its thread "
                    f"ran for {stall.ran_s * 1000:.0f} ms, and a core of the machine paused for "
                    f"{paused * 1000:.0f} ms of it"
                )
    if not of_machine.ahead:
        sheet.note("The machine's pauses were measured without a real-time priority: other work counts, too")


if __name__ == "__main__":
    main()
