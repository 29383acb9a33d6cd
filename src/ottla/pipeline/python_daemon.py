"""Spark's daemon of Python workers, for workers behind Unix sockets.

When Spark ends a task, it closes the worker's socket. Over TCP the worker's last bytes vanish; over a Unix socket they
are a BrokenPipeError, and Spark's daemon would print a trace for each such worker. This one leaves those traces out.
"""

from __future__ import annotations

import sys
import traceback

from pyspark import daemon


class Traces:
    """What Spark's daemon uses of the module `traceback`."""

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        """Print the trace of the present error, unless it says that nobody listens any more."""
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            traceback.print_exc()


def main() -> None:
    """Serve workers until Spark closes the standard input."""
    vars(daemon)["traceback"] = Traces
    daemon.manager()


if __name__ == "__main__":
    main()
