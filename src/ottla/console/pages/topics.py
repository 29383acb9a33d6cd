"""Topics: the list, with rates, sizes and lag; find, sort and facets from the server."""

from __future__ import annotations

import time
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from ottla.console.security.roles import ADMIN, CHANGE
from ottla.console.web import Values, View, page, sees_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.console.sampler.state import ClusterState, TopicState

ROWS: Final = 100
IDLE_S: Final = 7 * 86400.0
_MAX_FIND: Final = 200
FACETS: Final = (
    ("", "All"),
    ("internal", "Kafka's own"),
    ("compacted", "Compacted"),
    ("idle", "Nothing written lately"),
    ("trouble", "In trouble"),
    ("mine", "Mine"),
)
_MOST_NAMES: Final = 200


def _sort_keys(state: ClusterState) -> dict[str, Callable[[TopicState], float | str]]:
    """Equal topics keep the order of their names, in which the state has them."""
    return {
        "name": attrgetter("name"),
        "partitions": attrgetter("partitions"),
        "rate": attrgetter("rate"),
        "records": attrgetter("records"),
        "size": attrgetter("size"),
        "lag": lambda topic: state.lag_of(topic.name) or 0,
    }


def fits(topic: TopicState, facet: str) -> bool:
    """Whether a topic belongs to a facet."""
    match facet:
        case "internal":
            return topic.internal
        case "compacted":
            return topic.compacted and not topic.internal
        case "trouble":
            return bool(topic.headless or topic.lacking)
        case "idle":
            return not topic.internal and topic.rate == 0 and time.time() - topic.written_s > 600
    return not topic.internal


def find(view: View) -> tuple[list[TopicState], int]:
    """The topics of this page and how many there are: found, sorted, from the given row on."""
    state = view.state
    needle = view.text("q")[:_MAX_FIND].lower()
    facet = view.text("show")
    sees = view.seer("topic")
    # Thousands of topics: the plain list asks nothing of each that it need not know.
    if facet == "mine":
        found = [topic for name in mine(view) if (topic := state.topics.get(name)) is not None]
    elif facet:
        found = [each for each in state.topics.values() if fits(each, facet)]
    else:
        found = state.own_topics
    if needle:
        found = [topic for topic in found if needle in topic.name.lower()]
    if sees is not sees_all:
        found = [topic for topic in found if sees(topic.name)]
    sort = view.text("sort", "rate")
    keys = _sort_keys(state)
    found = sorted(found, key=keys.get(sort, keys["rate"]), reverse=descending(view))
    start = view.number("from", 0)
    return found[start : start + ROWS], len(found)


def mine(view: View) -> list[str]:
    """The topics that a browser has starred: it keeps their names, and puts them into the address."""
    return sorted(set(view.text("names").split(",")[:_MOST_NAMES]) - {""})


def descending(view: View) -> bool:
    """Whether the order is from large to small: names begin with a, numbers with the largest."""
    return view.text("order", "asc" if view.text("sort", "rate") == "name" else "desc") == "desc"


@page("/topics", "topics.html", live=("tiles", "rows"), menu="topics")
async def topics(view: View) -> Values:
    """The list of topics."""
    rows, count = find(view)
    start = view.number("from", 0)
    return {
        "rows": rows,
        "count": count,
        "start": start,
        "next_url": view.same(**{"from": start + ROWS}) if start + ROWS < count else "",
        "previous_url": view.same(**{"from": max(start - ROWS, 0) or None}) if start else "",
        "facets": FACETS,
        "facet": view.text("show"),
        "sort": view.text("sort", "rate"),
        "descending": descending(view),
        "find": view.text("q")[:_MAX_FIND],
        "in_trouble": view.state.headless + view.state.lacking,
        "may_create": view.may(CHANGE, "topic:*"),
        "may_pick": view.principal.may_somewhere(CHANGE, view.cluster.name),
        "may_delete": view.principal.may_somewhere(ADMIN, view.cluster.name),
        "commands": [f"ottla topics --bootstrap-server {view.cluster.bootstrap} --list"],
    }
