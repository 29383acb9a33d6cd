"""The tab Access of a topic: who may do what with it, by which rules, and a question box."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.admin.acls import Entry, Pattern, describe_acls
from ottla.console.pages.access import (
    EVERYONE,
    NO_AUTHORIZER,
    OPERATIONS,
    covers,
    decide,
    in_words,
    pairs,
    tried,
)
from ottla.console.pages.topic import base_values
from ottla.console.security.roles import ADMIN
from ottla.console.web import Values, View, page
from ottla.wire.enums import AclOperation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.admin.acls import Acls
    from ottla.admin.cluster import Cluster

_SHOWN: Final = 500
Rules = list[tuple[Pattern, Entry]]


def _acls(cluster: Cluster) -> tuple[Acls | None, str]:
    return tried(describe_acls, cluster)


def table(rules: Rules, topic: str) -> list[tuple[str, Sequence[tuple[bool, str]]]]:
    """For each user of the rules, whether each operation is allowed, and by which rule."""
    who = sorted({entry.principal or "" for _, entry in rules})
    return [
        (
            "everyone else" if each == "User:*" else each.removeprefix("User:"),
            [
                decide(rules, each, AclOperation[name.upper()], ResourceType.TOPIC, topic)
                for name in OPERATIONS
            ],
        )
        for each in who
    ]


@page("/t/{topic}/access", "topic_access.html", verb=ADMIN, resource="topic:{topic}", menu="topics")
async def topic_access(view: View) -> Values:
    """Who may do what with a topic."""
    topic = view.topic()
    acls, problem = await view.cluster.call(_acls)
    rules = [
        (pattern, entry)
        for pattern, entry in (pairs(acls) if acls is not None else [])
        if covers(pattern, ResourceType.TOPIC, topic.name)
    ]
    who, what = view.text("who"), view.text("may")
    verdict = None
    if who and what in OPERATIONS and not problem:
        principal = who if ":" in who else f"User:{who}"
        verdict = decide(rules, principal, AclOperation[what.upper()], ResourceType.TOPIC, topic.name)
    rows = table(rules, topic.name)
    return {
        **base_values(view, "access"),
        "operations": OPERATIONS,
        "table": rows[:_SHOWN],
        "left": max(len(rows) - _SHOWN, 0),
        "rules": in_words(rules)[:_SHOWN],
        "open_to_all": problem.startswith(NO_AUTHORIZER),
        "everyone": EVERYONE,
        "problem": problem,
        "verdict": verdict,
        "may_rule": view.may(ADMIN),
        "commands": [
            f"ottla acls --bootstrap-server {view.cluster.bootstrap} --list --topic {topic.name}"
            " --resource-pattern-type match"
        ],
    }
