"""`sasl.kerberos.principal.to.local.rules`: from a Kerberos principal to the name of a Kafka principal.

Rules are `DEFAULT` or `RULE:[n:format](match)s/from/to/g/L`; the first that gives a name decides. Principals are the
client's text, so patterns run on RE2, which cannot be made to run for ever.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import re2  # type: ignore[import-untyped]

from ottla.security.mapping import NoMatchingRule, Pattern, expand

RULES_KEY: Final = "sasl.kerberos.principal.to.local.rules"
_RULE: Final = re.compile(
    r"(?:(DEFAULT)|RULE:\[(\d*):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?(L|U)?)"
)
_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_PARAMETER: Final = re.compile(r"\$(\d*)")
_NOT_SIMPLE: Final = re.compile(r"[/@]")


class _Rule(NamedTuple):
    text: str
    parts: int
    """How many components the principal must have; 0 is `DEFAULT`."""
    form: str = ""
    match: Pattern | None = None
    source: Pattern | None = None
    target: str = ""
    everywhere: bool = False
    case: str = ""

    def apply(self, components: list[str], realm: str, default_realm: str) -> str | None:
        """The name; None if the rule is for others."""
        name = self._name(components, realm, default_realm)
        if name is None:
            return None
        if _NOT_SIMPLE.search(name):
            raise NoMatchingRule(f"the rule {self.text} gives {name}, which is not a simple name")
        if self.case == "L":
            return name.lower()
        return name.upper() if self.case == "U" else name

    def _name(self, components: list[str], realm: str, default_realm: str) -> str | None:
        if self.text == "DEFAULT":
            return components[0] if realm == default_realm else None
        if len(components) != self.parts:
            return None
        values = [realm, *components]
        base = _PARAMETER.sub(lambda found: self._parameter(found[1], values), self.form)
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        if self.source is None:
            return base
        count = 0 if self.everywhere else 1
        return self.source.sub(expand(self.target, self.source.groups), base, count)

    def _parameter(self, number: str, values: list[str]) -> str:
        if not number or int(number) >= len(values):
            raise NoMatchingRule(
                f"the rule {self.text} refers to ${number}: there are $0 to ${len(values) - 1}"
            )
        return values[int(number)]


class KerberosShortNamer:
    """The rules of one listener. ValueError for rules that cannot be read."""

    def __init__(self, rules: str, default_realm: str) -> None:
        self._rules = [_parse(each) for each in (word.strip() for word in rules.split(",")) if each]
        self._default_realm = default_realm

    def name(self, principal: str) -> str:
        """The Kafka user of a Kerberos principal. Raises NoMatchingRule."""
        found = _NAME.fullmatch(principal)
        if found is None:
            if "@" in principal:
                raise NoMatchingRule(f"{principal} is not a Kerberos principal")
            return principal
        components = [part for part in (found[1], found[2]) if part is not None]
        for rule in self._rules:
            name = rule.apply(components, found[3], self._default_realm)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of {RULES_KEY} applies to {principal}")


def _parse(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError(f"{RULES_KEY}: invalid rule {text}")
    default, parts, form, match, source, target, everywhere, case = found.groups()
    if default is not None:
        return _Rule("DEFAULT", 0)
    if not parts:
        raise ValueError(f"{RULES_KEY}: the rule {text} does not say how many components its principals have")
    try:
        return _Rule(
            text,
            int(parts),
            form,
            None if match is None else re2.compile(match),
            None if source is None else re2.compile(source),
            target or "",
            everywhere is not None,
            case or "",
        )
    except re2.error as error:
        raise ValueError(f"{RULES_KEY}: a pattern of {text} is not supported by RE2: {error}") from None
