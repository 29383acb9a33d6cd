"""The audit file: who came in, who was refused, what was denied, and who changed rights, users, quotas and configs.

One JSON object a line. Lines are written in a thread, in order. A flood of denials is counted instead of written, and a
disk that cannot keep up costs lines, never memory; both are said in the file.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from ottla.config.errors import ConfigError

if TYPE_CHECKING:
    from ottla.clock import Clock

_logger = logging.getLogger(__name__)

KEY: Final = "ottla.audit.log.file"
MAX_WAITING_LINES: Final = 10_000
MAX_DENIALS_PER_SECOND: Final = 1_000
_MAX_TEXT: Final = 256

Detail = str | int | bool | None | list[str]


class AuditFile:
    """Appends events to one file."""

    def __init__(self, path: str, clock: Clock, executor: Executor) -> None:
        """Raises ConfigError if the file cannot be opened."""
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"Invalid configuration {KEY}={path}: {error.strerror}", key=KEY) from None
        self._clock = clock
        self._executor = executor
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._writing = False
        self._lost = 0
        self._second = 0
        self._denials = 0
        self._failed = False

    def event(self, kind: str, details: Mapping[str, Detail]) -> None:
        """Add a line. Texts are cut at 256 characters."""
        if kind == "denied" and not self._may_write_denial():
            return
        self._add({"event": kind, **{key: _short(value) for key, value in details.items()}})

    def _may_write_denial(self) -> bool:
        second = self._clock.now_ms() // 1000
        if second != self._second:
            left_out = self._denials - MAX_DENIALS_PER_SECOND
            self._second, self._denials = second, 0
            if left_out > 0:
                self._add({"event": "denials left out", "count": left_out})
        self._denials += 1
        return self._denials <= MAX_DENIALS_PER_SECOND

    def _add(self, fields: Mapping[str, Detail]) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            if len(self._waiting) >= MAX_WAITING_LINES:
                self._lost += 1
                return
            if self._lost:
                lost, self._lost = self._lost, 0
                self._waiting.append(_line(now_ms, {"event": "lines lost", "count": lost}))
            self._waiting.append(_line(now_ms, fields))
            if self._writing:
                return
            self._writing = True
        self._executor.submit(self._write)

    def _write(self) -> None:
        """In a thread: write what waits, until nothing does."""
        while lines := self._take():
            try:
                _write_all(self._descriptor, "".join(lines).encode())
                self._failed = False
            except OSError as error:
                if not self._failed:
                    self._failed = True
                    _logger.error("The audit file cannot be written: %s. Events are lost", error.strerror)

    def _take(self) -> list[str]:
        with self._lock:
            lines, self._waiting = self._waiting, []
            self._writing = bool(lines)
        return lines

    def close(self) -> None:
        """Write what waits, after the executor has ended."""
        self._write()
        os.close(self._descriptor)


def _line(now_ms: int, fields: Mapping[str, Detail]) -> str:
    return json.dumps({"time_ms": now_ms, **fields}) + "\n"


def _short(value: Detail) -> Detail:
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    if isinstance(value, list):
        return [each[:_MAX_TEXT] for each in value[:_MAX_TEXT]]
    return value


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
