"""What the mirror's commands share: their arguments, their two forms of output, and failures as one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import click

from ottla.connect.failures import ConnectError
from ottla.errors import ApiException
from ottla.mirror.failures import MirrorError
from ottla.pipeline.failures import PipelineError

file_argument = click.argument("file", metavar="MM2.PROPERTIES")
clusters_option = click.option(
    "--clusters", help="Only flows into these clusters: names, with commas between."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def named(clusters: str | None) -> list[str] | None:
    """The clusters that an option names; None for all."""
    return None if clusters is None else clusters.replace(",", " ").split()


def require_groups(wanted: Iterable[str], found: Iterable[str]) -> None:
    """Refuse names of groups of which nothing was found: they may be mistyped."""
    known = set(found)
    for group in wanted:
        if group not in known:
            raise MirrorError(
                f"group {group} has no position in a mirrored topic: `ottla mirror plan` lists the groups that are "
                "mirrored"
            )


class Shown(Protocol):
    """Something to print."""

    def as_dict(self) -> dict[str, object]:
        """For JSON."""

    def lines(self) -> Iterator[str]:
        """For people."""


def show(found: Sequence[Shown], *, as_json: bool) -> None:
    """Prints things in one of both forms."""
    if as_json:
        click.echo(json.dumps([one.as_dict() for one in found], indent=2))
        return
    for one in found:
        for line in one.lines():
            click.echo(line)


@contextmanager
def failures_as_lines() -> Iterator[None]:
    """A failure is one line and exit code 1."""
    try:
        yield
    except (MirrorError, ApiException, ConnectError, PipelineError) as error:
        click.echo(f"ottla mirror: {error}", err=True)
        sys.exit(1)
