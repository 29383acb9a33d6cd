"""Pipelines: Streams applications on Spark with their lag and topology, and groups of Kafka Streams beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.console import applications
from ottla.console.draw import graph
from ottla.console.frame import AREAS, Area
from ottla.console.render import num, short
from ottla.console.security.roles import READ, RESET, SEE
from ottla.console.services import ServiceProblem
from ottla.console.web import NotFound, Values, View, page
from ottla.json_types import as_number

if TYPE_CHECKING:
    from ottla.console.applications import Application

AREAS.append(Area("pipelines", "Pipelines", "pipelines", main=True, key="p"))
_MAX_KEY: Final = 500


async def _load(view: View) -> list[Application]:
    found = await view.cluster.run(applications.load, view.cluster.services.applications)
    return [each for each in found if view.may(SEE, f"pipeline:{each.name}")]


@page("/pipelines", "pipelines.html", live=("cards",), menu="pipelines")
async def pipelines(view: View) -> Values:
    """A card for each application."""
    groups = [
        each
        for each in view.state.groups.values()
        if each.kind == "Streams" and view.may(SEE, f"group:{each.group_id}")
    ]
    return {
        "applications": await _load(view),
        "groups": groups,
        "named": bool(view.cluster.services.applications),
        "commands": ["ottla streams status"],
    }


@page("/pipeline", "pipeline.html", resource="pipeline:{id}", live=("numbers", "picture"), menu="pipelines")
async def pipeline(view: View) -> Values:
    """One application: numbers of the last batch, the topology, its stores."""
    name = view.request.query_params.get("id", "")
    found = next((each for each in await _load(view) if each.name == name), None)
    if found is None:
        raise NotFound(f"No application '{name}' is known: --applications names directories and addresses.")
    store, key = view.text("store"), view.text("key")[:_MAX_KEY]
    value = problem = ""
    may_read = view.may(READ, f"pipeline:{name}")
    if store and may_read:
        try:
            value = await view.cluster.run(applications.look_up, found, store, key)
        except ServiceProblem as error:
            problem = error.message
    boxes, arrows = graph.parse(found.picture)
    labels = {box.name: box.label for box in boxes}
    return {
        "application": found,
        "svg": _picture(view, found),
        "arrows": [(labels[one], labels[other]) for one, other in arrows],
        "store": store,
        "key": key,
        "value": value,
        "problem": problem,
        "may_read": may_read,
        "may_replay": name in view.state.groups and view.may(RESET, "group:*"),
        "crumbs": [("Pipelines", view.url("pipelines"))],
        "commands": [f"ottla streams status --application-id {name}"],
    }


def _picture(view: View, found: Application) -> str:
    """The topology with what the topics do now."""
    known = {name: topic for name, topic in view.state.topics.items() if view.may(SEE, f"topic:{name}")}
    notes = {
        name: f"{num(as_number(each['lag']))} waiting"
        for name, each in found.topics.items()
        if isinstance(each, dict) and isinstance(each.get("lag"), int)
    }
    rates = {name: f"{short(topic.rate)}/s" for name, topic in known.items()}
    urls = {name: view.url("t", name) for name in known}
    return graph.topology(found.picture, notes, rates, urls)
