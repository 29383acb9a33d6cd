"""An event loop on virtual time, shared by all simulated nodes: the seed determines the order of callbacks.

Each callback belongs to the process in whose context it was scheduled. Callbacks of a killed process are dropped,
those of a paused process wait until it resumes.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.clock import Args
from ottla.testing.sim.process import Process

if TYPE_CHECKING:
    from ottla.testing.sim.network import Network, Proto, Transport

T = TypeVar("T")

_current: Final[contextvars.ContextVar[Process | None]] = contextvars.ContextVar("process", default=None)


def current_process() -> Process | None:
    """Return the process whose code is running; None for the simulator itself."""
    return _current.get()


_STEPS_PER_MOMENT: Final = 20_000
"""More callbacks than this at one moment mean an endless loop."""

_TASKS_KEPT: Final = 10_000


class StuckError(Exception):
    """Something did not happen in time, and nothing is scheduled that could cause it."""


class SimLoop(asyncio.AbstractEventLoop):
    """The part of an event loop that the broker uses. The base class refuses the rest."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._outside = contextvars.Context()
        """Belongs to the simulator, not to a process."""
        self._closed = False
        self._running = False
        self.network: Network | None = None
        self.steps = 0
        """The number of callbacks so far."""
        self._moment_began = 0
        """`steps` when time last moved."""
        self.on_failure: Callable[[Process | None, Mapping[str, object]], None] = lambda process, context: (
            None
        )
        """Called with uncaught exceptions."""
        self._tasks: list[asyncio.Task[Any]] = []
        """Keeps all tasks: the garbage collector must not close one at an unpredictable time."""

    # -- time and callbacks

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + max(delay, 0.0), callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def call_soon_as(
        self, process: Process | None, callback: Callable[[*Args], object], *args: *Args
    ) -> None:
        """Schedule a callback for a process, regardless of the caller."""
        self._ready.append(asyncio.Handle(callback, args, self, self._context_of(process)))

    def call_at_as(
        self, process: Process | None, when: float, callback: Callable[[*Args], object], *args: *Args
    ) -> None:
        self.call_at(when, callback, *args, context=self._context_of(process))

    def _context_of(self, process: Process | None) -> contextvars.Context:
        """Return the context in which a process runs what others hand to it. It never enters it twice at a time."""
        if process is None:
            return self._outside
        if process.context is None:
            process.context = contextvars.Context()
            process.context.run(_current.set, process)
        return process.context

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are skipped when they are due."""

    # -- running

    def run_for(self, seconds: float) -> None:
        """Run for a number of simulated seconds."""
        self._run(self._now + seconds, lambda: False)

    def run_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Run until `done()` is true or the time is over. Returns the last result of `done()`."""
        return self._run(self._now + timeout_s, done)

    def run_until_complete(self, future: Awaitable[T], timeout_s: float = 3600.0) -> T:  # type: ignore[override]
        task = asyncio.ensure_future(future, loop=self)
        if not self._run(self._now + timeout_s, task.done):
            raise StuckError(f"{future!r} did not end within {timeout_s} s of simulated time")
        return task.result()

    def _run(self, end: float, done: Callable[[], bool]) -> bool:
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._running = True
        try:
            ready, current = self._ready, _current
            while True:
                if done():
                    return True
                if not ready and not self._move_time(end):
                    return done()
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                process = handle._context.get(current)  # type: ignore[attr-defined]
                if process is not None and not process.running:
                    if process.alive:
                        process.held.append(handle)
                    continue
                self.steps += 1
                if self.steps - self._moment_began > _STEPS_PER_MOMENT:
                    raise StuckError(
                        f"time stands still at {self._now:.6f} s, {process} is busy with {handle!r}"
                    )
                handle._run()
        finally:
            self._running = False
            asyncio._set_running_loop(before)

    def _move_time(self, end: float) -> bool:
        """Advance to the next timer and make the due ones ready; False if none is due before `end`."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers or timers[0][0] > end:
            self._now = max(self._now, end)
            return False
        if timers[0][0] > self._now:
            self._now = timers[0][0]
            self._moment_began = self.steps
        while timers and timers[0][0] <= self._now:
            _, _, handle = heapq.heappop(timers)
            if not handle.cancelled():
                self._ready.append(handle)
        return bool(self._ready) or self._move_time(end)

    def resume(self, process: Process) -> None:
        """Resume a paused process."""
        process.running = True
        held, process.held = process.held, []
        self._ready.extend(held)

    @contextlib.contextmanager
    def on_behalf_of(self, process: Process | None) -> Generator[None, None, None]:
        """Schedule everything inside the block for the process."""
        token = _current.set(process)
        try:
            yield
        finally:
            _current.reset(token)

    def spawn(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as the process."""
        with self.on_behalf_of(process):
            return self.create_task(work)

    # -- what tasks and futures need

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        # A killed process leaves its tasks as they are.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)
        if len(self._tasks) > _TASKS_KEPT:
            self._tasks = [each for each in self._tasks if not each.done()]
        return task

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Args], T], *args: *Args
    ) -> asyncio.Future[T]:
        if executor is None:
            raise ValueError("the simulation has no threads of its own: give an executor")
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Proto], host: str = "", port: int = 0, **_: object
    ) -> tuple[Transport, Proto]:
        assert self.network is not None
        return await self.network.connect(protocol_factory, host, port)

    def set_exception_handler(self, handler: Callable[..., object] | None) -> None:
        process = current_process()
        if process is not None:
            process.exception_handler = handler

    def call_exception_handler(self, context: Mapping[str, object]) -> None:
        process = current_process()
        self.on_failure(process, context)
        if process is not None and process.exception_handler is not None:
            process.exception_handler(self, context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self.on_failure = lambda process, context: None
        for task in self._tasks:
            # Errors of a closing task do not matter.
            with contextlib.suppress(BaseException):
                task.get_coro().close()
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()
