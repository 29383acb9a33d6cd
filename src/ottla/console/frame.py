"""What every page shows around its content: the rail with counts, the clusters, the user, the age of the numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla import __version__
from ottla.console.render import num
from ottla.console.security.roles import SEE
from ottla.console.web import Values

if TYPE_CHECKING:
    from ottla.console.web import View


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the rail."""

    name: str
    title: str
    url: str
    count: str = ""
    key: str = ""
    """The letter after `g` that leads there."""


def values(view: View) -> Values:
    """The values that `frame.html` needs."""
    state = view.state
    menu = view.page.menu if view.page is not None else ""
    main = [
        Entry("overview", "Overview", view.url(""), key="o"),
        Entry("topics", "Topics", view.url("topics"), num(len(state.own_topics)), "t"),
        Entry("groups", "Groups", view.url("groups"), num(len(state.groups)), "g"),
    ]
    cluster = [
        Entry("nodes", "Nodes", view.url("nodes"), num(len(state.nodes)), "n"),
        Entry("quorum", "Quorum", view.url("quorum"), key="q"),
    ]
    for area in AREAS:
        if not view.may(area.verb):
            continue
        (main if area.main else cluster).append(
            Entry(area.name, area.title, view.url(area.path), key=area.key)
        )
    age_s = time.time() - state.taken_s if state.taken_s else 0.0
    return {
        "view": view,
        "state": state,
        "menu": menu,
        "main_entries": main,
        "cluster_entries": cluster,
        "clusters": list(view.clusters.by_name),
        "cluster_name": view.cluster.name,
        "principal": view.principal,
        "signed_in": view.console.sessions.asks,
        "token": view.console.sessions.token(view.console.key_of(view.request)),
        "is_live": bool(view.page is not None and view.page.live),
        "age_s": age_s,
        "hanging": view.cluster.hanging(),
        "version": __version__,
        "read_only": view.principal.read_only,
    }


@dataclass(frozen=True, slots=True)
class Area:
    """A page beyond the first ones that has an entry in the rail."""

    name: str
    title: str
    path: str
    main: bool = False
    key: str = ""
    verb: str = SEE


AREAS: Final[list[Area]] = []
"""Filled by the modules of `pages`, in the order in which they are loaded."""
