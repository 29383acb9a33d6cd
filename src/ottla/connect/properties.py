"""Java's .properties format, for worker and connector files. The broker reads its own files with the same rules."""

from __future__ import annotations

from ottla.config.properties import parse_properties


def parse(text: str) -> dict[str, str]:
    """The keys and values of a text."""
    return parse_properties(text)
