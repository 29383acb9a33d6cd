"""`ottla demo`: the command's options."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path

import click

from ottla.cli.refuse import describe_os_error, refuse


@click.command()
@click.option("--data", default="./ottla-data", show_default=True, metavar="DIR", help="The broker's data.")
@click.option(
    "--listen", default="localhost:9092", show_default=True, metavar="HOST:PORT", help="The broker."
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="The pipelines' state.  [default: beside the data, with -streams after its name]",
)
@click.option("--seed", default=1, show_default=True, help="Other lines and clicks.")
@click.option(
    "--rate",
    "lines_per_s",
    type=click.FloatRange(0.1, 1000),
    default=5.0,
    show_default=True,
    help="Lines per second; there are two clicks for each line.",
)
@click.option(
    "--console",
    default="localhost:9021",
    show_default=True,
    metavar="HOST:PORT",
    help="The web console; an empty address leaves it out.",
)
@click.option(
    "--prepare", metavar="COMMAND", help="Run this first for Spark, while the broker is there already."
)
def demo(
    data: str,
    listen: str,
    state_dir: Path | None,
    seed: int,
    lines_per_s: float,
    console: str,
    prepare: str | None,
) -> None:
    """Run a broker, records and a table that keep coming, and pipelines on Spark. Ctrl-C stops all."""
    from ottla.demo.director import BrokerEnded, Director, Plan

    plan = Plan(
        data=data,
        listen=listen,
        state_dir=state_dir or Path(f"{data.rstrip('/')}-streams"),
        seed=seed,
        lines_per_s=lines_per_s,
        prepare=shlex.split(prepare) if prepare else [],
        console=console,
    )
    try:
        asyncio.run(Director(plan).run())
    except BrokerEnded as end:
        for line in end.words:
            click.echo(line, err=True)
        sys.exit(end.code or 1)
    except OSError as error:
        refuse(describe_os_error(error))
