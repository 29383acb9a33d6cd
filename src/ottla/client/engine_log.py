"""librdkafka's messages in Python's logging: once, and not for each of its attempts."""

from __future__ import annotations

import logging
import re
import time

_LOG = logging.getLogger("ottla.client.engine")
_SAME_AGAIN_S = 30.0
_MOST_REMEMBERED = 100
_NOISE = re.compile(r"\[thrd:[^\]]*\]: |\(after \d+ms in state \w+[^)]*\)|^\S+/\S+: ")
"""Parts of a message that change from one attempt to the next, or name a thread of the engine."""


class EngineLog:
    """The logger of one client. `problem` is the last error, for the texts of exceptions."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self._logged_at: dict[str, float] = {}

    def log(self, level: int, form: str, *args: object) -> None:
        """Called by the engine, from any of its threads."""
        text = form % args if args else form
        if level >= logging.ERROR and args:
            self.problem = _NOISE.sub("", _NOISE.sub("", str(args[-1]))).strip()
        key = _NOISE.sub("", text)
        now = time.monotonic()
        if now - self._logged_at.get(key, -_SAME_AGAIN_S) < _SAME_AGAIN_S:
            return
        if len(self._logged_at) >= _MOST_REMEMBERED:
            self._logged_at.clear()
        self._logged_at[key] = now
        _LOG.log(level, "%s", text)
