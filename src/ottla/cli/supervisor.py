"""Several nodes as processes of this machine, and the one that looks after them.

`ottla start --brokers N` makes a cluster of its own (`ottla.cli.local_cluster`), `ottla.processes=N` members of any
cluster (`ottla.cli.machine`). A node that dies is started again; one that cannot live at all ends all of them.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from ottla import __version__
from ottla.cli.child_node import ChildNode, GaveUp
from ottla.cli.console_child import console_beside
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
_IN_SYNC_WITHIN_S: Final = 600.0
"""How long a rolling restart waits for the replicas of one node."""


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


def supervise_cluster(
    plans: list[NodePlan], log_level: str, log_format: str = "text", console: str | None = None
) -> None:
    """Run a cluster of its own until it gets a stop signal; exit code 0 after a clean stop."""
    try:
        cluster_id = prepare_nodes(plans)
    except ApiException as error:
        refuse(error.message)
    except OSError as error:
        refuse(describe_os_error(error))
    addresses = ",".join(str(plan.broker) for plan in plans if plan.broker is not None)
    data = plans[0].data.parent
    supervise(
        lambda: [
            ChildNode(
                plan.node_id,
                ["--config", str(plan.file), "--log-level", log_level, "--log-format", log_format],
                votes=plan.controller is not None,
                log=plan.log,
                pid_file=plan.pid_file,
            )
            for plan in plans
        ],
        f"Ottla {__version__} is ready on {addresses} (data in {data}, cluster {cluster_id})",
        addresses,
        console,
    )


def supervise(
    make: Callable[[], Sequence[ChildNode]], announcement: str, addresses: str, console: str | None
) -> None:
    """Run these nodes until a stop signal; exit code 0 after a clean stop. SIGUSR1 restarts one after the other."""
    try:
        asyncio.run(_supervise(make, announcement, addresses, console))
    except OSError as error:
        refuse(describe_os_error(error))
    except GaveUp as error:
        refuse(str(error))


async def _supervise(
    make: Callable[[], Sequence[ChildNode]], announcement: str, addresses: str, console: str | None
) -> None:
    stopping, restarting = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGUSR1, restarting.set)
    children = make()
    # A node reads its key and trust stores again.
    loop.add_signal_handler(signal.SIGHUP, _to_all, children, signal.SIGHUP)
    lives = [asyncio.create_task(child.run()) for child in children]
    beside = [
        asyncio.create_task(_announce_when_ready(children, announcement)),
        asyncio.create_task(_restart_on_request(children, restarting)),
    ]
    stopped = asyncio.create_task(stopping.wait())
    try:
        async with console_beside(addresses, console):
            await asyncio.wait([stopped, *lives], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*beside, stopped):
            task.cancel()
        # Those without a vote first: as long as most voters run, leadership can be handed over.
        for child in sorted(children, key=lambda each: each.votes):
            await child.stop()
    for life in lives:
        life.cancel()
    outcomes = await asyncio.gather(*lives, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


def _to_all(children: Sequence[ChildNode], number: int) -> None:
    for child in children:
        child.pass_on(number)


async def _announce_when_ready(children: Sequence[ChildNode], announcement: str) -> None:
    for child in children:
        await child.ready.wait()
    click.echo(announcement)


async def _restart_on_request(children: Sequence[ChildNode], request: asyncio.Event) -> None:
    """A rolling restart for each request: the next node stops when the replicas of the one before are in sync."""
    while True:
        await request.wait()
        request.clear()
        click.echo("ottla: restarting the nodes one after the other", err=True)
        for child in children:
            try:
                async with asyncio.timeout(_IN_SYNC_WITHIN_S):
                    await child.in_sync.wait()
                    await child.restart()
                    await child.in_sync.wait()
            except TimeoutError:
                click.echo(
                    f"ottla: the replicas of node {child.node_id} are not in sync after {_IN_SYNC_WITHIN_S:.0f} s;"
                    " the other nodes are not restarted",
                    err=True,
                )
                break
            click.echo(f"ottla: node {child.node_id} has restarted, and its replicas are in sync", err=True)
        else:
            click.echo("ottla: all nodes have restarted", err=True)
