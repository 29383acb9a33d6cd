"""`ottla start --brokers N`: a cluster of separate processes on this machine, and the one that looks after them.

A node that dies is started again, after a pause that grows; one that cannot live at all ends the cluster with a clear
line. Where nodes listen and have their data is `ottla.cli.local_cluster`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from ottla import __version__
from ottla.cli.console_child import STOP_WITH_STDIN, console_beside
from ottla.cli.local_cluster import Address, NodePlan, plan_nodes, prepare_nodes
from ottla.cli.refuse import describe_os_error, refuse
from ottla.cli.settings import DEFAULT_LISTEN, http_address
from ottla.config.definitions import DATA_DIRECTORY
from ottla.config.errors import ConfigError
from ottla.config.listeners import format_address, parse_address
from ottla.errors import ApiException
from ottla.log.checkpoints import read_meta_properties
from ottla.log.fs import OsFs

MAX_BROKERS: Final = 100

_CONTROLLERS: Final = 3
"""So many of the nodes are voters of the quorum: one may be lost, and more voters would only be slower."""
_LIVED_S: Final = 5.0
"""A node that ran for this long was no failed start."""
_FAILURES: Final = 5
"""Starts in a row that may fail before the supervisor gives up."""
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 8.0
_STOP_TIMEOUT_S: Final = 60.0
_LAST_WORDS: Final = 2000


class GaveUp(Exception):
    """A node fails again and again; the text says which one and why."""


class Child:
    """One node and its process, over all restarts."""

    def __init__(self, plan: NodePlan, log_level: str, log_format: str = "text") -> None:
        self.plan = plan
        self.ready = asyncio.Event()
        self._log_level = log_level
        self._log_format = log_format
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._failures = 0

    async def run(self) -> None:
        """Keep it running until it is asked to stop. Raises GaveUp."""
        while not self._stopping:
            began = asyncio.get_running_loop().time()
            code = await self._live()
            if self._stopping:
                return
            lived_s = asyncio.get_running_loop().time() - began
            self._failures = self._failures + 1 if lived_s < _LIVED_S else 0
            name = f"node {self.plan.node_id}"
            if self._failures >= _FAILURES:
                raise GaveUp(
                    f"{name} failed {self._failures} times in a row right after its start "
                    f"({_how(code)}); its log is {self.plan.log} and ends with: {self._last_words()}"
                )
            pause_s = 0.0
            if self._failures > 1:
                pause_s = min(_FIRST_PAUSE_S * 2 ** (self._failures - 2), _LONGEST_PAUSE_S)
            when = f"in {pause_s:g} s" if pause_s else "at once"
            click.echo(f"ottla: {name} ended ({_how(code)}); starting it again {when}", err=True)
            await asyncio.sleep(pause_s)

    async def _live(self) -> int:
        """One life of the process, to its end."""
        words = [sys.executable, "-m", "ottla", "start", "--config", str(self.plan.file)]
        with self.plan.log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *words,
                "--log-level",
                self._log_level,
                "--log-format",
                self._log_format,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, STOP_WITH_STDIN: "1"},
                # Ctrl-C in a terminal goes to the whole group; nodes are to stop one after the other.
                start_new_session=True,
            )
        self.plan.pid_file.write_text(f"{process.pid}\n")
        assert process.stdout is not None
        if await process.stdout.readline():
            self.ready.set()
        code = await process.wait()
        with contextlib.suppress(FileNotFoundError):
            self.plan.pid_file.unlink()
        return code

    async def stop(self) -> None:
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            click.echo(f"ottla: node {self.plan.node_id} does not stop; it is killed", err=True)
            process.kill()
            await process.wait()

    def _last_words(self) -> str:
        text = self.plan.log.read_bytes()[-_LAST_WORDS:].decode("utf-8", "replace").strip()
        return text.splitlines()[-1] if text else "nothing"


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def plan_cluster(
    brokers: int,
    data: str | None,
    listen: str | None,
    properties: Mapping[str, str],
    http: str | None = None,
) -> list[NodePlan]:
    """Where each node listens: brokers from the port given upwards, their controllers on the ports after those.

    Their HTTP servers count up from `http`.
    """
    if not 1 <= brokers <= MAX_BROKERS:
        raise ConfigError(f"Invalid value {brokers} for --brokers: expected a number from 1 to {MAX_BROKERS}")
    address = parse_address(listen or DEFAULT_LISTEN)
    if address is None or not address[1]:
        raise ConfigError(
            f"Invalid value '{listen}' for --listen: expected HOST:PORT with a port to count from"
        )
    host, port = address
    root = Path(data or properties.get("log.dirs") or properties.get("log.dir") or DATA_DIRECTORY).absolute()
    if read_meta_properties(OsFs(), str(root)) is not None:
        raise ConfigError(f"{root} holds the data of a single node: give another directory with --data")
    existing = sorted(path.name for path in root.glob("node-*") if path.is_dir())
    if len(existing) > brokers:
        raise ConfigError(f"{root} holds a cluster of {len(existing)} nodes ({', '.join(existing)})")
    voters = _CONTROLLERS if brokers >= _CONTROLLERS else 1
    nodes: dict[int, tuple[Address | None, Address | None]] = {
        number + 1: (
            Address(host, port + number),
            Address(host, port + brokers + number) if number < voters else None,
        )
        for number in range(brokers)
    }
    plans = plan_nodes(root, nodes, settings={**_fitting(brokers), **_shared(properties)})
    if http is None:
        return plans
    http_host, http_port = http_address(http)
    return [
        replace(
            plan,
            properties={
                **plan.properties,
                "ottla.http.listen": format_address(http_host, http_port + number if http_port else 0),
            },
        )
        for number, plan in enumerate(plans)
    ]


def _fitting(brokers: int) -> dict[str, str]:
    """Kafka's internal topics want three replicas: as many as there are."""
    replicas, in_sync = str(min(3, brokers)), str(min(2, brokers))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


_EACH_ITS_OWN: Final = frozenset(
    {
        "process.roles",
        "node.id",
        "broker.id",
        "listeners",
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "ottla.http.listen",
    }
)


def _shared(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key not in _EACH_ITS_OWN}


def supervise(
    plans: list[NodePlan], log_level: str, log_format: str = "text", console: str | None = None
) -> None:
    """Run the cluster until it gets a stop signal; exit code 0 after a clean stop."""
    try:
        cluster_id = prepare_nodes(plans)
        asyncio.run(_supervise(plans, cluster_id, log_level, log_format, console))
    except ApiException as error:
        refuse(error.message)
    except OSError as error:
        refuse(describe_os_error(error))
    except GaveUp as error:
        refuse(str(error))


async def _supervise(
    plans: list[NodePlan], cluster_id: str, log_level: str, log_format: str, console: str | None
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    children = [Child(plan, log_level, log_format) for plan in plans]
    lives = [asyncio.create_task(child.run()) for child in children]
    announcement = asyncio.create_task(_announce_when_ready(children, cluster_id))
    stopped = asyncio.create_task(stopping.wait())
    addresses = ",".join(str(plan.broker) for plan in plans if plan.broker is not None)
    try:
        async with console_beside(addresses, console):
            await asyncio.wait([stopped, *lives], return_when=asyncio.FIRST_COMPLETED)
    finally:
        announcement.cancel()
        stopped.cancel()
        # Those without a vote first: as long as most voters run, leadership can be handed over.
        for child in sorted(children, key=lambda each: each.plan.controller is not None):
            await child.stop()
    for life in lives:
        life.cancel()
    outcomes = await asyncio.gather(*lives, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


async def _announce_when_ready(children: list[Child], cluster_id: str) -> None:
    for child in children:
        await child.ready.wait()
    addresses = ",".join(str(child.plan.broker) for child in children)
    data = children[0].plan.data.parent
    click.echo(f"Ottla {__version__} is ready on {addresses} (data in {data}, cluster {cluster_id})")
