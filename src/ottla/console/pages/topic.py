"""A topic: its head and tabs, and the tabs Partitions, Groups and Settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.admin.configs import describe_configs
from ottla.console.security.roles import ADMIN, CHANGE, PRODUCE, RESET, SEE
from ottla.console.web import Values, View, page
from ottla.wire.enums import ConfigResourceType, ConfigSource

if TYPE_CHECKING:
    from ottla.admin.cluster import Cluster
    from ottla.admin.configs import ConfigEntry

TABS: Final = (
    ("records", "Records", ""),
    ("live", "Live", "live"),
    ("partitions", "Partitions", "partitions"),
    ("groups", "Groups", "groups"),
    ("settings", "Settings", "settings"),
    ("log", "Log", "log"),
    ("numbers", "Numbers", "numbers"),
    ("time", "Time", "time"),
    ("schema", "Schema", "schema"),
    ("access", "Access", "access"),
)


def tabs(view: View, topic: str) -> list[tuple[str, str, str]]:
    """The tabs that there is something on: name, title, address."""
    hidden = set() if view.cluster.services.registry is not None else {"schema"}
    if not view.may(ADMIN, f"topic:{topic}"):
        hidden.add("access")
    return [
        (name, title, view.url("t", topic, *filter(None, [path])))
        for name, title, path in TABS
        if name not in hidden
    ]


def base_values(view: View, tab: str) -> Values:
    """What the head of every tab shows."""
    topic = view.topic()
    return {
        "topic": topic,
        "tabs": tabs(view, topic.name),
        "tab": tab,
        "lags": view.state.topic_lags.get(topic.name, {}),
        "may_change": view.may(CHANGE, f"topic:{topic.name}"),
        "may_produce": view.may(PRODUCE, f"topic:{topic.name}"),
        "may_reset": view.may(RESET, "group:*"),
        "crumbs": [("Topics", view.url("topics"))],
    }


@page(
    "/t/{topic}/partitions",
    "partitions.html",
    resource="topic:{topic}",
    live=("facts", "rows"),
    menu="topics",
)
async def partitions(view: View) -> Values:
    """The tab Partitions: a row per partition."""
    topic = view.topic()
    return {
        **base_values(view, "partitions"),
        "largest": max(topic.sizes, default=0),
        "may_elect": view.may(ADMIN, f"topic:{topic.name}"),
        "may_move": view.may(ADMIN),
        "commands": [
            f"ottla topics --bootstrap-server {view.cluster.bootstrap} --describe --topic {topic.name}"
        ],
    }


@page(
    "/t/{topic}/groups", "topic_groups.html", resource="topic:{topic}", live=("facts", "rows"), menu="topics"
)
async def topic_groups(view: View) -> Values:
    """The tab Groups: who reads this topic."""
    topic = view.topic()
    lags = view.state.topic_lags.get(topic.name, {})
    groups = [
        view.state.groups[name]
        for name in lags
        if name in view.state.groups and view.may(SEE, f"group:{name}")
    ]
    groups.sort(key=lambda group: (-lags[group.group_id], group.group_id))
    return {**base_values(view, "groups"), "groups": groups}


@page("/t/{topic}/settings", "topic_settings.html", resource="topic:{topic}", menu="topics")
async def settings(view: View) -> Values:
    """The tab Settings: what differs from the default first."""
    topic = view.topic()
    entries = await view.cluster.call(topic_settings, topic.name)
    return {
        **base_values(view, "settings"),
        "own": [each for each in entries if not _is_default(each)],
        "defaults": [each for each in entries if _is_default(each)],
        "commands": [
            f"ottla configs --bootstrap-server {view.cluster.bootstrap} --describe --topic {topic.name} --all"
        ],
    }


def topic_settings(cluster: Cluster, name: str) -> list[ConfigEntry]:
    """The settings of a topic, by name."""
    resource = ConfigResourceType.TOPIC, name
    return sorted(describe_configs(cluster, [resource], synonyms=True)[resource], key=lambda each: each.name)


def _is_default(entry: ConfigEntry) -> bool:
    return entry.source != ConfigSource.DYNAMIC_TOPIC_CONFIG
