"""Keeps what a Python worker has loaded out of the garbage collection that Spark runs after each task.

PySpark collects after every task, over pandas, pyarrow and numpy too: some 40 ms of CPU. After a few tasks everything
is loaded, and the objects of that time are taken out of the collector's sight.
"""

from __future__ import annotations

import gc
from typing import Final

_TASKS_UNTIL_FROZEN: Final = 3

_tasks_begun = 0


def task_begins() -> None:
    """To be called at the start of a task's function in a worker; the third call freezes what is loaded."""
    global _tasks_begun
    _tasks_begun += 1
    if _tasks_begun == _TASKS_UNTIL_FROZEN:
        gc.collect()
        gc.freeze()
