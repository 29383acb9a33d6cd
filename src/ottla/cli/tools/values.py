"""Values of flags: numbers, durations and moments as Kafka's tools take them."""

from __future__ import annotations

from ottla.cli.tools.failures import UsageProblem


def parse_int(flag: str, text: str | int | None, default: int | None = None) -> int:
    """A whole number."""
    if text is None:
        if default is None:
            raise UsageProblem(f"{flag} is required")
        return default
    try:
        return int(text)
    except ValueError:
        raise UsageProblem(f"{flag} {text}: expected a whole number") from None
