"""The palette: pages, topics, groups and nodes by a few letters of their names."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse

from ottla.console import frame
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


def _address(view: View, name: str, kind: str, hint: str) -> str:
    """Addresses are made for what is shown only: quoting thousands of names takes longer than finding them."""
    match kind:
        case "topic":
            return view.url("t", name)
        case "group":
            return view.url("group", id=name)
        case "node":
            return view.url("nodes", hint)
    return hint


@answer("/palette")
async def palette(view: View) -> Response:
    """The names that fit best."""
    needle = view.text("q")[:_MAX_FIND].lower().replace(" ", "")
    ranked = (
        (fit, preference, len(name), name, kind, hint)
        for preference, name, kind, hint in _everything(view)
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
