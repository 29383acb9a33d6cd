"""The loop of the tools that print records: until there are enough, none comes in time, or the user interrupts."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.cli.tools.base import Session

if TYPE_CHECKING:
    from ottla.client.engine_types import EngineMessage

POLL_S: Final = 0.5


def read_records(
    session: Session,
    timeout_ms: int | None,
    more: Callable[[], bool],
    poll: Callable[[float], list[EngineMessage]],
    take: Callable[[EngineMessage], None],
) -> None:
    """Take records while `more` is true. End with a warning if none comes within the timeout.

    `poll` gets the longest time that it may wait, in seconds. Standard output is flushed after each batch.
    """
    timeout_s = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
    last = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt):
        while more():
            wait_s = POLL_S if timeout_s is None else last + timeout_s - time.monotonic()
            records = poll(max(0.0, min(POLL_S, wait_s)))
            for record in records:
                take(record)
            if records:
                sys.stdout.buffer.flush()
                last = time.monotonic()
            elif timeout_s is not None and time.monotonic() - last >= timeout_s:
                session.warn(f"No record came within {timeout_ms} ms.")
                break
