"""Quarantine: dead-letter topics by cause and source, and their records sent back to where they came from.

Records are sent in one transaction and keep a mark of their dead letter. Nothing is ever deleted here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.console.frame import AREAS, Area
from ottla.console.pages.produce import partition_for
from ottla.console.pages.records import Row, condition, row
from ottla.console.plans import Form, Plan, change
from ottla.console.reader import records as reading
from ottla.console.reader.letters import MARK, NAMES, Letter, as_it_was, letter
from ottla.console.security.roles import PRODUCE, READ, SEE
from ottla.console.transacting import write_together
from ottla.console.web import BadInput, Values, View, page, whole
from ottla.records.record import Record

if TYPE_CHECKING:
    from ottla.admin.partitions import Partition
    from ottla.console.reader.records import Seen

AREAS.append(Area("quarantine", "Quarantine", "quarantine", main=True, key="d"))
_LOOKED_AT: Final = 500
_SHOWN: Final = 100
_TOPICS: Final = 40
_MOST_SENT: Final = 5_000
_MOST_BYTES: Final = 32 << 20
_SCAN_S: Final = 10.0


@dataclass(slots=True)
class Cause:
    """Dead letters of one source with one cause."""

    letter: Letter
    count: int = 0
    newest_ms: int = -1
    example: tuple[int, int] = (0, 0)
    """Partition and offset."""


@dataclass(slots=True)
class Quarantined:
    """A dead-letter topic as far as it was looked at."""

    name: str
    records: int
    causes: list[Cause] = field(default_factory=list)
    problem: str = ""


def causes_of(records: Sequence[Seen]) -> list[Cause]:
    """Records by source and cause, most frequent first. Records without such headers have no cause."""
    found: dict[tuple[str, str, str], Cause] = {}
    for seen in records:
        known = letter(seen.headers) or Letter("")
        cause = found.setdefault((known.family, known.topic, known.cause), Cause(known))
        cause.count += 1
        if seen.timestamp >= cause.newest_ms:
            cause.newest_ms, cause.example = seen.timestamp, (seen.partition, seen.offset)
    return sorted(found.values(), key=lambda each: -each.count)


def _candidates(view: View) -> list[str]:
    named = [name for name, topic in view.state.topics.items() if NAMES.search(name) and not topic.internal]
    return [name for name in named if view.may(SEE, f"topic:{name}") and view.may(READ, f"topic:{name}")]


@page("/quarantine", "quarantine.html", verb=READ, menu="quarantine")
async def quarantine(view: View) -> Values:
    """Dead-letter topics, found by their names, with causes from the headers of their newest records."""
    names = _candidates(view)
    found = []
    for name in names[:_TOPICS]:
        topic = view.state.topics[name]
        one = Quarantined(name, topic.records)
        if topic.records:
            newest = await _newest(view, name, _LOOKED_AT)
            one.causes = causes_of(newest)
        found.append(one)
    found.sort(key=lambda each: -each.records)
    return {
        "found": found,
        "more": max(len(names) - _TOPICS, 0),
        "looked_at": _LOOKED_AT,
        "other": sorted(
            name
            for name, topic in view.state.topics.items()
            if not topic.internal and name not in names and view.may(READ, f"topic:{name}")
        )[:1000],
    }


async def _newest(view: View, topic: str, count: int) -> list[Seen]:
    def wanted(seen: Seen) -> bool:
        return not (seen.control or seen.aborted or seen.open)

    partitions = list(range(min(view.state.topics[topic].partitions, reading.MAX_PARTITIONS)))
    found = await reading.newest(view.cluster.reader, topic, partitions, count, wanted=wanted)
    return found.records


@page("/quarantine/{topic}", "dead_letters.html", verb=READ, resource="topic:{topic}", menu="quarantine")
async def dead_letters(view: View) -> Values:
    """One dead-letter topic: causes, and the newest records."""
    topic = view.topic()
    problem, rows = "", []
    causes: list[Cause] = []
    try:
        wanted = condition(view, topic.name)
        newest = [each for each in await _newest(view, topic.name, _LOOKED_AT) if wanted.wanted(each)]
        causes = causes_of(newest)
        rows = [
            (row(view.console.masks.apply(each, wanted.masks)), letter(each.headers))
            for each in newest[:_SHOWN]
        ]
    except BadInput as error:
        problem = error.message
    view.console.audit.note(
        view.principal.name,
        "read records",
        view.cluster.name,
        f"topic:{topic.name}",
        records=len(rows),
    )
    return {
        "topic": topic,
        "causes": causes,
        "rows": rows,
        "problem": problem,
        "sources": sorted({each.letter.topic for each in causes if each.letter.topic}),
        "may_send": view.principal.may_somewhere(PRODUCE, view.cluster.name),
        "crumbs": [("Quarantine", view.url("quarantine"))],
        "commands": [
            f"ottla consume --bootstrap-server {view.cluster.bootstrap} --topic {topic.name} --from-beginning"
            " --property print.headers=true"
        ],
    }


def _shown(value: Row, target: str) -> tuple[object, ...]:
    seen = value.seen
    key = "null" if seen.key is None else value.key.line[:80]
    return f"{seen.partition}:{seen.offset:,}", target, key, value.value.line[:160]


async def _chosen(view: View, topic: str, form: Form) -> list[Seen]:
    """The records that a form names: one by its place, or all that fit a condition."""
    if form.get("offset"):
        number, offset = whole(form.get("partition", ""), "Partition"), whole(form["offset"], "Offset")
        _, seen = await reading.read_at(view.cluster.reader, topic, number, offset)
        return [
            each for each in seen if each.offset == offset and not (each.control or each.aborted or each.open)
        ]
    wanted = condition(view, topic, {"q": form.get("q", ""), "filter": form.get("filter", "")})
    count = view.state.topics[topic].partitions
    cursor = dict.fromkeys(range(min(count, reading.MAX_PARTITIONS)), 0)
    found = await reading.forward(
        view.cluster.reader,
        topic,
        cursor,
        _MOST_SENT + 1,
        wanted=wanted.wanted,
        needles=wanted.needles,
        seconds=_SCAN_S,
    )
    if len(found.records) > _MOST_SENT or not found.complete:
        raise BadInput(
            f"More than {_MOST_SENT:,} records fit, or finding them takes longer than {_SCAN_S:.0f} s: choose fewer"
            " with a text or a condition."
        )
    return found.records


def _place(view: View, seen: Seen, known: Letter | None, chosen: str) -> Partition | None:
    """Where a dead letter goes: its own partition where that exists, else by its key."""
    target = chosen or (known.topic if known is not None else "")
    topic = view.state.topics.get(target)
    if topic is None:
        return None
    own = known.partition if known is not None and not chosen else None
    if own is not None and own < topic.partitions:
        return target, own
    if seen.key is None:
        return target, seen.partition % topic.partitions
    return target, partition_for(seen.key, topic.partitions)


@change("quarantine.send", PRODUCE)
async def plan_send(view: View, form: Form) -> Plan:
    """Send dead letters back: one, or all that fit, in one transaction."""
    name, chosen = form.get("topic", ""), form.get("to", "").strip()
    view.require(READ, f"topic:{name}")
    if name not in view.state.topics:
        raise BadInput(f"There is no topic '{name[:80]}'.")
    if chosen and chosen not in view.state.topics:
        raise BadInput(f"There is no topic '{chosen[:80]}'.")
    if view.console.masks.for_reader(name, view.principal):
        raise BadInput("Records of this topic are masked for you: they cannot be sent back.")
    found = await _chosen(view, name, form)
    placed: dict[Partition, list[Record]] = {}
    rows: list[tuple[object, ...]] = []
    lost = size = 0
    now_ms = int(time.time() * 1000)
    for seen in found:
        place = _place(view, seen, letter(seen.headers), chosen)
        if place is None or place[0] == name:
            lost += 1
            continue
        view.require(PRODUCE, f"topic:{place[0]}")
        mark = MARK, f"{name}-{seen.partition}@{seen.offset}".encode()
        placed.setdefault(place, []).append(
            Record(0, now_ms, seen.key, seen.value, [*as_it_was(seen.headers), mark])
        )
        size += len(seen.key or b"") + len(seen.value or b"")
        if len(rows) < _SHOWN:
            rows.append(_shown(row(seen), f"{place[0]}-{place[1]}"))
    count = sum(map(len, placed.values()))
    refused = "" if count else "No record fits, or none says which topic it came from: choose the topic."
    if size > _MOST_BYTES:
        refused = f"The records have {size:,} bytes, more than {_MOST_BYTES:,}: choose fewer."

    async def apply() -> str:
        await view.cluster.call(write_together, placed)
        return f"{count:,} {'record was' if count == 1 else 'records were'} sent back."

    targets = sorted({topic for topic, _ in placed})
    return Plan(
        title=f"Send {count:,} of {name} back",
        verb=PRODUCE,
        resource=f"topic:{targets[0]}" if targets else f"topic:{name}",
        apply=apply,
        sentence="All of them in one transaction, or none. The dead letters stay; a header marks what was sent back.",
        columns=("Dead letter", "Goes to", "Key", "Value"),
        rows=rows,
        warnings=[f"{lost:,} records do not say where they came from, and stay."] if lost and count else [],
        refused=refused,
        button="Send back",
        then=view.url("quarantine", name),
    )
