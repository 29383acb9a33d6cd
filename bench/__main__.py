"""`make bench`: run the rows on both systems, print the table, write the JSON."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench import report
from bench.rows import FULL, NEEDS_WARM_SYSTEMS, QUICK, ROWS, Bench, Sheet, warm_up
from bench.systems import Kafka, Ottla, System


def main() -> None:
    words = argparse.ArgumentParser(prog="bench", description=__doc__)
    words.add_argument("--rows", default=",".join(ROWS), help=f"some of {', '.join(ROWS)}")
    words.add_argument("--quick", action="store_true", help="fewer rounds and less data")
    words.add_argument("--only", choices=("ottla", "kafka"), help="leave the other system out")
    words.add_argument("--json", type=Path, default=Path("bench-result.json"))
    given = words.parse_args()
    rows = [name.strip() for name in given.rows.split(",") if name.strip()]
    if unknown := [name for name in rows if name not in ROWS]:
        words.error(f"no such row: {', '.join(unknown)}")
    sheet = Sheet()
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as scratch:
        directory = Path(scratch)
        systems: list[System] = [Ottla(directory / "ottla"), Kafka(directory / "kafka")]
        systems = [one for one in systems if given.only in (None, one.name)]
        bench = Bench(systems, QUICK if given.quick else FULL, sheet, directory)
        warm = [name for name in rows if name in NEEDS_WARM_SYSTEMS]
        try:
            if warm:
                for system in systems:
                    system.start()
                warm_up(bench)
            for name in warm:
                sys.stderr.write(f"{name} ...\n")
                ROWS[name](bench)
        finally:
            for system in systems if warm else []:
                system.kill()
        for name in rows:
            if name not in NEEDS_WARM_SYSTEMS:
                sys.stderr.write(f"{name} ...\n")
                ROWS[name](bench)
    report.write_json(sheet, given.json)
    print(report.table(sheet))


if __name__ == "__main__":
    main()
