"""The palette: pages, actions, topics, groups, schemas and nodes by a few letters of their names."""

from __future__ import annotations

import heapq
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse

from ottla.console import frame
from ottla.console.security.roles import ADMIN, CHANGE, SEE
from ottla.console.services import ServiceProblem
from ottla.console.web import View, answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.responses import Response

_FOUND: Final = 30
_MAX_FIND: Final = 100
_MOST_SUBJECTS: Final = 10_000
_KEPT_S: Final = 15.0
_AGAIN_S: Final = 5.0
"""A registry that did not answer is asked again after this."""
_TIMEOUT_S: Final = 3.0
_ACTIONS: Final = (
    ("New topic", CHANGE, "topic:*", ("topics", "new")),
    ("Move a topic", ADMIN, "cluster", ("moves",)),
    ("Empty a broker", ADMIN, "cluster", ("moves",)),
    ("Change the level of a feature", ADMIN, "cluster", ("quorum",)),
    ("New access rule", ADMIN, "cluster", ("access",)),
    ("Abort a transaction", ADMIN, "transaction:*", ("transactions",)),
    ("Compare with another cluster", SEE, "cluster", ("compare",)),
)
"""What a page lets one do: title, verb, resource, parts of the page's address."""


def rank(needle: str, name: str) -> int | None:
    """How well a name fits, small is good; None if the letters are not in it in this order."""
    text = name.lower()
    at = text.find(needle)
    if at == 0:
        return 0 if len(text) == len(needle) else 1
    if at > 0:
        return 2 if not text[at - 1].isalnum() else 3
    position = -1
    gaps = 0
    for letter in needle:
        following = text.find(letter, position + 1)
        if following < 0:
            return None
        gaps += following - position - 1
        position = following
    return 10 + gaps


async def _subjects(view: View) -> list[str]:
    """The subjects of the registry that the principal may see; none while it does not answer."""
    service = view.cluster.services.registry
    if service is None:
        return []
    known = view.cluster.subjects
    if known is None or known[0] < time.monotonic():
        kept_s = _KEPT_S
        try:
            found = await view.cluster.ask(replace(service, timeout_s=_TIMEOUT_S), "GET", "/subjects")
        except ServiceProblem:
            found, kept_s = [], _AGAIN_S
        names = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
        known = view.cluster.subjects = time.monotonic() + kept_s, names[:_MOST_SUBJECTS]
    return [name for name in known[1] if view.may(SEE, f"schema:{name}")]


def _everything(view: View, subjects: list[str]) -> Iterator[tuple[int, str, str, str]]:
    """(preference, name, kind, address of a page or id of a node)"""
    shown = frame.values(view)
    for entry in [*shown["main_entries"], *shown["cluster_entries"]]:
        yield 0, entry.title, "page", entry.url
    sees = view.seer("topic")
    for name in view.state.topics:
        if sees(name):
            yield 1, name, "topic", ""
    sees = view.seer("group")
    for name in view.state.groups:
        if sees(name):
            yield 2, name, "group", ""
    for node in view.state.nodes:
        yield 3, f"Broker {node}", "node", str(node)
    for name in subjects:
        yield 4, name, "schema", ""
    for title, verb, resource, path in _ACTIONS:
        if view.may(verb, resource):
            yield 5, title, "action", view.url(*path)


def _address(view: View, name: str, kind: str, hint: str) -> str:
    """Addresses are made for what is shown only: quoting thousands of names takes longer than finding them."""
    match kind:
        case "topic":
            return view.url("t", name)
        case "group":
            return view.url("group", id=name)
        case "node":
            return view.url("nodes", hint)
        case "schema":
            return view.url("schema", id=name)
    return hint


@answer("/palette")
async def palette(view: View) -> Response:
    """The names that fit best."""
    needle = view.text("q")[:_MAX_FIND].lower().replace(" ", "")
    subjects = await _subjects(view)
    ranked = (
        (fit, preference, len(name), name, kind, hint)
        for preference, name, kind, hint in _everything(view, subjects)
        if (fit := rank(needle, name.lower())) is not None
    )
    best = heapq.nsmallest(_FOUND, ranked)
    return JSONResponse(
        {
            "found": [
                {"name": name, "kind": kind, "url": _address(view, name, kind, hint)}
                for _, _, _, name, kind, hint in best
            ]
        }
    )
