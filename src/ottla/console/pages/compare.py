"""Compare: two clusters of the console, or one with a snapshot of its own; differences as commands."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.responses import Response

from ottla.console.frame import AREAS, Area
from ottla.console.security.roles import ADMIN, SEE
from ottla.console.services import ServiceProblem
from ottla.console.snapshot import FORMAT, Snapshot, acls_of, check, differences, settings_of
from ottla.console.web import BadInput, NotFound, Values, View, answer, page

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.console.clusters import OpenCluster

AREAS.append(Area("compare", "Compare", "compare", key="v"))
_FILE: Final = "file:"
_MOST_BYTES: Final = 64 << 20
_MOST_SUBJECTS: Final = 2_000
_SHOWN: Final = 1_000


async def take(view: View, cluster: OpenCluster) -> Snapshot:
    """The document of a cluster, as far as the principal may see it."""

    def may(resource: str, verb: str = SEE) -> bool:
        return view.principal.may(verb, cluster.name, resource)

    state = cluster.state
    names = [name for name, each in state.topics.items() if not each.internal and may(f"topic:{name}")]
    settings = await cluster.call(settings_of, names)
    return {
        "format": FORMAT,
        "cluster": state.cluster_id,
        "name": cluster.name,
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "topics": {
            name: {
                "partitions": state.topics[name].partitions,
                "replication": state.topics[name].replication,
                "settings": settings.get(name, {}),
            }
            for name in names
        },
        "groups": {
            name: f"{group.kind.lower()} on {', '.join(group.topics) or 'nothing'}"
            for name, group in state.groups.items()
            if may(f"group:{name}")
        },
        "acls": await cluster.call(acls_of) if may("cluster", ADMIN) else None,
        "schemas": await _schemas(view, cluster),
    }


async def _schemas(view: View, cluster: OpenCluster) -> dict[str, str] | None:
    """The newest version of each subject, as its type and a digest of its text."""
    service = cluster.services.registry
    if service is None:
        return None
    try:
        names = [
            str(each)
            for each in await cluster.ask(service, "GET", "/subjects")
            if view.principal.may(SEE, cluster.name, f"schema:{each}")
        ][:_MOST_SUBJECTS]
        paths = [f"/subjects/{quote(name, safe='')}/versions/latest" for name in names]
        newest = await asyncio.gather(*(cluster.ask(service, "GET", path) for path in paths))
    except (ServiceProblem, TypeError):
        return None
    return {
        name: f"{each.get('schemaType', 'AVRO')} {hashlib.sha256(str(each.get('schema')).encode()).hexdigest()[:12]}"
        for name, each in zip(names, newest, strict=True)
    }


def _files(folder: Path | None) -> list[str]:
    if folder is None:
        return []
    return sorted(path.name for path in folder.glob("*.json") if path.is_file())[:200]


def _read(folder: Path, name: str) -> Snapshot:
    path = folder / name
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError("the file is too large")
    return check(json.loads(path.read_bytes()))


async def _other(view: View, name: str) -> Snapshot:
    folder = view.console.settings.snapshots
    if name.startswith(_FILE):
        wanted = name.removeprefix(_FILE)
        if folder is None or wanted not in _files(folder):
            raise NotFound(f"There is no snapshot '{wanted[:80]}'.")
        try:
            return await view.cluster.run(_read, folder, wanted)
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(f"The snapshot {wanted[:80]} cannot be read: {error}.") from None
    other = view.clusters.by_name.get(name)
    if other is None or not view.principal.may(SEE, name, "cluster"):
        raise NotFound(f"There is no cluster '{name[:80]}' here.")
    other.sampler.touch()
    if not await view.console.wait_ready(other):
        raise NotFound(
            f"The cluster {name[:80]} has not answered yet: {other.state.problem or 'wait a moment'}."
        )
    return await take(view, other)


@page("/compare", "compare.html", menu="compare")
async def compare(view: View) -> Values:
    """Two clusters side by side; only what differs."""
    others = [name for name in view.clusters.by_name if name != view.cluster.name]
    others = [name for name in others if view.principal.may(SEE, name, "cluster")]
    files = _files(view.console.settings.snapshots)
    choice = view.text("with")
    found, problem, taken = [], "", ""
    if choice:
        try:
            there = await _other(view, choice)
            taken = str(there.get("taken", ""))[:40]
            found = differences(await take(view, view.cluster), there, view.cluster.bootstrap)
        except (KeyError, TypeError, ValueError):
            problem = "The snapshot is damaged: it lacks what a topic needs."
        except (BadInput, NotFound) as error:
            problem = error.message
    part = view.text("part")
    return {
        "others": others,
        "files": [(f"{_FILE}{name}", name) for name in files],
        "choice": choice,
        "other_name": choice.removeprefix(_FILE),
        "problem": problem,
        "taken": taken,
        "count": len(found),
        "parts": sorted({each.part for each in found}),
        "part": part,
        "rows": [each for each in found if not part or each.part == part][:_SHOWN],
        "script": "\n".join(each.command for each in found if each.command)[:200_000],
    }


@answer("/compare/snapshot")
async def snapshot(view: View) -> Response:
    """This cluster as a file, for a later comparison."""
    document = await take(view, view.cluster)
    name = f"{quote(view.cluster.name, safe='')}-{document['taken'].replace(':', '')}.json"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(json.dumps(document, indent=1), media_type="application/json", headers=headers)
