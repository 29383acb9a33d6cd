"""Schemas: subjects of the registry, versions with their differences, and new versions from a plan that explains
what is not compatible. The registry is any with Confluent's interface.
"""

from __future__ import annotations

import asyncio
import difflib
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from ottla.console.frame import AREAS, Area
from ottla.console.plans import Form, Plan, change, removal
from ottla.console.reader.decode import pretty, show
from ottla.console.security.roles import ADMIN, CHANGE, SEE
from ottla.console.services import Answer, ServiceProblem
from ottla.console.web import BadInput, NotFound, Values, View, page
from ottla.json_types import Json, JsonObject, to_int

if TYPE_CHECKING:
    from ottla.console.services import Service

AREAS.append(Area("schemas", "Schemas", "schemas", main=True, key="s"))
ROWS: Final = 50
KINDS: Final = ("AVRO", "JSON", "PROTOBUF")
LEVELS: Final = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)
_MAX_FIND: Final = 200
_MAX_SCHEMA: Final = 1 << 20
_NO_REGISTRY: Final = "No schema registry is named: start the console with --registry URL."


def _registry(view: View) -> Service:
    found = view.cluster.services.registry
    if found is None:
        raise NotFound(_NO_REGISTRY)
    return found


def _of(subject: str, rest: str = "") -> str:
    return f"/subjects/{quote(subject, safe='')}{rest}"


async def ask(view: View, method: str, path: str, body: Json = None) -> Answer:
    """The registry's answer; NotFound without a registry, ServiceProblem if it refuses."""
    return await view.cluster.ask(_registry(view), method, path, body)


async def latest(view: View, subject: str) -> JsonObject:
    """The newest version of a subject, or why it is not to be had under `problem`."""
    try:
        found = await ask(view, "GET", _of(subject, "/versions/latest"))
        return found if isinstance(found, dict) else {}
    except ServiceProblem as error:
        return {"problem": error.message}


async def level_of(view: View, subject: str = "") -> str:
    """The compatibility level of a subject, or of the registry."""
    path = f"/config/{quote(subject, safe='')}?defaultToGlobal=true" if subject else "/config"
    try:
        found = await ask(view, "GET", path)
    except ServiceProblem:
        return ""
    return str(found.get("compatibilityLevel", "")) if isinstance(found, dict) else ""


@page("/schemas", "schemas.html", menu="schemas")
async def schemas(view: View) -> Values:
    """The subjects, with their newest versions."""
    service = view.cluster.services.registry
    problem, names, level = "", [], ""
    if service is not None:
        try:
            found = await ask(view, "GET", "/subjects")
            names = sorted(str(each) for each in found) if isinstance(found, list) else []
            level = await level_of(view)
        except ServiceProblem as error:
            problem = error.message
    needle = view.text("q")[:_MAX_FIND].lower()
    fitting = [each for each in names if needle in each.lower() and view.may(SEE, f"schema:{each}")]
    start = view.number("from", 0)
    shown = fitting[start : start + ROWS]
    newest = await asyncio.gather(*(latest(view, each) for each in shown))
    return {
        "service": service,
        "problem": problem,
        "rows": list(zip(shown, newest, strict=True)),
        "count": len(fitting),
        "start": start,
        "next_url": view.same(**{"from": start + ROWS}) if start + ROWS < len(fitting) else "",
        "previous_url": view.same(**{"from": max(start - ROWS, 0) or None}) if start else "",
        "find": needle,
        "level": level,
        "levels": LEVELS,
        "may_change": service is not None and view.may(CHANGE, "schema:*"),
        "commands": [f"curl {service.url}/subjects"] if service is not None else [],
    }


def differences(before: str, after: str) -> list[tuple[str, str]]:
    """Lines of two texts as (mark, line); the mark is `+`, `-` or empty, and `@` begins another part."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    found = [("" if line[:1] == " " else line[:1], line[1:]) for line in list(lines)[2:]]
    return [(mark, "..." if mark == "@" else text) for mark, text in found]


def pretty_text(text: str) -> str:
    """A schema as one reads it: JSON with indents, anything else as it is."""
    return pretty(show(text.encode()))


async def _version(view: View, subject: str, number: int | str) -> JsonObject:
    found = await ask(view, "GET", _of(subject, f"/versions/{number}"))
    if not isinstance(found, dict):
        raise NotFound(f"There is no version {number} of {subject}.")
    return found


async def _users(view: View, subject: str, number: int, schema_id: int) -> tuple[list[str], list[int]]:
    """The other subjects of a schema, and the ids of schemas that refer to it."""
    others: list[str] = []
    referring: list[int] = []
    try:
        found = await ask(view, "GET", f"/schemas/ids/{schema_id}/versions")
        others = [f"{each['subject']} {each['version']}" for each in found if each["subject"] != subject]
        referring = list(await ask(view, "GET", _of(subject, f"/versions/{number}/referencedby")))
    except (ServiceProblem, KeyError, TypeError):
        return others, referring
    return others, referring


@page("/schema", "schema.html", resource="schema:{id}", menu="schemas")
async def schema(view: View) -> Values:
    """A subject: its versions, one of them, and what changed in it."""
    subject = view.request.query_params.get("id", "")
    if not subject:
        raise NotFound("There is no subject without a name.")
    numbers = sorted(int(each) for each in await ask(view, "GET", _of(subject, "/versions")))
    number = view.number("version", numbers[-1] if numbers else 1, 1)
    shown = await _version(view, subject, number)
    text = pretty_text(str(shown.get("schema", "")))
    earlier = [each for each in numbers if each < number]
    changed: list[tuple[str, str]] = []
    if earlier:
        before = await _version(view, subject, earlier[-1])
        changed = differences(pretty_text(str(before.get("schema", ""))), text)
    others, referring = await _users(view, subject, number, to_int(shown.get("id", 0)))
    topic = subject.removesuffix("-value").removesuffix("-key")
    return {
        "subject": subject,
        "numbers": numbers,
        "number": number,
        "shown": shown,
        "kind": str(shown.get("schemaType", "AVRO")),
        "kinds": KINDS,
        "text": text,
        "before": earlier[-1] if earlier else None,
        "changed": changed,
        "others": others,
        "referring": referring,
        "references": shown.get("references") or [],
        "level": await level_of(view, subject),
        "levels": LEVELS,
        "topic": topic if topic != subject and topic in view.state.topics else "",
        "may_change": view.may(CHANGE, f"schema:{subject}"),
        "may_delete": view.may(ADMIN, f"schema:{subject}"),
        "crumbs": [("Schemas", view.url("schemas"))],
        "commands": [f"curl {_registry(view).url}{_of(subject, f'/versions/{number}')}"],
    }


@change("schema.register", CHANGE)
async def plan_register(view: View, form: Form) -> Plan:
    """Register a version; refused with the registry's own reasons where it is not compatible."""
    subject, kind = form.get("subject", "").strip(), form.get("kind", "AVRO")
    text = form.get("schema", "").strip()
    view.require(CHANGE, f"schema:{subject}")
    if not subject or len(subject) > 1000:
        raise BadInput("The subject needs a name of at most 1,000 letters.")
    if kind not in KINDS:
        raise BadInput(f"There is no type '{kind[:20]}'.")
    if not text or len(text) > _MAX_SCHEMA:
        raise BadInput("The schema is empty, or longer than 1 MB.")
    body: JsonObject = {"schema": text, "schemaType": kind}
    refused, warnings = "", []
    newest = await latest(view, subject)
    if "schema" in newest:
        # References stay those of the newest version: a form has no place for them.
        if newest.get("references"):
            body["references"] = newest["references"]
        path = f"/compatibility{_of(subject, '/versions')}?verbose=true"
        found = await ask(view, "POST", path, body)
        if isinstance(found, dict) and not found.get("is_compatible", True):
            refused = f"It is not compatible with {subject} ({await level_of(view, subject)})."
            warnings = [str(each) for each in (found.get("messages") or [])[:20]]
    before = pretty_text(str(newest.get("schema", "")))

    async def apply() -> str:
        done = await ask(view, "POST", _of(subject, "/versions"), body)
        return f"{subject} has the schema with the id {done.get('id')} now."

    return Plan(
        title=f"New version of {subject}" if before else f"New subject {subject}",
        verb=CHANGE,
        resource=f"schema:{subject}",
        apply=apply,
        sentence="Readers and writers find it by its id." if not refused else "",
        columns=("", "Line"),
        rows=[(mark, line) for mark, line in differences(before, pretty_text(text))],
        commands=[f"curl -X POST {_registry(view).url}{_of(subject, '/versions')} --data @schema.json"],
        refused=refused,
        warnings=warnings,
        button="Register it",
        then=view.url("schema", id=subject),
    )


@change("schema.level", CHANGE)
async def plan_level(view: View, form: Form) -> Plan:
    """Set the compatibility level of a subject, or of the registry."""
    subject, level = form.get("subject", ""), form.get("level", "")
    resource = f"schema:{subject or '*'}"
    view.require(CHANGE, resource)
    if level not in LEVELS:
        raise BadInput(f"There is no level '{level[:30]}'.")
    path = f"/config/{quote(subject, safe='')}" if subject else "/config"

    async def apply() -> str:
        await ask(view, "PUT", path, {"compatibility": level})
        return f"New versions of {subject or 'all subjects'} must be {level}."

    return Plan(
        title=f"Compatibility of {subject or 'all subjects without their own'}",
        verb=CHANGE,
        resource=resource,
        apply=apply,
        columns=("Now", "Then"),
        rows=[(await level_of(view, subject), level)],
        commands=[f"""curl -X PUT {_registry(view).url}{path} --data '{{"compatibility": "{level}"}}'"""],
        button="Set it",
        then=view.url("schema", id=subject) if subject else view.url("schemas"),
    )


@change("schema.delete", ADMIN)
async def plan_delete(view: View, form: Form) -> Plan:
    """Delete a subject softly: its ids stay readable."""
    subject = form.get("subject", "")
    view.require(ADMIN, f"schema:{subject}")
    return removal(
        view,
        "subject",
        subject,
        lambda: ask(view, "DELETE", _of(subject)),
        resource=f"schema:{subject}",
        sentence="Records that were written with it stay readable: ids keep their meaning.",
        columns=("Version",),
        rows=[(each,) for each in await ask(view, "GET", _of(subject, "/versions"))],
        command=f"curl -X DELETE {_registry(view).url}{_of(subject)}",
        area="schemas",
    )
