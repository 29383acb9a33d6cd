"""`ssl.principal.mapping.rules`: from a certificate's subject to the name of a principal.

Rules are `DEFAULT` or `RULE:pattern/replacement/[LU]`; the first whose pattern matches the whole subject decides.
Subjects are the client's text, so patterns run on RE2, which cannot be made to run for ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import re2  # type: ignore[import-untyped]

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class Pattern(Protocol):
    """The part of RE2's compiled patterns that rules use."""

    groups: int

    def fullmatch(self, text: str) -> re.Match[str] | None: ...

    def sub(self, replacement: Callable[[re.Match[str]], str], text: str, count: int = 0) -> str: ...


class NoMatchingRule(Exception):
    """No rule applies to a subject: the authentication fails."""


class _Rule(NamedTuple):
    pattern: Pattern | None
    """None is `DEFAULT`."""
    replacement: str
    case: str

    def apply(self, subject: str) -> str | None:
        """The principal's name; None if the pattern does not match."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(expand(self.replacement, self.pattern.groups), subject)
        if self.case == "L":
            return name.lower()
        return name.upper() if self.case == "U" else name


def expand(replacement: str, groups: int) -> Callable[[re.Match[str]], str]:
    """Java's replacement text as a function of what a pattern with this many groups has matched."""

    def expanded(match: re.Match[str]) -> str:
        def piece(reference: re.Match[str]) -> str:
            escaped, number = reference.groups()
            return str(escaped) if escaped is not None else _group(match, number, groups)

        return _REFERENCE.sub(piece, replacement)

    return expanded


def _group(match: re.Match[str], number: str, count: int) -> str:
    """`$n` as Java reads it: as many digits as make the number of a group; literal text beyond the groups."""
    for length in range(len(number), 0, -1):
        index = int(number[:length])
        if index <= count:
            return (match.group(index) or "") + number[length:]
    return f"${number}"


class SslPrincipalMapper:
    """The rules of one listener. ValueError for rules that cannot be read."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        self._rules = [_parse(rule) for rule in _split(rules) if rule]

    def name(self, subject: str) -> str:
        """The name of the principal with this subject. Raises NoMatchingRule."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules applies to {subject}")


def _split(rules: str) -> list[str]:
    return [found.group(1) for found in _SPLITTER.finditer(rules.strip())]


def _parse(rule: str) -> _Rule:
    found = _PARSER.fullmatch(rule)
    if found is None:
        raise ValueError(f"ssl.principal.mapping.rules: invalid rule {rule}")
    default, pattern, replacement, case, other = found.groups()
    if default is not None:
        return _Rule(None, "", "")
    if pattern is None:
        raise ValueError(f"ssl.principal.mapping.rules: invalid rule {other}")
    try:
        return _Rule(re2.compile(pattern), replacement, case)
    except re2.error as error:
        raise ValueError(
            f"ssl.principal.mapping.rules: the pattern {pattern} is not supported by RE2: {error}"
        ) from None
