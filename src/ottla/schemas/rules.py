"""Rules of schemas. They are not executed here: a schema whose rules would have to run is refused, never ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from ottla.json_types import Json, JsonObject
from ottla.schemas.errors import UnsupportedRules

if TYPE_CHECKING:
    from ottla.schemas.client import RegisteredSchema

_LISTS: Final = ("domainRules", "encodingRules")
_MOST_NAMED: Final = 5


def active_rules(rule_set: JsonObject | None) -> tuple[tuple[str, str], ...]:
    """The names and modes of the rules that serializers run; rules for migrations run elsewhere."""
    found: list[tuple[str, str]] = []
    for key in _LISTS:
        rules: Json = (rule_set or {}).get(key)
        for one in rules if isinstance(rules, list) else ():
            if isinstance(one, dict) and not one.get("disabled"):
                found.append((str(one.get("name")), str(one.get("mode") or "WRITEREAD").upper()))
    return tuple(found)


def check_rules(held: RegisteredSchema, mode: Literal["READ", "WRITE"]) -> None:
    """Refuse a schema with rules for this mode: what a rule encrypts must never be written as it is."""
    names = [name for name, its_mode in held.rules if its_mode in (mode, "WRITEREAD")]
    if names:
        shown = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
        doing = "written" if mode == "WRITE" else "read"
        raise UnsupportedRules(
            f"the schema {held.id}{f' of {held.subject}' if held.subject else ''} has rules that run when records are"
            f" {doing} ({shown}), and Ottla's serializers run none: use those of confluent-kafka for this topic",
            held.id,
        )
