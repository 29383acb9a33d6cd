"""Principals as people write them: `User:alice`."""

from __future__ import annotations

from ottla.admin.users import Principal
from ottla.cli.tools.failures import UsageProblem


def parse_principal(text: str) -> Principal:
    kind, colon, name = text.strip().partition(":")
    if not colon or not kind:
        raise UsageProblem(f"'{text}' is not a principal: expected TYPE:NAME, as in User:alice")
    return Principal(kind, name)
