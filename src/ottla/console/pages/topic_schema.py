"""The tab Schema of a topic: the subjects that are named after it, and which schemas its newest records carry."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ottla.console.pages.schemas import ask, latest, level_of, pretty_text
from ottla.console.pages.topic import base_values
from ottla.console.reader import records as reading
from ottla.console.security.roles import CHANGE, READ, SEE
from ottla.console.services import ServiceProblem
from ottla.console.web import Values, View, page

if TYPE_CHECKING:
    from collections.abc import Container

    from ottla.console.reader.records import Seen

LOOKED_AT: Final = 1_000
_SUBJECTS: Final = 20
_KINDS: Final = 10
NONE: Final = "none, or one that the registry does not know"


@dataclass(frozen=True, slots=True)
class Subject:
    """The newest version of a subject."""

    name: str
    role: str
    """What of a record it describes."""
    kind: str
    version: object
    schema_id: object
    level: str
    text: str
    problem: str = ""


def subjects_of(topic: str, subjects: Iterable[str], topics: Container[str]) -> list[str]:
    """The subjects named after a topic, value and key first. `orders-eu-value` is not of `orders` if `orders-eu` is."""
    begin = f"{topic}-"
    found = []
    for name in subjects:
        if not name.startswith(begin):
            continue
        dashes = (place for place, sign in enumerate(name) if sign == "-" and place > len(topic))
        if not any(name[:place] in topics for place in dashes):
            found.append(name)
    order = {f"{topic}-value": 0, f"{topic}-key": 1}
    return sorted(found, key=lambda name: (order.get(name, 2), name))


def role_of(topic: str, subject: str) -> str:
    """What a subject describes, by its name."""
    match subject.removeprefix(f"{topic}-"):
        case "value":
            return "values"
        case "key":
            return "keys"
        case record:
            return f"records of the type {record}"


def carried(records: Iterable[Seen]) -> list[tuple[str, str, int, float]]:
    """(key or value, schema in words, records, share) for what records carry, the commonest first."""
    rows = []
    seen = [each for each in records if not each.control]
    for place, part in ((1, "value"), (0, "key")):
        counted = Counter(
            each.schemas[place] or NONE for each in seen if (each.key, each.value)[place] is not None
        )
        total = sum(counted.values())
        if set(counted) - {NONE}:
            rows += [(part, words, count, count / total) for words, count in counted.most_common(_KINDS)]
    return rows


async def _subject(view: View, topic: str, name: str) -> Subject:
    newest, level = await asyncio.gather(latest(view, name), level_of(view, name))
    return Subject(
        name,
        role_of(topic, name),
        str(newest.get("schemaType") or "AVRO"),
        newest.get("version"),
        newest.get("id"),
        level.lower().replace("_", " "),
        pretty_text(str(newest.get("schema", ""))),
        str(newest.get("problem", "")),
    )


@page("/t/{topic}/schema", "topic_schema.html", resource="topic:{topic}", menu="topics")
async def topic_schema(view: View) -> Values:
    """What describes the keys and values of a topic."""
    topic = view.topic()
    service, problem, names = view.cluster.services.registry, "", []
    if service is not None:
        try:
            answered = await ask(view, "GET", f"/subjects?subjectPrefix={quote(topic.name, safe='')}-")
            names = [str(each) for each in answered] if isinstance(answered, list) else []
        except ServiceProblem as error:
            problem = error.message
    mine = [
        name for name in subjects_of(topic.name, names, view.state.topics) if view.may(SEE, f"schema:{name}")
    ]
    looked_at: list[Seen] = []
    if service is not None and not problem and view.may(READ, f"topic:{topic.name}"):
        partitions = list(range(min(topic.partitions, reading.MAX_PARTITIONS)))
        looked_at = (await reading.newest(view.cluster.reader, topic.name, partitions, LOOKED_AT)).records
        view.console.audit.note(
            view.principal.name,
            "count schemas",
            view.cluster.name,
            f"topic:{topic.name}",
            records=len(looked_at),
        )
    return {
        **base_values(view, "schema"),
        "service": service,
        "problem": problem,
        "subjects": await asyncio.gather(*(_subject(view, topic.name, name) for name in mine[:_SUBJECTS])),
        "more": len(mine) - _SUBJECTS,
        "carried": carried(looked_at),
        "looked_at": len(looked_at),
        "may_register": view.may(CHANGE, f"schema:{topic.name}-value"),
        "commands": [
            f"curl {service.url}/subjects/{quote(name, safe='')}/versions/latest" for name in mine[:2]
        ]
        if service is not None
        else [],
    }
