"""How a process ends with the one that started it: its standard input closes, and it watches that.

The starter sets `STOP_WITH_STDIN` in the child's environment and keeps the other end of the child's input open.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

STOP_WITH_STDIN: Final = {"OTTLA_STOP_WITH_STDIN": "1"}
"""What to add to a child's environment."""


def _is_watched() -> bool:
    return all(os.environ.get(name) for name in STOP_WITH_STDIN)


def on_loop_when_parent_ends(loop: asyncio.AbstractEventLoop, end: Callable[[], object]) -> None:
    """Calls `end` on the loop when the starter is gone. Nothing is ever written to that input."""
    if _is_watched():
        loop.add_reader(sys.stdin.fileno(), end)


def in_thread_when_parent_ends(end: Callable[[], object]) -> None:
    """Calls `end` in a thread when the starter is gone."""

    def wait() -> None:
        os.read(sys.stdin.fileno(), 1)
        end()

    if _is_watched():
        threading.Thread(target=wait, name="parent-process", daemon=True).start()
