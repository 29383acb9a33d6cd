"""`ottla start`: the process around a node. Signals, limits, log output, and errors in one line."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla import __version__
from ottla.cli.console_child import DEFAULT_CONSOLE, console_beside
from ottla.cli.file_modes import keep_files_private
from ottla.cli.in_sync_report import IN_SYNC, REPORT_IN_SYNC
from ottla.cli.log_format import FORMATS, set_up_logging
from ottla.cli.memory import keep_freed_buffers, return_free_memory
from ottla.cli.properties_file import read_properties
from ottla.cli.refuse import describe_os_error, refuse
from ottla.cli.settings import http_address, node_config, parse_assignments
from ottla.config.acted_on import unused_keys
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Listener, format_address
from ottla.config.secrets import is_secret
from ottla.errors import ApiException
from ottla.parent_process import on_loop_when_parent_ends

if TYPE_CHECKING:
    from ottla.net.watchdog import LoopWatchdog
    from ottla.server import Server

_logger = logging.getLogger("ottla")

_TRACE = 5
_LOG_LEVELS = ("trace", "debug", "info", "warning", "error")
_ANY_ADDRESS = ("", "0.0.0.0", "::")
_WATCHDOG_FILE = "OTTLA_LOOP_WATCHDOG"
_LOOK_IN_SYNC_S = 0.5
_SWITCH_INTERVAL_S = 0.0001
"""How long a thread that computes (a compaction) may keep the interpreter from the event loop; Python's own 5 ms
would double the latency of every request beside it."""
_GC_THRESHOLDS = (5_000, 100, 100)
"""A young collection that frees its 5,000 objects takes some 6 ms of the loop, one of 50,000 took 50 to 120 ms.
Objects that survive live long, so the older generations are collected rarely."""


@click.command()
@click.option("--config", "file", metavar="FILE", help="A server.properties with Kafka's keys.")
@click.option("--data", metavar="DIR", help="Where the data lives (log.dirs). [default: ./ottla-data]")
@click.option("--listen", metavar="HOST:PORT", help="Where clients connect. [default: localhost:9092]")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Set one key; may be repeated.")
@click.option(
    "--brokers",
    type=int,
    metavar="N",
    help="Run a cluster of N processes, on ports counted up from --listen.",
)
@click.option(
    "--processes",
    metavar="N|auto",
    help="Run the node of the file as N broker processes (ottla.processes); auto is one for each core.",
)
@click.option(
    "--http",
    metavar="[HOST:]PORT",
    help="Serve metrics and health over HTTP; with --brokers on ports counted up from this one.",
)
@click.option(
    "--console",
    is_flag=False,
    flag_value=DEFAULT_CONSOLE,
    metavar="[HOST:PORT]",
    help=f"Run a web console beside it, on {DEFAULT_CONSOLE} unless another address is given.",
)
@click.option("--log-level", type=click.Choice(_LOG_LEVELS), default="warning", show_default=True)
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True)
def start(
    file: str | None,
    data: str | None,
    listen: str | None,
    settings: tuple[str, ...],
    brokers: int | None,
    processes: str | None,
    http: str | None,
    console: str | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run a node: on its own a whole cluster of one, broker and controller."""
    try:
        if brokers is not None:
            from ottla.cli.supervisor import plan_cluster, supervise_cluster

            given = read_properties(file) if file is not None else {}
            given.update(parse_assignments(settings, "--set"))
            supervise_cluster(
                plan_cluster(brokers, data, listen, given, http), log_level, log_format, console
            )
            return
        own = parse_assignments(settings, "--set")
        if http is not None:
            own["ottla.http.listen"] = format_address(*http_address(http))
        if processes is not None:
            own["ottla.processes"] = processes
        config = node_config(file, own, data, listen)
    except ApiException as error:
        refuse(error.message)
    run_node(config, log_level, file, log_format, console, own)


def run_node(
    config: BrokerConfig,
    log_level: str,
    file: str | None = None,
    log_format: str = "text",
    console: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Run a node until it gets a stop signal; exit code 0 after a clean stop.

    `file` is its properties file, and `settings` has what counts in place of the file's.
    """
    if config.str("ottla.processes") != "1":
        from ottla.cli.machine import run_processes

        run_processes(config, file, settings or {}, log_level, log_format, console)
        return
    logging.addLevelName(_TRACE, "TRACE")
    set_up_logging(log_level, log_format, config.node_id)
    keep_files_private()
    try:
        _check_file(config, file)
        for key in unused_keys(config.static):
            _logger.warning(
                "Configuration %s is not acted on by this version; it is accepted as it stands", key
            )
        _raise_file_limit()
        keep_freed_buffers()
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        _run(config, console)
    except ApiException as error:
        refuse(error.message)
    except OSError as error:
        refuse(describe_os_error(error))


def _check_file(config: BrokerConfig, file: str | None) -> None:
    """The properties file itself, if it holds passwords."""
    if file is None or not any(is_secret(key) for key in config.static):
        return
    from ottla.config.security_profile import is_strict
    from ottla.security.profile import file_findings, report

    report(file_findings([("--config", file)]), strict=is_strict(config))


def _run(config: BrokerConfig, console: str | None) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(_serve(config, console))
    else:
        uvloop.run(_serve(config, console))


async def _serve(config: BrokerConfig, console: str | None) -> None:
    # The server's imports are most of the start-up time: they come after everything that may refuse, and what they
    # make stays, so that the collector need not look at it.
    gc.disable()
    from ottla.server import Server
    from ottla.server.environment import Environment

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    on_loop_when_parent_ends(loop, stopping.set)
    with _watched_loop() as watchdog:
        server = Server(config, Environment(watchdog=watchdog))
        loop.add_signal_handler(signal.SIGHUP, server.reload_tls)
        await _run_server(server, config, stopping, console)


async def _run_server(
    server: Server, config: BrokerConfig, stopping: asyncio.Event, console: str | None
) -> None:
    await server.start()
    _tune_gc()
    try:
        _, port = server.addresses[first_listener(config).name]
        click.echo(ready_line(config, port, server.cluster_id))
        loading = asyncio.get_running_loop().run_in_executor(None, _finish_start)
        reporting = asyncio.create_task(_report_in_sync(server)) if os.environ.get(REPORT_IN_SYNC) else None
        async with console_beside(client_address(config, port), console):
            failure = await _first_of(stopping, server)
        if reporting is not None:
            reporting.cancel()
        await loading
    finally:
        await server.stop()
    if failure is not None:
        refuse(f"the node stopped because of an error: {failure}")


def _tune_gc() -> None:
    """Exempt the objects of the start-up from garbage collection, since they live as long as the process."""
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()


async def _report_in_sync(server: Server) -> None:
    """Print a line for the supervisor when every replica of this node has caught up."""
    while True:
        if server.in_sync:
            click.echo(IN_SYNC)
            return
        await asyncio.sleep(_LOOK_IN_SYNC_S)


def _finish_start() -> None:
    """What can wait until the node answers: load the other APIs, then return what the start no longer needs."""
    from ottla.server.preload import preload

    preload()
    return_free_memory()


def _wait_for_core() -> Callable[[], float]:
    """A function that says how long this thread was ready to run while others had the cores, if the system does."""
    try:
        # The file stays open: a look at it costs 2 µs then.
        fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return lambda: 0.0
    return lambda: int(os.pread(fd, 100, 0).split()[1]) / 1e9


@contextlib.contextmanager
def _watched_loop() -> Iterator[LoopWatchdog]:
    """A watchdog for the node. Its findings are written at the end where OTTLA_LOOP_WATCHDOG names a file for them.

    It may be a directory: each process then has a file there, with its id as the name.
    """
    from ottla.clock import SystemClock
    from ottla.net.watchdog import FINE_INTERVAL_S, FINE_STACK_AFTER_S, LoopWatchdog

    path = os.environ.get(_WATCHDOG_FILE)
    if path:
        watchdog = LoopWatchdog(
            SystemClock(), _wait_for_core(), FINE_INTERVAL_S, FINE_STACK_AFTER_S, ran_s=time.thread_time
        )
    else:
        watchdog = LoopWatchdog(SystemClock(), _wait_for_core())
    try:
        yield watchdog
    finally:
        if path:
            import msgspec

            file = Path(path) / f"{os.getpid()}.json" if os.path.isdir(path) else Path(path)
            try:
                file.write_bytes(msgspec.json.encode(watchdog.findings()))
            except OSError as error:
                # The node itself has ended well.
                _logger.warning("Cannot write what the watchdog found: %s", error)


async def _first_of(stopping: asyncio.Event, server: Server) -> BaseException | None:
    """Wait for a signal or for the failure that the server cannot go on after."""
    signalled = asyncio.create_task(stopping.wait())
    failed = asyncio.create_task(server.wait_failed())
    done, pending = await asyncio.wait((signalled, failed), return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return failed.result() if failed in done else None


def first_listener(config: BrokerConfig) -> Listener:
    """The address for clients; on a node that is only a controller, the address for other nodes."""
    return (config.broker_listeners or config.controller_listeners)[0]


def client_address(config: BrokerConfig, port: int) -> str:
    """Where clients on this machine connect."""
    listener = first_listener(config)
    return format_address(listener.host if listener.host not in _ANY_ADDRESS else "localhost", port)


def ready_line(config: BrokerConfig, port: int, cluster_id: str) -> str:
    """Print the one line on standard output: the address and the data directory."""
    data = ", ".join(config.log_dirs)
    address = client_address(config, port)
    return f"Ottla {__version__} is ready on {address} (data in {data}, cluster {cluster_id})"


def _raise_file_limit() -> None:
    """Segments, indexes and connections are files: take as many as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems name a hard limit that they do not grant.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
