"""kafka-server-start and kafka-server-stop, for the scripts in `bin/`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from ottla import __version__
from ottla.cli.processes import OttlaProcess, running_nodes
from ottla.cli.refuse import refuse, refusing
from ottla.cli.settings import node_config, parse_assignments

DAEMON_OUTPUT: Final = "kafkaServer.out"
"""Where a daemon's output goes, below `LOG_DIR` or `./logs`."""

_START_USAGE: Final = "USAGE: kafka-server-start.sh [-daemon] server.properties [--override property=value]*"


@click.command(
    "kafka-server-start",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@refusing
def kafka_server_start(words: tuple[str, ...]) -> None:
    """[-daemon] server.properties [--override property=value]*"""
    arguments = [word for word in words if word != "-daemon"]
    if "--version" in arguments or "-version" in arguments:
        click.echo(f"ottla {__version__}")
        return
    if not arguments or arguments[0].startswith("-"):
        refuse(_START_USAGE)
    file, overrides = arguments[0], _overrides(arguments[1:])
    settings = parse_assignments(overrides, "--override")
    config = node_config(file, settings)
    if "-daemon" in words:
        _start_daemon(arguments)
        return
    from ottla.cli.start import run_node

    run_node(config, "warning", file, settings=settings)


def _overrides(words: list[str]) -> list[str]:
    """The values of the repeated `--override`, which is all that may follow the file."""
    values: list[str] = []
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag != "--override":
            refuse(_START_USAGE)
        following = value if equals else next(rest, None)
        if following is None:
            refuse(_START_USAGE)
        values.append(following)
    return values


def _start_daemon(arguments: list[str]) -> None:
    directory = Path(os.environ.get("LOG_DIR", "logs"))
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / DAEMON_OUTPUT).open("ab") as output:
        subprocess.Popen(
            [sys.executable, "-m", "ottla", "kafka-server-start", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


@click.command("kafka-server-stop")
@click.option("--process-role", metavar="ROLE", help="Only nodes that have this role.")
@click.option("--node-id", type=int, metavar="ID", help="Only the node with this id.")
def kafka_server_stop(process_role: str | None, node_id: int | None) -> None:
    """Ask the nodes on this machine to stop."""
    found = [
        process
        for process in running_nodes()
        if process_role is None or _has(process, "process.roles", process_role)
        if node_id is None or _has(process, "node.id", str(node_id))
    ]
    if not found:
        click.echo("No kafka server to stop")
        sys.exit(1)
    for process in found:
        os.kill(process.pid, signal.SIGTERM)


def _has(process: OttlaProcess, key: str, value: str) -> bool:
    return value in (word.strip() for word in process.properties.get(key, "").split(","))
