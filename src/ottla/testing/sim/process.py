"""A simulated operating-system process: alive or dead, running or paused, with its threads."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from ottla.testing.sim.loop import SimLoop

P = ParamSpec("P")
T = TypeVar("T")


class Process:
    """A process of a node or client. A restart creates a new one."""

    __slots__ = ("alive", "context", "exception_handler", "held", "host", "name", "on_death", "running")

    def __init__(self, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.alive = True
        self.running = True
        self.held: list[asyncio.Handle] = []
        """Callbacks that wait while the process is paused."""
        self.context: contextvars.Context | None = None
        """For the loop, which makes it when it is needed."""
        self.exception_handler: Callable[..., object] | None = None
        self.on_death: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return self.name

    def die(self) -> None:
        """Kill the process (SIGKILL)."""
        if self.alive:
            self.alive = self.running = False
            self.held.clear()
            for callback in self.on_death:
                callback()

    def hold(self) -> None:
        """Pause the process (SIGSTOP)."""
        if self.alive:
            self.running = False


class _Work(Future[T]):
    """A future that runs when its time comes, or when it is waited for: there is no other thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__()
        self._work = work

    def run(self) -> None:
        if self.done() or not self.set_running_or_notify_cancel():
            return
        try:
            result = self._work()
        except BaseException as error:  # noqa: BLE001 - the future carries it, as a pool's does
            self.set_exception(error)
        else:
            self.set_result(result)

    def result(self, timeout: float | None = None) -> T:
        self.run()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.run()
        return super().exception(timeout)


class SimExecutor(Executor):
    """A thread pool whose work takes simulated time, then runs at once."""

    def __init__(self, loop: SimLoop, rng: random.Random, delay: Callable[[], float]) -> None:
        self._loop = loop
        self._random = rng
        self._delay = delay
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: _Work[T] = _Work(lambda: fn(*args, **kwargs))
        self._loop.call_later(self._delay(), future.run)
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[object],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Run all calls now."""
        return iter([fn(*each) for each in zip(*iterables, strict=False)])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
