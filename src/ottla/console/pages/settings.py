"""Settings: the theme, the clusters of this console, what the person who looks may do, and the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.console.frame import AREAS, Area
from ottla.console.security import audit
from ottla.console.security.roles import ADMIN, SEE, VERBS
from ottla.console.web import Values, View, page
from ottla.json_types import Json

if TYPE_CHECKING:
    from ottla.console.clusters import OpenCluster

AREAS.append(Area("settings", "Settings", "settings", key="i"))
_LINES: Final = 50
_FIELDS: Final = ("at", "who", "what", "cluster", "resource", "result")
ABLE: Final = {
    "see": "look at topics, groups and nodes",
    "read": "read records",
    "produce": "write records",
    "reset": "set and delete committed offsets",
    "change": "create topics and change their settings",
    "admin": "delete, move and abort, and change access rules",
    "export": "download records",
}
"""What each verb lets a person do."""


def beside(cluster: OpenCluster) -> list[tuple[str, str]]:
    """The services beside a cluster, and where they are. Addresses have no passwords."""
    services = cluster.services
    found = [
        ("Schema registry", services.registry),
        ("Connect", services.connect),
        ("Prometheus", services.prometheus),
    ]
    shown = [(title, service.url) for title, service in found if service is not None]
    if services.applications:
        count = len(services.applications)
        shown.append(("Applications", "1 place" if count == 1 else f"{count} places"))
    return shown


def _in_words(line: Mapping[str, Json]) -> str:
    """What a line of the log says beyond its first fields."""
    parts = []
    for name, value in line.items():
        if name in _FIELDS:
            continue
        if isinstance(value, dict):
            parts += [f"{key} {each}" for key, each in value.items()]
        elif name == "plan":
            parts.append(str(value))
        else:
            parts.append(f"{name} {value}")
    return ", ".join(parts)


async def _audit(view: View) -> tuple[list[tuple[Mapping[str, Json], str]], str]:
    """The newest lines about this cluster, and why there are none."""
    path = view.console.audit.path
    if path is None:
        return [], "The console writes no audit log: start it with --audit FILE."
    name = view.cluster.name

    def fits(line: Mapping[str, Json]) -> bool:
        return line.get("cluster") == name

    try:
        lines = await view.cluster.run(audit.newest, path, fits, _LINES)
    except OSError as error:
        return [], f"The audit log cannot be read: {error.strerror}."
    return [(line, _in_words(line)) for line in lines], ""


@page("/settings", "settings.html", menu="settings")
async def settings(view: View) -> Values:
    """What this console is, and what you may do with it."""
    principal = view.principal
    may_audit = view.may(ADMIN)
    lines, no_audit = await _audit(view) if may_audit else ([], "")
    masks = view.console.masks.masks
    return {
        "opened": [
            (cluster, cluster.settings.security.protocol, beside(cluster))
            for name, cluster in view.clusters.by_name.items()
            if principal.may(SEE, name, "cluster")
        ],
        "able": [
            (
                verb,
                ABLE[verb],
                "everywhere"
                if principal.may_everywhere(verb, view.cluster.name)
                else "on some"
                if principal.may_somewhere(verb, view.cluster.name)
                else "no",
            )
            for verb in VERBS
        ],
        "roles": principal.roles,
        "masks": [each for each in masks if not each.exempt & principal.role_names],
        "may_audit": may_audit,
        "lines": lines,
        "no_audit": no_audit,
        "audit_path": view.console.audit.path,
        "asks": view.console.sessions.asks,
        "login": view.console.settings.login,
    }
