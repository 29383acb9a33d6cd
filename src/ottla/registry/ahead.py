"""Work on schemas that takes long, in a thread of its own: meanwhile the registry answers others.

What the registry decides by its state stays on the event loop. It finds what it needs there already: parsed schemas in
the cache of `Formats`, and verdicts in `Verdicts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from ottla.registry.compat.budget import Budget
from ottla.registry.errors import CompilerFailed, InvalidSchema
from ottla.registry.formats import Formats, Parsed, Source
from ottla.registry.state import Content

_FEW_CHARS: Final = 10_000
_SMALL_PRODUCT: Final = 2_000_000
"""Characters times characters of two schemas whose comparison takes some milliseconds at most."""


@dataclass(slots=True)
class Verdicts:
    """What the comparisons of one request have found. They share one budget."""

    budget: Budget = field(default_factory=Budget)
    _known: dict[tuple[int, str], tuple[Content, list[str]]] = field(default_factory=dict)

    def of(self, old: Content, level: str) -> list[str] | None:
        """What is known about an old schema and a level, which is not transitive."""
        found = self._known.get((id(old), level))
        return None if found is None else found[1]

    def put(self, old: Content, level: str, found: list[str]) -> list[str]:
        self._known[id(old), level] = (old, found)
        return found


@dataclass(frozen=True, slots=True)
class Job:
    """A schema to parse, old ones whose meaning is wanted, and old ones to compare it with by a level."""

    new: Source
    lenient: bool
    same: Sequence[tuple[Content, Source]] = ()
    compared: Sequence[tuple[Content, Source]] = ()
    level: str = "NONE"
    verdicts: Verdicts = field(default_factory=Verdicts)

    def is_light(self, formats: Formats) -> bool:
        """Whether it may run on the event loop."""
        size = self.new.chars
        if size > _FEW_CHARS or (self.new.type == "PROTOBUF" and not formats.knows(self.new)):
            return False
        work = 0
        for content, source in (*self.same, *self.compared):
            unknown = not content.meaning if source.type == "PROTOBUF" else False
            work += source.chars * size
            if work > _SMALL_PRODUCT or (unknown and not formats.knows(source)):
                return False
        return True

    def run(self, formats: Formats) -> None:
        """Parse and compare. InvalidSchema where the new schema is none, or costs too much."""
        new = formats.parse(self.new, lenient=self.lenient)
        for content, source in self.same:
            if not content.meaning:
                parsed = _old(formats, source)
                content.meaning = b"-" if parsed is None else parsed.meaning()
        for content, source in self.compared:
            old = formats.parse(source, lenient=True)
            found = formats.compare_by(self.level, new, old, self.verdicts.budget)
            self.verdicts.put(content, self.level, found)
            if found:
                return


def _old(formats: Formats, source: Source) -> Parsed | None:
    try:
        return formats.parse(source, lenient=True)
    except CompilerFailed:
        raise
    except InvalidSchema:
        return None


class Workbench:
    """The thread. Jobs wait for each other; the HTTP server bounds them, one for each of its connections."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats
        self._thread = ThreadPoolExecutor(1, "registry-schemas")

    async def run(self, job: Job) -> None:
        """Run a job, in the thread if it may take long."""
        if job.is_light(self._formats):
            return
        await asyncio.get_running_loop().run_in_executor(self._thread, job.run, self._formats)

    def close(self) -> None:
        """Give up jobs that wait, and end the compiler, so that one that runs ends too."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._formats.close()
