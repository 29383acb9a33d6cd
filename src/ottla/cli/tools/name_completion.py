"""Names of topics, groups and profiles for a shell that completes: quick, and silent where a cluster is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.tools.base import open_session, parse_bootstrap
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.cli.tools.cluster_client import Cluster

_TIMEOUT_S: Final = 0.7
"""Longer than any cluster nearby takes, and short enough not to annoy."""


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, _topics)


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, _groups)


def complete_profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from ottla.cli import profiles

    with contextlib.suppress(ApiException, OSError):
        return sorted(name for name in profiles.load().by_name if name.startswith(incomplete))
    return []


def _names(ctx: click.Context, incomplete: str, ask: Callable[[Any], list[str]]) -> list[str]:
    with contextlib.suppress(ApiException, OSError, click.ClickException):
        values = dict(ctx.params)
        values.setdefault("as_json", False)
        cluster = _cluster(values)
        try:
            return sorted(name for name in ask(cluster) if name.startswith(incomplete))
        finally:
            cluster.close()
    return []


def _cluster(values: dict[str, Any]) -> Any:
    from ottla.cli.tools.cluster_client import Cluster
    from ottla.cli.tools.security import security

    session = open_session(values, quiet=True)
    return Cluster(
        parse_bootstrap(session.bootstrap),
        client_id="ottla",
        timeout_s=_TIMEOUT_S,
        security=security(session.properties),
    )


def _topics(cluster: Cluster) -> list[str]:
    return [str(topic.name) for topic in cluster.metadata().topics if not topic.is_internal]


def _groups(cluster: Cluster) -> list[str]:
    from ottla.cli.tools.group_admin import list_groups

    return [group.group_id for group in list_groups(cluster)]
