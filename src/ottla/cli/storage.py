"""`ottla storage`: what kafka-storage does, with its flags and its output."""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.refuse import refusing
from ottla.cli.settings import node_config
from ottla.clock import SystemClock
from ottla.wire.uuid import uuid_to_str

_CONFIG = click.option("-c", "--config", "file", required=True, metavar="CONFIG", help="The properties file.")
_RELEASE = click.option(
    "-r", "--release-version", "release", metavar="RELEASE", help="For example 4.3 or 4.3-IV0."
)
_FEATURE_HELP = "A feature and its level, as in kraft.version=1; may be repeated."


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def storage() -> None:
    """Format and inspect the directories of a node."""


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a random UUID."""
    click.echo(uuid_to_str(SystemClock().random_uuid()))


@storage.command("version-mapping")
@_RELEASE
@refusing
def version_mapping(release: str | None) -> None:
    """Print the feature levels that a new cluster of a release has."""
    from ottla.cli.feature_levels import release_levels
    from ottla.metadata import features

    level = features.LATEST_METADATA_VERSION if release is None else features.metadata_version_level(release)
    shown = features.metadata_version_name(level) if release is None else release
    click.echo(f"{features.METADATA_VERSION}={level} ({shown})")
    for name, feature_level in release_levels(level).items():
        click.echo(f"{name}={feature_level}")


@storage.command("feature-dependencies")
@click.option("-f", "--feature", "features", required=True, multiple=True, help=_FEATURE_HELP)
@refusing
def feature_dependencies(features: tuple[str, ...]) -> None:
    """Print what the given feature levels need of other features."""
    from ottla.cli.feature_levels import dependencies_text, parse_level

    for word in features:
        click.echo(dependencies_text(*parse_level(word)))


@storage.command("info")
@_CONFIG
@refusing
def info(file: str) -> None:
    """Show the node's directories and what they were formatted with."""
    from ottla.cli.formatting import describe_directories

    report = describe_directories(node_config(file))
    click.echo(report.text)
    if report.problems:
        raise SystemExit(1)


@storage.command("format")
@_CONFIG
@click.option("-t", "--cluster-id", required=True, metavar="CLUSTER_ID", help="The cluster's id.")
@click.option(
    "-S", "--add-scram", multiple=True, help="SCRAM-SHA-256=[name=alice,password=...]; may be repeated."
)
@click.option(
    "--add-scram-file",
    multiple=True,
    metavar="FILE",
    help="The same from the lines of a file: no password in the list of processes.",
)
@click.option(
    "-g", "--ignore-formatted", is_flag=True, help="Leave directories alone that are formatted already."
)
@_RELEASE
@click.option("-f", "--feature", "features", multiple=True, help=_FEATURE_HELP)
@click.option("-s", "--standalone", is_flag=True, help="This node is the only voter of a dynamic quorum.")
@click.option(
    "-N", "--no-initial-controllers", is_flag=True, help="The voters of the dynamic quorum come later."
)
@click.option("-I", "--initial-controllers", metavar="ID@HOST:PORT:DIRECTORY,...", help="The first voters.")
@refusing
def format_command(file: str, **flags: Any) -> None:
    """Format the node's directories."""
    from ottla.cli.file_modes import keep_files_private
    from ottla.cli.formatting import FormatRequest, format_node

    keep_files_private()

    request = FormatRequest(node_config(file), **flags)
    format_node(request, click.echo)
