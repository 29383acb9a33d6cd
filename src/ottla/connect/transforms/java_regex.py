"""Java's regular expressions on Python's `re`: what has another meaning there is refused, with its position."""

from __future__ import annotations

import re
from typing import Final

from ottla.connect.failures import ConfigInvalid

_NAMED: Final = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_OTHER: Final = re.compile(r"\\[pPQEGRXhHvVzN]|&&|\(\?[a-z]*[dxU]")
"""Character classes by property, quotes, intersections and flags that `re` does not have."""
_REFERENCE: Final = re.compile(r"\\(.)|\$(?:\{([a-zA-Z][a-zA-Z0-9]*)\}|(\d))")


def java_regex(key: str, pattern: str) -> re.Pattern[str]:
    """The pattern for `re`; ConfigInvalid if it would mean something else there."""
    other = _OTHER.search(pattern)
    if other is not None:
        raise ConfigInvalid(
            f"Invalid value {pattern} for configuration {key}: {other.group()} at position {other.start()} is not "
            "supported"
        )
    try:
        return re.compile(_NAMED.sub(r"(?P<\1>", pattern))
    except re.error as error:
        raise ConfigInvalid(
            f"Invalid value {pattern} for configuration {key}: Invalid regex: {error}"
        ) from None


def java_replacement(text: str, pattern: re.Pattern[str]) -> str:
    r"""The template for `Match.expand`: $1 and ${name} are groups, a backslash makes the next character plain."""
    made: list[str] = []
    at = 0
    for match in _REFERENCE.finditer(text):
        made.append(text[at : match.start()].replace("\\", "\\\\"))
        plain, name, _ = match.groups()
        at = match.end()
        if plain is not None:
            made.append(plain.replace("\\", "\\\\"))
        elif name is not None:
            made.append(rf"\g<{name}>")
        else:
            number, at = _number(text, match.start(3), pattern.groups)
            made.append(rf"\g<{number}>")
    made.append(text[at:].replace("\\", "\\\\"))
    return "".join(made)


def _number(text: str, at: int, groups: int) -> tuple[int, int]:
    """The number of a group: as many digits as name a group that exists."""
    number = int(text[at])
    if number > groups:
        raise ConfigInvalid(f"Invalid value {text} for configuration replacement: there is no group {number}")
    at += 1
    while at < len(text) and text[at].isdigit() and number * 10 + int(text[at]) <= groups:
        number = number * 10 + int(text[at])
        at += 1
    return number, at
