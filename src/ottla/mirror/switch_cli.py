"""`ottla mirror verify | drill | failover | failback`: whether the copy is whole, and moving to it and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from ottla.mirror.config import FlowConfig

_Command = Callable[..., None]


def _flows(file: str, clusters: str | None) -> list[FlowConfig]:
    from ottla.mirror.config import read_config

    return read_config(Path(file)).copying_into(named(clusters))


@click.command()
@file_argument
@clusters_option
@click.option("--full", is_flag=True, help="Compare every record.")
@click.option(
    "--sample", type=click.IntRange(min=1), metavar="N", help="Compare N records of each partition."
)
@json_option
def verify(file: str, clusters: str | None, full: bool, sample: int | None, as_json: bool) -> None:
    """Compare both sides: topics, settings, access, groups and records.

    Changes nothing. The exit code is 1 if they differ.
    """
    from ottla.mirror.verify import verify_flow

    with failures_as_lines():
        if full and sample:
            raise click.UsageError("--full compares every record: leave --sample out")
        found = [verify_flow(flow, full=full, sample=sample or 0) for flow in _flows(file, clusters)]
        show(found, as_json=as_json)
    if any(one.differences for one in found):
        raise SystemExit(1)


@click.command()
@file_argument
@clusters_option
@click.option("--group", "groups", multiple=True, help="Only this group; may be repeated.")
@json_option
def drill(file: str, clusters: str | None, groups: tuple[str, ...], as_json: bool) -> None:
    """Rehearse a failover: what each group would repeat or miss now, RPO and RTO.

    Changes nothing. The exit code is 1 if a group would repeat or miss a record, or if a partition has stopped.
    """
    from ottla.mirror.config import client_properties
    from ottla.mirror.drill import drill_flow

    with failures_as_lines():
        found = [
            drill_flow(flow, client_properties(Path(file), flow.target), groups or None)
            for flow in _flows(file, clusters)
        ]
        require_groups(groups, (one.group for each in found for one in each.positions))
        show(found, as_json=as_json)
    if not all(one.passed for one in found):
        raise SystemExit(1)


@click.command()
@file_argument
@click.argument("source")
@click.argument("target")
@click.option("--force", is_flag=True, help="Even if the source does not answer, or is still in use.")
def failover(file: str, source: str, target: str, force: bool) -> None:
    """Move clients from SOURCE to TARGET: copy the last records, place the groups, and end the flow."""
    from ottla.mirror.config import read_config
    from ottla.mirror.failover import failover as fail_over

    with failures_as_lines():
        config = read_config(Path(file))
        fail_over(config.flow(source, target), config.enabled_flow(target, source), click.echo, force=force)


@click.command()
@file_argument
@click.argument("source")
@click.argument("target")
@click.option("--force", is_flag=True, help="Even if the cluster is still in use, or has records of its own.")
def failback(file: str, source: str, target: str, force: bool) -> None:
    """Move clients from SOURCE back to TARGET, after a failover from TARGET to SOURCE.

    Only what SOURCE got since is copied. The file is that of the failover, with its flow TARGET->SOURCE. If that flow
    renames topics, the file enables SOURCE->TARGET, too.
    """
    from ottla.mirror.config import read_config
    from ottla.mirror.failover import failback as fail_back

    with failures_as_lines():
        config = read_config(Path(file))
        fail_back(config.flow(target, source), config.enabled_flow(source, target), click.echo, force=force)
