"""`ottla mirror`: runs a mirror, says what it would make, how far it is, and where groups stand at both sides."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.mirror.sentences import (
    clusters_option,
    failures_as_lines,
    file_argument,
    json_option,
    named,
    require_groups,
    show,
)
from ottla.mirror.switch_cli import drill, failback, failover, verify
from ottla.parent_process import in_thread_when_parent_ends

if TYPE_CHECKING:
    from ottla.mirror.config import FlowConfig, MirrorConfig
    from ottla.mirror.mirror import MakeRunner, Mirror
    from ottla.mirror.runners import Runner

_INTERVAL_VARIABLE: Final = "OTTLA_PROGRESS_INTERVAL_S"
_LINE_INTERVAL_S: Final = 10.0
_LIVE_INTERVAL_S: Final = 0.5


@click.group()
def mirror() -> None:
    """Mirror topics, groups and access from cluster to cluster, as MirrorMaker 2 does with the same file."""


def _config(file: str) -> MirrorConfig:
    from ottla.mirror.config import read_config

    return read_config(Path(file))


@mirror.command()
@file_argument
@clusters_option
@click.argument("more", nargs=-1, metavar="")
@click.option("--once", is_flag=True, help="Copy what is there, bring groups up to date, and end.")
@click.option("--master", help="The Spark master that runs the lanes; none for threads of this process.")
@click.option("--metrics", metavar="HOST:PORT", help="Where Prometheus finds /metrics of this mirror.")
def run(
    file: str,
    clusters: str | None,
    more: tuple[str, ...],
    once: bool,
    master: str | None,
    metrics: str | None,
) -> None:
    """Run the flows of a file until Ctrl-C. Progress goes to standard error."""
    if more and clusters is None:
        raise click.UsageError(f"what is '{more[0]}'? A mirror takes one file")
    with failures_as_lines():
        # Kafka's script takes several names after --clusters.
        targets = named(" ".join((clusters or "", *more))) or None
        run_mirror(_config(file), targets=targets, once=once, master=master, metrics=metrics)


def run_mirror(
    config: MirrorConfig,
    *,
    targets: list[str] | None,
    once: bool,
    master: str | None,
    metrics: str | None = None,
) -> None:
    """Runs a mirror in the foreground; exits with 1 if a flow or a partition could not go on."""
    from ottla.mirror.metrics import MetricsPage, prometheus
    from ottla.mirror.mirror import Mirror

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s (%(name)s)")
    for warning in config.warnings:
        click.echo(f"ottla mirror: {warning}", err=True)
    work = Mirror(config, targets=targets, once=once, make_runner=_runners(master))
    page = None if metrics is None else MetricsPage(metrics, lambda: prometheus(work.drivers))
    ended = work.ended
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    in_thread_when_parent_ends(ended.set)
    names = ", ".join(one.config.name for one in work.drivers if one.config.enabled)
    click.echo(f"mirror {names} starts", err=True)
    work.start()
    _watch(work)
    if page is not None:
        page.close()
    for failure in work.failures:
        click.echo(f"ottla mirror: {failure}", err=True)
    sys.exit(1 if work.failures else 0)


def _runners(master: str | None) -> MakeRunner:
    def make(flow: FlowConfig) -> Runner:
        from ottla.mirror.runners import SparkRunner, ThreadRunner

        chosen = master or flow.values["ottla.spark.master"]
        if chosen == "none":
            return ThreadRunner()
        from ottla.pipeline.session import spark_session

        name = f"ottla-mirror-{flow.source}-{flow.target}"
        return SparkRunner(spark_session(name, master=chosen, settings=flow.spark_settings))

    return make


def _watch(work: Mirror) -> None:
    """Shows progress until all flows have ended."""
    from ottla.mirror.watching import Watcher

    live = sys.stderr.isatty()
    given = os.environ.get(_INTERVAL_VARIABLE, "")
    interval_s = _LIVE_INTERVAL_S if live else float(given or _LINE_INTERVAL_S)
    watcher = Watcher(live=live)
    while not work.wait(interval_s):
        watcher.show(work.progress())
    watcher.finish(work.progress())


@mirror.command()
@file_argument
@clusters_option
@json_option
def plan(file: str, clusters: str | None, as_json: bool) -> None:
    """Say what each flow would mirror and make. Changes nothing."""
    from ottla.mirror.looking import plan_of

    with failures_as_lines():
        config = _config(file)
        found = [plan_of(flow) for flow in config.copying_into(named(clusters))]
        show(found, as_json=as_json)


@mirror.command()
@file_argument
@clusters_option
@json_option
def status(file: str, clusters: str | None, as_json: bool) -> None:
    """Show how far each partition is copied: lag in records and seconds."""
    from ottla.mirror.looking import status_of

    with failures_as_lines():
        config = _config(file)
        now_ms = time.time_ns() // 1_000_000
        found = [status_of(flow, now_ms) for flow in config.copying_into(named(clusters))]
        show(found, as_json=as_json)


@mirror.command()
@file_argument
@clusters_option
@click.option("--group", required=True, help="The consumer group.")
@json_option
def offsets(file: str, clusters: str | None, group: str, as_json: bool) -> None:
    """Show where a group stands at the source, and where that is at the target."""
    from ottla.mirror.looking import offsets_of

    with failures_as_lines():
        config = _config(file)
        found = [offsets_of(flow, group) for flow in config.copying_into(named(clusters))]
        require_groups([group], (one.group for each in found for one in each.positions))
        show(found, as_json=as_json)


for _command in (verify, drill, failover, failback):
    mirror.add_command(_command)
