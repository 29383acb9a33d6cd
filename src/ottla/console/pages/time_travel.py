"""The tab Time: a topic as of a moment of the past, with the table that it was and where its groups stood."""

from __future__ import annotations

import time
from typing import Final

from ottla.cli.tools.failures import UsageProblem
from ottla.cli.tools.values import parse_since
from ottla.console.pages.records import row
from ottla.console.pages.topic import base_values
from ottla.console.reader import past
from ottla.console.reader import records as reading
from ottla.console.security.roles import READ, SEE
from ottla.console.web import BadInput, Values, View, page
from ottla.errors import ApiException

_SHOWN: Final = 200


def moment_of(text: str) -> int:
    """A moment that a person typed, in milliseconds since the epoch."""
    try:
        return parse_since(text)
    except (UsageProblem, ValueError):
        raise BadInput(
            f"'{text[:40]}' is not a time: expected 10m, 2h, 1d, or 2026-01-31T12:00:00 in UTC."
        ) from None


@page("/t/{topic}/time", "time.html", verb=READ, resource="topic:{topic}", menu="topics")
async def time_travel(view: View) -> Values:
    """The topic at a moment."""
    topic = view.topic()
    problem, moment_ms = "", int(time.time() * 1000)
    try:
        moment_ms = moment_of(view.text("moment") or "10m")
    except BadInput as error:
        problem = error.message
    reader = view.cluster.reader
    numbers = list(range(min(topic.partitions, reading.MAX_PARTITIONS)))
    then = await past.offsets_then(reader, topic.name, numbers, moment_ms)
    starts, ends = await reading.bounds(reader, topic.name, numbers)
    rows = [
        (number, starts[number], then[number], ends[number], max(then[number] - starts[number], 0))
        for number in numbers
    ]
    wants_table = topic.compacted or bool(view.text("table"))
    table = await past.table_then(reader, topic.name, then) if wants_table else None
    masks = view.console.masks.for_reader(topic.name, view.principal)
    held = []
    if table is not None:
        ordered = sorted(table.rows.items())[:_SHOWN]
        held = [row(view.console.masks.apply(seen, masks)) for _, seen in ordered]
    view.console.audit.note(
        view.principal.name, "read records", view.cluster.name, f"topic:{topic.name}", records=len(held)
    )
    stood, complete = await _groups(view, topic.name, moment_ms)
    return {
        **base_values(view, "time"),
        "problem": problem,
        "moment": view.text("moment") or "10m",
        "moment_ms": moment_ms,
        "rows": rows,
        "table": table,
        "held": held,
        "stood": [(each, ends.get(each.partition, 0) - each.offset) for each in stood],
        "stood_complete": complete,
        "commands": [
            f"ottla get-offsets --bootstrap-server {view.cluster.bootstrap} --topic {topic.name} --time {moment_ms}"
        ],
    }


async def _groups(view: View, topic: str, moment_ms: int) -> tuple[list[past.Stood], bool]:
    own = view.state.topics.get(past.OFFSETS_TOPIC)
    if own is None:
        return [], True
    try:
        stood, complete = await past.groups_then(view.cluster.reader, own.partitions, topic, moment_ms)
    except ApiException:
        # A cluster may keep its own topics from its clients.
        return [], False
    return [each for each in stood if view.may(SEE, f"group:{each.group}")][:_SHOWN], complete
