"""When the sampler looks: often while a page is open, seldom otherwise, more seldom while rounds take long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from ottla.console import garbage
from ottla.console.sampler.round import Round, take
from ottla.console.sampler.state import ClusterState
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_logger = logging.getLogger(__name__)

FAST_S: Final = 2.0
SLOW_S: Final = 15.0
ASLEEP_AFTER_S: Final = 3600.0
_SHARE: Final = 0.1
"""A round may take this share of the interval; the interval doubles beyond it."""
_LONGEST_S: Final = 60.0
_RETRY_S: Final = 2.0


def _take(cluster: Cluster, state: ClusterState, this: Round) -> None:
    with garbage.held_back():
        take(cluster, state, this)


class Sampler:
    """Samples one cluster. `watch()` says that a page looks; `changed` is set after every round."""

    def __init__(self, state: ClusterState, call: Callable[..., Awaitable[Any]]) -> None:
        self.state = state
        self._call = call
        self._watchers = 0
        self._groups: dict[str, int] = {}
        self._asked_s = time.monotonic()
        self._wake = asyncio.Event()
        self._full = True
        self._stretch = 1
        self._waiting: set[asyncio.Future[None]] = set()

    # -- for pages

    @contextlib.contextmanager
    def watch(self, group: str | None = None) -> Iterator[None]:
        """Sample fast, and this group in every round, while a page shows live numbers."""
        self._watchers += 1
        if group is not None:
            self._groups[group] = self._groups.get(group, 0) + 1
        self.touch()
        try:
            yield
        finally:
            self._watchers -= 1
            if group is not None:
                self._groups[group] -= 1
                if not self._groups[group]:
                    del self._groups[group]

    def touch(self) -> None:
        """Somebody asked for a number: do not fall asleep, and wake up."""
        asleep = time.monotonic() - self._asked_s > SLOW_S
        self._asked_s = time.monotonic()
        if asleep or self._watchers:
            self._wake.set()

    def awake(self) -> bool:
        """Whether somebody has asked for a number within the last hour."""
        return time.monotonic() - self._asked_s <= ASLEEP_AFTER_S

    def refresh(self) -> None:
        """Look at everything at once: something was changed."""
        self._full = True
        self._asked_s = time.monotonic()
        self._wake.set()

    async def next_round(self) -> None:
        """Wait for the end of the next round."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    # -- the loop

    @property
    def interval_s(self) -> float:
        return min((FAST_S if self._watchers else SLOW_S) * self._stretch, _LONGEST_S)

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await self._round()
            await self._pause()

    async def _pause(self) -> None:
        began = time.monotonic()
        pause_s = _RETRY_S if self.state.problem else self.interval_s
        asleep = time.monotonic() - self._asked_s > ASLEEP_AFTER_S
        while asleep or time.monotonic() - began < pause_s:
            left_s = None if asleep else max(pause_s - (time.monotonic() - began), 0.01)
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            if self._full:
                return
            asleep = asleep and time.monotonic() - self._asked_s > ASLEEP_AFTER_S
            pause_s = _RETRY_S if self.state.problem else self.interval_s

    async def _round(self) -> None:
        state = self.state
        began = time.time()
        this = Round(state.round, began, self._full or bool(state.problem), frozenset(self._groups))
        self._full = False
        try:
            await self._call(_take, state, this)
            state.problem = ""
        except ApiException as error:
            state.problem = error.message or error.code.name
            _logger.info("A round over cluster %s failed: %s", state.name, state.problem)
        else:
            state.round += 1
            state.taken_s = time.time()
            state.took_s = state.taken_s - began
            over = state.took_s > _SHARE * self.interval_s
            self._stretch = min(self._stretch * 2, 8) if over else max(self._stretch // 2, 1)
        for waiting in list(self._waiting):
            if not waiting.done():
                waiting.set_result(None)
