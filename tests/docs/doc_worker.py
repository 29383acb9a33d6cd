"""Runs the Python blocks of one page in one process, one after the other, as a reader would in a session.

Each line of standard input is a block as JSON; each line of the answer is what it printed and its error, if any.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
from typing import Any


def main() -> None:
    answers = sys.stdout
    names: dict[str, Any] = {"__name__": "__main__"}
    for line in sys.stdin:
        block = json.loads(line)
        printed, error = io.StringIO(), ""
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(block["code"], block["where"], "exec"), names)
            except BaseException:  # noqa: BLE001 - whatever ends a block is its result
                error = traceback.format_exc()
        answers.write(json.dumps({"printed": printed.getvalue(), "error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
