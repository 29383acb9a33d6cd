"""The notation of valid values in the key table (`[1,...]`, `[a, b]`, ...), compiled into checks.

A check takes the typed value. It returns what was expected instead, or None if the value is valid.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from ottla.config.values import Value

Check = Callable[[Value], str | None]

_NUMBER = r"(-?[0-9.]+)"
_RANGE = re.compile(rf"\[{_NUMBER},\.\.\.(?:,{_NUMBER})?\](?: or {_NUMBER})?$")
_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+$")
_THROTTLED_REPLICAS = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
_IGNORING_CASE = "(case insensitive) "


def _number(text: str) -> float | int:
    return float(text) if "." in text else int(text)


def _in_range(low: float, high: float, extra: float | None) -> Check:
    expected = f"at least {low}" if math.isinf(high) else f"between {low} and {high}"
    if extra is not None:
        expected += f" or {extra}"

    def check(value: Value) -> str | None:
        if value is None or value == extra or (isinstance(value, int | float) and low <= value <= high):
            return None
        return expected

    return check


def _one_of(allowed: list[str], ignore_case: bool) -> Check:
    expected = "one of " + ", ".join(allowed)
    folded = {word.lower() for word in allowed} if ignore_case else set(allowed)

    def check(value: Value) -> str | None:
        if value is None:
            return None
        words = value if isinstance(value, tuple) else (str(value),)
        valid = all((word.lower() if ignore_case else word) in folded for word in words)
        return None if valid else expected

    return check


def _throttled_replicas(value: Value) -> str | None:
    items = value if isinstance(value, tuple) else ()
    if items == ("*",) or all(_THROTTLED_REPLICA.match(item) for item in items):
        return None
    return f"* or {_THROTTLED_REPLICAS}"


def _not_null(value: Value) -> str | None:
    return "a value" if value is None else None


def _not_empty(value: Value) -> str | None:
    return None if value is None or str(value).strip() else "a value that is not empty"


_NAMED: dict[str, Check | None] = {
    "": None,
    "non-null string": _not_null,
    "non-empty string": _not_empty,
    # Kafka states this for the quorum's address lists, although their default is the empty list.
    "non-empty list": None,
    _THROTTLED_REPLICAS: _throttled_replicas,
}


def compile_check(notation: str | None) -> Check | None:
    """The check for one entry of the table; None if any value of the type is valid."""
    if notation is None:
        return None
    if notation in _NAMED:
        return _NAMED[notation]
    if found := _RANGE.match(notation):
        low, high, extra = found.groups()
        return _in_range(
            _number(low), _number(high) if high else math.inf, None if extra is None else _number(extra)
        )
    words = notation.removeprefix(_IGNORING_CASE)
    if words.startswith("[") and words.endswith("]"):
        return _one_of(words[1:-1].split(", "), ignore_case=words != notation)
    raise ValueError(f"no rule for the notation {notation!r}")
