"""The palette: pages, topics, groups and nodes by a few letters of their names."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse

from ottla.console import frame
from ottla.console.security.roles import SEE
from ottla.console.web import View, answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.responses import Response

_FOUND: Final = 30
_MAX_FIND: Final = 100


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


def _everything(view: View) -> Iterator[tuple[int, str, str, str]]:
    """(preference, name, kind, address)"""
    shown = frame.values(view)
    for entry in [*shown["main_entries"], *shown["cluster_entries"]]:
        yield 0, entry.title, "page", entry.url
    for name in view.state.topics:
        if view.may(SEE, f"topic:{name}"):
            yield 1, name, "topic", view.url("t", name)
    for name in view.state.groups:
        if view.may(SEE, f"group:{name}"):
            yield 2, name, "group", view.url("group", id=name)
    for node in view.state.nodes:
        yield 3, f"Broker {node}", "node", view.url("nodes", node)


@answer("/palette")
async def palette(view: View) -> Response:
    """The names that fit best."""
    needle = view.text("q")[:_MAX_FIND].lower().replace(" ", "")
    ranked = (
        (fit, preference, len(name), name, kind, url)
        for preference, name, kind, url in _everything(view)
        if (fit := rank(needle, name.lower())) is not None
    )
    best = heapq.nsmallest(_FOUND, ranked)
    return JSONResponse({"found": [{"name": each[3], "kind": each[4], "url": each[5]} for each in best]})
