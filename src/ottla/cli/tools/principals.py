"""Principals as people write them: `User:alice`."""

from __future__ import annotations

from typing import NamedTuple

from ottla.cli.tools.failures import UsageProblem


class Principal(NamedTuple):
    """Who someone is: a kind, nearly always User, and a name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_principal(text: str) -> Principal:
    kind, colon, name = text.strip().partition(":")
    if not colon or not kind:
        raise UsageProblem(f"'{text}' is not a principal: expected TYPE:NAME, as in User:alice")
    return Principal(kind, name)
