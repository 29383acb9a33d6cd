"""A simulated operating-system process: alive or not, running or held still, and the threads it has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ottla.testing.sim.loop import SimLoop

T = TypeVar("T")


class Process:
    """One life of a node: a restart makes a new one."""

    __slots__ = ("alive", "exception_handler", "held", "host", "name", "on_death", "running")

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.alive = True
        self.running = True
        self.held: list[asyncio.Handle] = []
        """What would have run while it was held still."""
        self.exception_handler: Callable[..., object] | None = None
        self.on_death: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return self.name

    def die(self) -> None:
        """kill -9: nothing of it runs any more."""
        if self.alive:
            self.alive = self.running = False
            self.held.clear()
            for callback in self.on_death:
                callback()

    def hold(self) -> None:
        """SIGSTOP."""
        if self.alive:
            self.running = False


class SimExecutor(Executor):
    """A thread pool whose work takes a while of simulated time and is then done at once."""

    def __init__(self, loop: SimLoop, rng: random.Random, delay: Callable[[], float]) -> None:
        self._loop = loop
        self._random = rng
        self._delay = delay
        self._closed = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - the future carries it, as a pool's does
                future.set_exception(error)
            else:
                future.set_result(result)

        self._loop.call_later(self._delay(), run)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
