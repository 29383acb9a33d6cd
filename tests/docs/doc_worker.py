"""Runs the Python blocks of one page in one process, one after the other, as a reader would in a session.

Each line of standard input is a block as JSON; each line of the answer is what it printed and its error, if any. What
child processes print, Spark's JVM for one, counts too.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.NamedTemporaryFile("r") as printed:
        target = os.open(printed.name, os.O_WRONLY | os.O_APPEND)
        os.dup2(target, sys.stdout.fileno())
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        for line in sys.stdin:
            block = json.loads(line)
            error = ""
            try:
                exec(compile(block["code"], block["where"], "exec"), names)
            except BaseException:  # noqa: BLE001 - whatever ends a block is its result
                error = traceback.format_exc()
            sys.stdout.flush()
            answers.write(json.dumps({"printed": printed.read(), "error": error}) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
