"""Who leads: turns the elector's outcomes into "write here" or "send it there"; a new leader takes over."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ottla.registry.errors import RegistryError, no_leader, store_failed
from ottla.registry.leader import Election, Elector, Identity
from ottla.registry.registry import Registry

_logger = logging.getLogger(__name__)

_WAIT_S: Final = 12.0
"""How long a write waits for a leader, and a read for the first load of the topic."""
_AGAIN_S: Final = 0.5


class Roles:
    """This registry's role. Created and used on the event loop."""

    def __init__(self) -> None:
        self.registry: Registry | None = None
        self.elector: Elector | None = None
        self._loop = asyncio.get_running_loop()
        self._election: Election | None = None
        self._leading = 0
        """The generation in which the topic was taken over, if this registry leads in it."""
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def elected(self, outcome: Election | None) -> None:
        """Called by the elector's thread."""
        self._loop.call_soon_threadsafe(self._begin, outcome)

    def _begin(self, outcome: Election | None) -> None:
        task = self._loop.create_task(self._take(outcome))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, outcome: Election | None) -> None:
        self._election = outcome
        self._leading = 0
        if outcome is not None and outcome.mine:
            await self._lead(outcome)
        elif outcome is not None:
            _logger.info("The registry at %s leads", outcome.leader.url if outcome.leader else "no address")
        async with self._changed:
            self._changed.notify_all()

    async def _lead(self, outcome: Election) -> None:
        assert self.registry is not None
        while self._election is outcome:
            try:
                await self.registry.log.ready.wait()
                await self.registry.take_over()
                self._leading = outcome.generation
                _logger.info("This registry leads, generation %d", outcome.generation)
                return
            except RegistryError as error:
                _logger.warning("The new leader cannot write yet, and tries again: %s", error)
                await asyncio.sleep(_AGAIN_S)

    def may_write(self) -> bool:
        """Whether no other registry can have been elected since. Called by the writer's thread too."""
        election, elector = self._election, self.elector
        return election is not None and election.mine and elector is not None and elector.is_fresh()

    async def until_ready(self) -> None:
        """Wait for the first load of the topic."""
        assert self.registry is not None
        log = self.registry.log
        if log.ready.is_set():
            return
        try:
            await asyncio.wait_for(log.ready.wait(), _WAIT_S)
        except TimeoutError:
            raise store_failed(log.failure or "the registry is still reading its topic; try again") from None

    async def leader(self) -> Identity | None:
        """The registry that writes: None for this one. Waits while an election goes on."""
        try:
            async with asyncio.timeout(_WAIT_S), self._changed:
                await self._changed.wait_for(self._decided)
        except TimeoutError:
            raise no_leader() from None
        election = self._election
        assert election is not None
        return None if election.mine else election.leader

    def _decided(self) -> bool:
        election = self._election
        if election is None or election.leader is None:
            return False
        return not election.mine or (self._leading == election.generation and self.may_write())
