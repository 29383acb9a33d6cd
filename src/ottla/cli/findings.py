"""Findings of checks, for people: a mark, the subject, what was found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import click

OK, WARN, FAIL = "ok", "warn", "fail"
_MARKS: Final = {OK: ("✓", "green"), WARN: ("!", "yellow"), FAIL: ("✗", "red")}


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its subject, its result, and advice."""

    check: str
    state: str
    text: str
    advice: str = ""


def show(finding: Finding) -> None:
    """Print a finding, and its advice on a line of its own."""
    mark, color = _MARKS[finding.state]
    click.echo(f"{click.style(mark, fg=color)} {finding.check}: {finding.text}")
    if finding.advice:
        click.echo(f"    {finding.advice}")


def some(names: list[str]) -> str:
    """The first few of many names."""
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
