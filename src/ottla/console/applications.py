"""Streams applications on Spark: their status, plan and topology, from directories and addresses that were named.

Files and answers are other programs' words: sizes are bounded, and what is damaged is left out with a sentence.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ottla.console.services import Service, ServiceProblem
from ottla.json_types import JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_BYTES: Final = 4 << 20
_MOST_APPLICATIONS: Final = 200


@dataclass(slots=True)
class Application:
    """An application as it reports itself."""

    name: str
    status: JsonObject = field(default_factory=dict)
    plan: JsonObject = field(default_factory=dict)
    picture: JsonObject = field(default_factory=dict)
    """Boxes and arrows of the topology."""
    service: Service | None = None
    """Its own address, which also answers for its stores."""
    problem: str = ""

    @property
    def running(self) -> bool:
        return bool(self.status.get("running"))

    def number(self, name: str) -> float | None:
        """A number of the status; None where it is missing."""
        found = self.status.get(name)
        return found if isinstance(found, int | float) and not isinstance(found, bool) else None

    @property
    def topics(self) -> dict[str, JsonObject]:
        """For each source topic its lag and the rows of the last batch."""
        found = self.status.get("topics")
        return {str(name): each for name, each in found.items()} if isinstance(found, dict) else {}

    @property
    def stores(self) -> list[str]:
        stages = self.plan.get("stages")
        if not isinstance(stages, list):
            return []
        return [str(name) for stage in stages if isinstance(stage, dict) for name in stage]


def load(places: Iterable[str]) -> list[Application]:
    """All applications of some directories and addresses, by name; one that answers wins over its files."""
    found: dict[str, Application] = {}
    for place in places:
        for each in _answering(place) if "://" in place else _in_directory(Path(place)):
            known = found.get(each.name)
            if known is None or (each.service is not None and not each.problem):
                found[each.name] = each
    return sorted(found.values(), key=lambda each: each.name)


def _in_directory(directory: Path) -> list[Application]:
    found = []
    try:
        paths = sorted(directory.glob("*/status.json"))[:_MOST_APPLICATIONS]
    except OSError:
        return []
    for path in paths:
        one = Application(path.parent.name)
        one.status = _read(path)
        one.plan = _read(path.parent / "plan.json")
        one.picture = _read(path.parent / "topology.json")
        if not one.status:
            one.problem = "Its status.json cannot be read."
        elif one.running and not _is_alive(one.status.get("pid")):
            one.status["running"] = False
        found.append(one)
    return found


def _read(path: Path) -> JsonObject:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _answering(address: str) -> list[Application]:
    service = Service.at("application", address)
    try:
        status = service.ask("GET", "/status")
        one = Application(str(status["application_id"]), dict(status), service=service)
    except ServiceProblem as error:
        return [Application(service.url, service=service, problem=error.message)]
    except (KeyError, TypeError, ValueError):
        return [
            Application(
                service.url, service=service, problem=f"What answers at {service.url} is no application."
            )
        ]
    try:
        one.picture = service.ask("GET", "/topology") or {}
        one.plan = service.ask("GET", "/plan") or {}
    except ServiceProblem:
        pass
    return [one]


def look_up(application: Application, store: str, key: str) -> str:
    """The value of a key in a store, as JSON text; ServiceProblem if there is none."""
    if application.service is None:
        raise ServiceProblem(
            "The application was named by its directory: name its address to ask its stores.", 404
        )
    answer = application.service.ask("GET", f"/stores/{quote(store, safe='')}/{quote(key, safe='')}")
    return json.dumps(answer, ensure_ascii=False)
