"""Names of topics, groups and profiles for shell completion: quick, and silent if the cluster does not answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.tools.base import open_session
from ottla.errors import ApiException

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster

_TIMEOUT_S: Final = 0.7
"""More than a nearby cluster needs, and short enough not to annoy."""


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, _topics)


def complete_groups(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _names(ctx, incomplete, _groups)


def complete_profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from ottla.cli import profiles

    with contextlib.suppress(ApiException, OSError):
        return sorted(name for name in profiles.load().by_name if name.startswith(incomplete))
    return []


def _names(ctx: click.Context, incomplete: str, ask: Callable[[Cluster], list[str]]) -> list[str]:
    with contextlib.suppress(ApiException, OSError, click.ClickException):
        values = dict(ctx.params)
        values.setdefault("as_json", False)
        cluster = _cluster(values)
        try:
            return sorted(name for name in ask(cluster) if name.startswith(incomplete))
        finally:
            cluster.close()
    return []


def _cluster(values: dict[str, object]) -> Cluster:
    session = open_session(values, quiet=True)
    session.timeout_s = _TIMEOUT_S
    return session.cluster


def _topics(cluster: Cluster) -> list[str]:
    return [topic.name or "" for topic in cluster.metadata().topics if not topic.is_internal]


def _groups(cluster: Cluster) -> list[str]:
    from ottla.admin.groups import list_groups

    return [group.group_id for group in list_groups(cluster)]
