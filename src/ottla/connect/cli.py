"""`ottla connect`: runs a worker, validates a connector's configuration, or shows what it would write."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path

import click

from ottla.connect.failures import ConnectError
from ottla.errors import ApiException
from ottla.parent_process import in_thread_when_parent_ends
from ottla.pipeline.failures import PipelineError


@click.group()
def connect() -> None:
    """Move data between topics and other systems: run a worker and its connectors."""


def _worker_keys(path: str | None, master: str | None, bootstrap: str | None) -> tuple[dict[str, str], bool]:
    from ottla.connect.properties import parse

    keys: dict[str, str] = {}
    if path is not None:
        try:
            keys = parse(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConnectError(f"the worker file {path} cannot be read: {reason}") from None
    if master is not None:
        keys["ottla.spark.master"] = master
    if bootstrap is not None:
        keys["bootstrap.servers"] = bootstrap
    elif path is None and "OTTLA_BOOTSTRAP" in os.environ:
        keys["bootstrap.servers"] = os.environ["OTTLA_BOOTSTRAP"]
    return keys, path is not None


@connect.command()
@click.argument("worker_file", required=False)
@click.argument("connector_files", nargs=-1)
@click.option("--master", help="The Spark master that moves large amounts of data; none for no Spark.")
@click.option("--bootstrap-server", help="The brokers, in place of bootstrap.servers.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port of REST, in place of listeners.")
def run(
    worker_file: str | None,
    connector_files: tuple[str, ...],
    master: str | None,
    bootstrap_server: str | None,
    port: int | None,
) -> None:
    """Run a worker until Ctrl-C. Without a file it is standalone, with offsets in a topic.

    A file with `group.id` makes it one of a distributed cluster. Files after the first are connectors to start.
    """
    from ottla.connect.config.worker import worker_config
    from ottla.connect.worker import Worker

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s (%(name)s)")
    try:
        keys, from_file = _worker_keys(worker_file, master, bootstrap_server)
        if port is not None:
            keys["listeners"] = f"http://localhost:{port}"
        worker = Worker(worker_config(keys, from_file=from_file))
        worker.start()
    except (ConnectError, ApiException, PipelineError) as error:
        click.echo(f"ottla connect: {error}", err=True)
        sys.exit(1)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    in_thread_when_parent_ends(ended.set)
    scheme = worker.config.listeners[0].scheme
    click.echo(f"Connect worker ready at {scheme}://localhost:{worker.port}", err=True)
    try:
        for path in connector_files:
            name = worker.load_file(Path(path))
            click.echo(f"connector {name} created from {path}", err=True)
        ended.wait()
    except (ConnectError, ApiException, PipelineError) as error:
        click.echo(f"ottla connect: {error}", err=True)
        worker.stop()
        sys.exit(1)
    worker.stop()


@connect.command()
@click.argument("file")
@click.option("--offline", is_flag=True, help="Look at the keys only, not at the other end.")
def validate(file: str, offline: bool) -> None:
    """Check a connector's configuration, then its login, files, tables and rights."""
    from ottla.connect.config.connector import validate_connector
    from ottla.connect.plugins import Plugins
    from ottla.connect.worker import read_connector_file

    try:
        name, config, _ = read_connector_file(Path(file))
        plugins = Plugins()
        found = validate_connector(plugins, config)
        problems = found.errors()
        lines = [(False, text) for text in problems] + [(False, f"the key {one}") for one in found.unknown]
        if not problems and not offline:
            given = {key: value for key, value in config.items() if value is not None}
            made = plugins.connector(given["connector.class"])(given)
            lines += [(one.good, one.text) for one in made.check()]
    except ConnectError as error:
        click.echo(f"ottla connect: {error}", err=True)
        sys.exit(1)
    for good, text in lines:
        mark = click.style("ok", fg="green") if good else click.style("!!", fg="red")
        click.echo(f"{mark}  {text}")
    bad = sum(not good for good, _ in lines)
    click.echo(f"{name}: {bad} findings" if bad else f"{name}: in order")
    sys.exit(1 if bad else 0)


@connect.command("test")
@click.argument("file")
@click.option(
    "--records", default=5, show_default=True, type=click.IntRange(1, 1000), help="How many to show."
)
def try_connector(file: str, records: int) -> None:
    """Read a few records of a source and show them raw, after each transform, and as bytes. Writes nothing."""
    from ottla.connect.trial import trial
    from ottla.connect.worker import read_connector_file

    try:
        _, config, _ = read_connector_file(Path(file))
        for line in trial({key: value for key, value in config.items() if value is not None}, records):
            click.echo(line)
    except (ConnectError, ApiException, PipelineError) as error:
        click.echo(f"ottla connect: {error}", err=True)
        sys.exit(1)
