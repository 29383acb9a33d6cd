"""Starts the parts of the demo in order, shows what they do, and stops them in reverse order.

The broker starts first and does not wait for Spark; without Spark it runs alone.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.client.errors import KafkaError
from ottla.demo.children import Child
from ottla.demo.generator import Generator
from ottla.demo.orders import Shop, write_files
from ottla.demo.results import Results
from ottla.demo.screen import Screen, summary, table
from ottla.demo.topics import CLICKS_PER_WINDOW, ORDERS, ORDERS_PER_ITEM, WORD_COUNTS, make_topics
from ottla.parent_process import STOP_WITH_STDIN
from ottla.pipeline.progress import INTERVAL_VARIABLE

_READY: Final = re.compile(r"is ready on (?P<address>\S+) \(data in .*, cluster (?P<cluster>\S+)\)")
_PAINT_S: Final = 0.25
_PROGRESS_S: Final = "0.5"
"""How often an installer reports its progress, if a terminal shows it."""
_SUMMARY_S: Final = 10.0
_SPARK_STOPS_S: Final = 6.0
"""After this time Spark is killed. That loses nothing: the next start repeats what was not committed."""
_BROKER_STOPS_S: Final = 15.0
_CONSOLE_STOPS_S: Final = 5.0
_CONNECT_STOPS_S: Final = 5.0
_PREPARE_STOPS_S: Final = 3.0
_LAST_WORDS: Final = 50
_MAX_LOG_BYTES: Final = 4 << 20


class BrokerEnded(Exception):
    """The broker did not start, or has ended; `words` are its last lines of output."""

    def __init__(self, code: int, words: Sequence[str]) -> None:
        super().__init__(f"the broker ended with code {code}")
        self.code = code
        self.words = words


class _NoPipelines(Exception):
    """Spark is not available; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of the command line."""

    data: str
    listen: str
    state_dir: Path
    seed: int
    lines_per_s: float
    prepare: Sequence[str]
    console: str = ""
    """Where the console listens; empty for none."""


class Director:
    def __init__(self, plan: Plan, screen: Screen | None = None) -> None:
        self._plan = plan
        self._screen = screen or Screen()
        self._stopping = asyncio.Event()
        self._no_more_records = threading.Event()
        self._threads: list[asyncio.Task[None]] = []
        self._broker_words: deque[str] = deque(maxlen=_LAST_WORDS)
        self._address = ""
        self._state_dir = plan.state_dir
        self._doing = ""
        self._detail = ""
        self._doing_since = 0.0
        self._spark: Child | None = None
        self._console: Child | None = None
        self._connect: Child | None = None
        self._connect_port = _free_port()
        """Chosen before the worker starts, so that the console knows it."""
        self._generator: Generator | None = None
        self._results = Results()

    async def run(self) -> None:
        """Run until a signal; raises BrokerEnded if the broker ends before."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stopping.set)
        plan = self._plan
        words = [sys.executable, "-m", "ottla", "start", "--data", plan.data, "--listen", plan.listen]
        broker = await Child.start(words, environment=STOP_WITH_STDIN)
        try:
            async with asyncio.TaskGroup() as parts:
                tasks = [
                    parts.create_task(part)
                    for part in (self._listen_to(broker), self._show(broker), self._paint())
                ]
                ended = await self._ended_or_stopped(broker)
                for task in tasks:
                    task.cancel()
        finally:
            await self._stop(broker)
        if ended is not None:
            raise BrokerEnded(ended, list(self._broker_words))

    async def _ended_or_stopped(self, broker: Child) -> int | None:
        """Return the broker's exit code, or None after a signal to stop."""
        stopped = asyncio.create_task(self._stopping.wait())
        ended = asyncio.create_task(broker.wait())
        try:
            await asyncio.wait([stopped, ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            ended.cancel()
        return ended.result() if ended.done() and not self._stopping.is_set() else None

    async def _listen_to(self, broker: Child) -> None:
        """Show the broker's output above the table. Output before it is ready explains a failed start."""
        while line := await broker.complaint():
            self._broker_words.append(line.rstrip())
            if self._address:
                self._screen.say(line.rstrip())

    async def _show(self, broker: Child) -> None:
        """Wait for the broker, then install Spark and run the pipelines."""
        line = (await broker.line()).rstrip()
        ready = _READY.search(line)
        if ready is None:
            return
        self._screen.say(line)
        self._address = ready["address"]
        self._state_dir = self._plan.state_dir / ready["cluster"]
        await self._open_console()
        try:
            await self._prepare()
            await self._run_pipelines()
        except _NoPipelines as problem:
            self._no_more_records.set()
            self._begin("")
            self._screen.keep()
            self._screen.say(f"There are no pipelines: {problem}")
            self._screen.say(f"The broker on {self._address} goes on alone; Ctrl-C stops it")

    async def _open_console(self) -> None:
        """Start the console; its first line says where it is. Without it the rest goes on."""
        if not self._plan.console:
            return
        words = [sys.executable, "-m", "ottla", "console", "--bootstrap-server", self._address]
        words += ["--listen", self._plan.console, "--applications", str(self._state_dir)]
        words += ["--connect", f"http://localhost:{self._connect_port}"]
        self._console = await Child.start(
            words, stderr=asyncio.subprocess.STDOUT, environment=STOP_WITH_STDIN
        )
        line = (await self._console.line()).strip().removeprefix("ottla: ")
        self._screen.say(line if line.startswith("Look at it") else f"There is no console: {line}")

    async def _prepare(self) -> None:
        """Run the command that installs Spark. It fails without network, which is fine if Spark is installed."""
        output: deque[str] = deque(maxlen=_LAST_WORDS)
        if self._plan.prepare:
            self._begin("installing Spark, if it is not here yet (about 450 MB once)")
            interval = {INTERVAL_VARIABLE: _PROGRESS_S} if self._screen.live else {}
            command = await Child.start(
                self._plan.prepare, stderr=asyncio.subprocess.STDOUT, environment=interval
            )
            try:
                while line := await command.line():
                    output.append(line.strip())
                    self._report(line.strip())
                await command.wait()
            finally:
                await command.stop(_PREPARE_STOPS_S)
        importlib.invalidate_caches()
        if importlib.util.find_spec("pyspark") is None:
            raise _NoPipelines(_why_not_installed(list(output)))

    async def _run_pipelines(self) -> None:
        await asyncio.to_thread(make_topics, self._address)
        self._state_dir.mkdir(parents=True, exist_ok=True)
        await self._open_shop()
        log = self._log
        log.unlink(missing_ok=True)
        words = [sys.executable, "-m", "ottla.demo.pipelines", self._address, str(self._state_dir)]
        with log.open("ab") as stderr:
            self._spark = spark = await Child.start(words, stderr=stderr, environment=STOP_WITH_STDIN)
        ui = ""
        while line := await spark.line():
            message = json.loads(line)
            if "doing" in message:
                self._begin(message["doing"])
            elif "progress" in message:
                self._detail = message["progress"]
            elif "ui" in message:
                ui = message["ui"]
                self._begin("starting the pipelines; their first results take some seconds")
                self._start_records()
            elif "running" in message:
                self._explain(ui)
            elif "again" in message:
                self._screen.say(message["again"])
            elif "stopped" in message:
                self._screen.say(f"{message['stopped']} was stopped")
            elif "failed" in message:
                raise _NoPipelines(f"{message['failed']} (log: {log})")
        if not self._stopping.is_set():
            raise _NoPipelines(f"their process ended with code {await spark.wait()}; its log is {log}")

    async def _open_shop(self) -> None:
        """Start a Connect worker that follows a table of SQLite. Without it the rest goes on."""
        folder = self._state_dir.resolve()
        shop = Shop(folder, seed=self._plan.seed)
        shop.create()
        files = write_files(folder, self._address, self._connect_port)
        words = [sys.executable, "-m", "ottla", "connect", "run", *files]
        with (folder / "connect.log").open("wb") as log:
            self._connect = await Child.start(words, stderr=log, environment=STOP_WITH_STDIN)
        stopping = self._no_more_records
        self._threads.append(asyncio.create_task(self._in_thread("the shop", lambda: shop.run(stopping))))
        self._screen.say(
            f"Connect follows the table orders of {shop.path} into the topic {ORDERS} (log: {folder}/connect.log)"
        )

    @property
    def _log(self) -> Path:
        return self._state_dir / "spark.log"

    def _trim_log(self) -> None:
        """Truncate a large log: Python workers log every batch, and the demo may run for days."""
        if self._spark is not None and self._log.stat().st_size > _MAX_LOG_BYTES:
            os.truncate(self._log, 0)

    def _start_records(self) -> None:
        """Start the generator, and the reader of the results."""
        plan = self._plan
        generator = Generator(self._address, seed=plan.seed, lines_per_s=plan.lines_per_s)
        self._generator = generator
        stopping = self._no_more_records
        for name, work in (
            ("the generator", lambda: generator.run(stopping)),
            ("reading the results", lambda: self._results.follow(self._address, stopping)),
        ):
            self._threads.append(asyncio.create_task(self._in_thread(name, work)))

    async def _in_thread(self, name: str, work: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(work)
        except KafkaError as error:
            if not self._stopping.is_set():
                self._screen.say(f"{name} ended: {error}")

    def _explain(self, ui: str) -> None:
        if ui:
            self._screen.say(f"Spark shows what it does at {ui}")
        flags = "--from-beginning --isolation-level read_committed --property print.key=true"
        self._screen.say("Look at the results from another terminal:")
        for topic in (WORD_COUNTS, CLICKS_PER_WINDOW, ORDERS_PER_ITEM):
            self._screen.say(
                f"  {program()} consume --bootstrap-server {self._address} --topic {topic} {flags}"
            )
        self._screen.say("Ctrl-C stops all of it")

    def _begin(self, what: str) -> None:
        self._doing = what
        self._detail = ""
        self._doing_since = time.monotonic()
        if what and not self._screen.live:
            self._screen.say(f"{_capital(what)} ...")

    def _report(self, progress: str) -> None:
        """Show the latest progress of the current step: below it on a terminal, as a line elsewhere."""
        self._detail = progress
        if progress and not self._screen.live:
            self._screen.say(f"  {progress}")

    async def _paint(self) -> None:
        """Update the block at the bottom of a terminal; without a terminal print a summary now and then."""
        last_summary_s = float("-inf")
        for sign in itertools.cycle("|/-\\"):
            now = time.monotonic()
            self._trim_log()
            sent = self._generator
            if sent is not None and self._results.updates and not self._no_more_records.is_set():
                if self._screen.live:
                    self._screen.draw(table(self._results, lines=sent.lines, clicks=sent.clicks))
                elif now - last_summary_s >= _SUMMARY_S:
                    last_summary_s = now
                    self._screen.say(summary(self._results, lines=sent.lines, clicks=sent.clicks))
            elif self._doing:
                doing = f"{sign} {_capital(self._doing)} ({now - self._doing_since:.0f} s)"
                self._screen.draw([doing, f"  {self._detail}"] if self._detail else [doing])
            await asyncio.sleep(_PAINT_S)

    async def _stop(self, broker: Child) -> None:
        """Stop the generator first, then the pipelines, then the broker."""
        self._screen.keep()
        if self._address and broker.running:
            self._screen.say("Stopping ...")
        self._no_more_records.set()
        await asyncio.gather(*self._threads)
        if self._connect is not None:
            await self._connect.stop(_CONNECT_STOPS_S)
        if self._console is not None:
            await self._console.stop(_CONSOLE_STOPS_S)
        if self._spark is not None:
            await self._spark.stop(_SPARK_STOPS_S)
        if not await broker.stop(_BROKER_STOPS_S):
            self._screen.say(
                "The broker did not stop and was killed; it will repair its files at its next start"
            )
        elif self._address and self._stopping.is_set():
            self._screen.say("Stopped")


def program() -> str:
    """How this command was called, for those who want to call another of its kind."""
    called = sys.argv[0]
    if os.path.basename(called) != "ottla":
        return f"{os.path.basename(sys.executable)} -m ottla"
    if shutil.which("ottla") == os.path.abspath(called):
        return "ottla"
    near = os.path.relpath(called)
    return os.path.abspath(called) if near.startswith("..") else near


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        port: int = taken.getsockname()[1]
        return port


def _why_not_installed(output: Sequence[str]) -> str:
    """A sentence from what an installer printed."""
    errors = [line for line in output if line.startswith("ERROR:")] or list(output)[-1:]
    reason = f" ({errors[-1].removeprefix('ERROR:').strip()})" if errors else ""
    return f"Spark is not installed{reason}. With network, start this again, or `pip install 'ottla[spark]'` first"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
