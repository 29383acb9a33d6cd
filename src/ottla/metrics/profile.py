"""A profile of the running process: where its threads are, a hundred times a second, as speedscope JSON.

The samples are taken in a thread of their own, so that the event loop is seen as it is.
"""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType
from typing import Final

from ottla.json_types import JsonObject

EACH_S: Final = 0.01
MAX_SECONDS: Final = 60
_MAX_DEPTH: Final = 100


class Sampler:
    """Collects stacks by thread. A frame is known by its function, file and line."""

    def __init__(self) -> None:
        self._frames: dict[tuple[str, str, int], int] = {}
        self._stacks: dict[str, list[list[int]]] = {}
        self._names: dict[int, str] = {}

    def sample(self, leave_out: int) -> None:
        """Take the stack of each thread but this one."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            if ident != leave_out:
                name = names.get(ident) or f"thread {ident}"
                self._stacks.setdefault(name, []).append(self._stack(frame))

    def _stack(self, frame: FrameType | None) -> list[int]:
        stack: list[int] = []
        while frame is not None and len(stack) < _MAX_DEPTH:
            code = frame.f_code
            key = (code.co_qualname, code.co_filename, frame.f_lineno)
            stack.append(self._frames.setdefault(key, len(self._frames)))
            frame = frame.f_back
        return stack[::-1]

    def speedscope(self, name: str) -> JsonObject:
        """The samples in the file format of speedscope.app."""
        return {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": name,
            "shared": {
                "frames": [
                    {"name": function, "file": file, "line": line} for function, file, line in self._frames
                ]
            },
            "profiles": [
                {
                    "type": "sampled",
                    "name": thread,
                    "unit": "seconds",
                    "startValue": 0,
                    "endValue": round(EACH_S * len(stacks), 3),
                    "samples": stacks,
                    "weights": [EACH_S] * len(stacks),
                }
                for thread, stacks in sorted(self._stacks.items())
            ],
        }


def profile(seconds: float, stop: threading.Event) -> JsonObject:
    """Sample for this long, or until `stop` is set. Blocks: call it in a thread."""
    sampler = Sampler()
    own = threading.get_ident()
    until = time.monotonic() + min(max(seconds, EACH_S), MAX_SECONDS)
    while time.monotonic() < until and not stop.wait(EACH_S):
        sampler.sample(own)
    return sampler.speedscope(f"Ottla, {seconds:g} s")
