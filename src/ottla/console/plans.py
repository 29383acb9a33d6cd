"""Changes: each is planned first, shown as a table and a command, and then done if the plan is still the same.

The one gate that every change passes: verbs, read-only, the token and the audit log are checked here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.console.security.roles import ADMIN

if TYPE_CHECKING:
    from ottla.console.web import View

Form = Mapping[str, str]
Figure = tuple[str, float]
"""A number as it is shown, and its value."""
Spread = tuple[str, tuple[Figure, Figure], tuple[Figure, Figure], tuple[Figure, Figure]]
"""A broker; replicas, first replicas and bytes, each before and after."""


@dataclass(slots=True)
class Plan:
    """What a change will do."""

    title: str
    verb: str
    resource: str
    apply: Callable[[], Awaitable[str]]
    """Does it; the sentence says what was done."""
    sentence: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    spread: Sequence[Spread] = ()
    """What each broker holds before and after."""
    commands: Sequence[str] = ()
    """The same as command lines."""
    refused: str = ""
    """Why it cannot be done now."""
    danger: bool = False
    button: str = "Do it"
    then: str = ""
    """Where to go when it is done."""
    warnings: Sequence[str] = field(default_factory=tuple)
    carried: Form | None = field(default=None, repr=False)
    """The fields that the page carries to the second step, where they are not those of the form: no secrets."""

    agreed: object = None
    """What a person agrees to, where the plan also shows numbers that grow while one looks at it."""

    def digest(self) -> str:
        """Changes when the plan does: what was seen is what is done."""
        what = [self.sentence, list(map(list, self.rows))] if self.agreed is None else [self.agreed]
        seen = [self.title, self.verb, self.resource, *what, list(self.commands)]
        return hashlib.sha256(json.dumps(seen, default=str).encode()).hexdigest()


def removal(
    view: View,
    what: str,
    name: str,
    delete: Callable[[], Awaitable[object]],
    *,
    resource: str,
    sentence: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    command: str,
    area: str,
) -> Plan:
    """The plan that deletes a thing of a service beside the cluster, and then leads to the page of its area."""

    async def apply() -> str:
        await delete()
        return f"The {what} {name} is deleted."

    return Plan(
        title=f"Delete {name}",
        verb=ADMIN,
        resource=resource,
        apply=apply,
        sentence=sentence,
        columns=columns,
        rows=rows,
        commands=[command],
        danger=True,
        button=f"Delete the {what}",
        then=view.url(area),
    )


Planner = Callable[["View", Form], Awaitable[Plan]]


@dataclass(frozen=True, slots=True)
class Change:
    """A kind of change: its planner, and the verb that it needs at least."""

    name: str
    verb: str
    planner: Planner


CHANGES: Final[dict[str, Change]] = {}


def change(name: str, verb: str) -> Callable[[Planner], Planner]:
    """Offer a planner under `/c/{cluster}/plan/{name}` and `/do/{name}`."""

    def add(planner: Planner) -> Planner:
        CHANGES[name] = Change(name, verb, planner)
        return planner

    return add
