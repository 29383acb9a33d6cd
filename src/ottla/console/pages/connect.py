"""Connect: connectors and tasks of any Connect cluster over its REST interface, with their lag, and their restart."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ottla.console.frame import AREAS, Area
from ottla.console.plans import Form, Plan, change, removal
from ottla.console.security.roles import ADMIN, CHANGE, SEE
from ottla.console.services import Answer, ServiceProblem
from ottla.console.web import BadInput, NotFound, Values, View, page
from ottla.json_types import Json

if TYPE_CHECKING:
    from ottla.console.services import Service

AREAS.append(Area("connect", "Connect", "connect", main=True, key="c"))
_NO_WORKER: Final = "No Connect worker is named: start the console with --connect URL."
_SECRET_WORDS: Final = (
    "password",
    "secret",
    "token",
    "jaas",
    "credential",
    "sasl.",
    "private",
    ".key",
    "user.info",
)
_ACTIONS: Final = {
    "pause": ("PUT", "/pause", "Its tasks stay, and stop moving records."),
    "resume": ("PUT", "/resume", "Its tasks go on where they stopped."),
    "stop": ("PUT", "/stop", "Its tasks end; its offsets stay and can be changed."),
    "restart": (
        "POST",
        "/restart?includeTasks=true&onlyFailed=false",
        "The connector and all tasks start again.",
    ),
    "restart failed": (
        "POST",
        "/restart?includeTasks=true&onlyFailed=true",
        "What has failed starts again; the rest goes on.",
    ),
}
_TONES: Final = {"RUNNING": "ok", "FAILED": "bad", "UNASSIGNED": "warn", "RESTARTING": "warn"}


def _worker(view: View) -> Service:
    found = view.cluster.services.connect
    if found is None:
        raise NotFound(_NO_WORKER)
    return found


def _one(name: str, rest: str = "") -> str:
    return f"/connectors/{quote(name, safe='')}{rest}"


async def _ask(view: View, method: str, path: str) -> Answer:
    return await view.cluster.ask(_worker(view), method, path)


def shown_settings(settings: Mapping[str, Json]) -> list[tuple[str, str]]:
    """A connector's settings by name, without secrets."""
    return [
        (str(key), "(hidden)" if any(word in str(key).lower() for word in _SECRET_WORDS) else str(value))
        for key, value in sorted(settings.items())
    ]


def _lag(view: View, name: str, settings: Mapping[str, Json]) -> int | None:
    """What a sink has not read yet, by its group."""
    group = str(settings.get("consumer.override.group.id") or f"connect-{name}")
    found = view.state.groups.get(group)
    return found.lag if found is not None and found.committed else None


def _row(view: View, name: str, found: Answer) -> Values:
    status = found.get("status") or {}
    info = found.get("info") or {}
    connector, tasks = status.get("connector") or {}, status.get("tasks") or []
    settings = info.get("config") or {}
    return {
        "name": name,
        "kind": str(status.get("type") or info.get("type") or ""),
        "class": str(settings.get("connector.class", "")).rpartition(".")[2],
        "state": str(connector.get("state", "UNASSIGNED")),
        "worker": str(connector.get("worker_id", "")),
        "tasks": [str(each.get("state", "")) for each in tasks],
        "failed": sum(each.get("state") == "FAILED" for each in tasks),
        "lag": _lag(view, name, settings),
        "topics": str(settings.get("topics") or settings.get("topic") or settings.get("topics.regex") or ""),
    }


@page("/connect", "connect.html", live=("rows",), menu="connect")
async def connect(view: View) -> Values:
    """All connectors."""
    service = view.cluster.services.connect
    rows, problem, version = [], "", ""
    if service is not None:
        try:
            found = await _ask(view, "GET", "/connectors?expand=status&expand=info")
            about = await _ask(view, "GET", "/")
            version = str(about.get("version", "")) if isinstance(about, dict) else ""
            rows = [
                _row(view, str(name), each)
                for name, each in sorted(found.items())
                if view.may(SEE, f"connector:{name}")
            ]
        except ServiceProblem as error:
            problem = error.message
        except (AttributeError, TypeError):
            problem = f"What answers at {service.url} is no Connect worker."
    return {
        "service": service,
        "rows": rows,
        "problem": problem,
        "worker_version": version,
        "tones": _TONES,
        "commands": [f"ottla connectors --connect-url {service.url} list"] if service is not None else [],
    }


@page("/connector", "connector.html", resource="connector:{id}", live=("state",), menu="connect")
async def connector(view: View) -> Values:
    """A connector: its tasks and why they failed, its offsets, its settings without secrets."""
    name = view.request.query_params.get("id", "")
    status = await _ask(view, "GET", _one(name, "/status"))
    settings = await _ask(view, "GET", _one(name, "/config"))
    offsets: list[tuple[str, str]] = []
    offsets_problem = ""
    try:
        found = await _ask(view, "GET", _one(name, "/offsets"))
        offsets = [(_words(each.get("partition")), _words(each.get("offset"))) for each in found["offsets"]]
    except (ServiceProblem, KeyError, TypeError, AttributeError) as error:
        offsets_problem = (
            error.message if isinstance(error, ServiceProblem) else "The worker shows no offsets."
        )
    group = str(settings.get("consumer.override.group.id") or f"connect-{name}")
    return {
        "name": name,
        "status": status,
        "state_now": status["connector"]["state"],
        "tasks": status.get("tasks", []),
        "trace": status["connector"].get("trace", ""),
        "settings": shown_settings(settings),
        "offsets": offsets,
        "offsets_problem": offsets_problem,
        "group": group if group in view.state.groups else "",
        "lag": _lag(view, name, settings),
        "actions": list(_ACTIONS),
        "tones": _TONES,
        "may_change": view.may(CHANGE, f"connector:{name}"),
        "may_delete": view.may(ADMIN, f"connector:{name}"),
        "crumbs": [("Connect", view.url("connect"))],
        "commands": [f"ottla connectors --connect-url {_worker(view).url} status {shlex.quote(name)}"],
    }


def _words(parts: Json) -> str:
    if not isinstance(parts, dict):
        return str(parts)
    return ", ".join(f"{key} {value}" for key, value in parts.items())


@change("connector.act", CHANGE)
async def plan_act(view: View, form: Form) -> Plan:
    """Pause, resume, stop or restart a connector."""
    name, action = form.get("connector", ""), form.get("action", "")
    view.require(CHANGE, f"connector:{name}")
    if action not in _ACTIONS:
        raise BadInput(f"There is no action '{action[:20]}'.")
    method, rest, sentence = _ACTIONS[action]
    status = await _ask(view, "GET", _one(name, "/status"))

    async def apply() -> str:
        await _ask(view, method, _one(name, rest))
        return f"The connector {name}: {action} was accepted."

    return Plan(
        title=f"{action.capitalize()} {name}",
        verb=CHANGE,
        resource=f"connector:{name}",
        apply=apply,
        sentence=sentence,
        columns=("What", "Now"),
        rows=[
            ("connector", status["connector"]["state"]),
            *((f"task {each['id']}", each["state"]) for each in status.get("tasks", [])),
        ],
        commands=[f"curl -X {method} '{_worker(view).url}{_one(name, rest)}'"],
        button=action.capitalize(),
        then=view.url("connector", id=name),
    )


@change("connector.delete", ADMIN)
async def plan_delete(view: View, form: Form) -> Plan:
    """Delete a connector; its offsets stay."""
    name = form.get("connector", "")
    view.require(ADMIN, f"connector:{name}")
    return removal(
        view,
        "connector",
        name,
        lambda: _ask(view, "DELETE", _one(name)),
        resource=f"connector:{name}",
        sentence="Its tasks end. Its offsets stay: a connector of the same name goes on there.",
        columns=("Setting", "Value"),
        rows=shown_settings(await _ask(view, "GET", _one(name, "/config"))),
        command=f"ottla connectors --connect-url {_worker(view).url} delete {shlex.quote(name)}",
        area="connect",
    )
