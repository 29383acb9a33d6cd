"""ISO-8601 durations of days and time, as Java reads them, and offset resets that contain one."""

from __future__ import annotations

import re
from typing import Final

BY_DURATION: Final = "by_duration:"
"""The prefix of an `auto.offset.reset` that contains a duration."""

_DURATION: Final = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<d>[+-]?\d+)D)?"
    r"(?:T(?:(?P<h>[+-]?\d+)H)?(?:(?P<m>[+-]?\d+)M)?(?:(?P<s>[+-]?\d+(?:[.,]\d{0,9})?)S)?)?\Z",
    re.IGNORECASE,
)
_SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def duration_ms(text: str) -> int:
    """The duration's milliseconds; raises ValueError."""
    match = _DURATION.match(text)
    if match is None or not any(match[part] for part in _SECONDS):
        raise ValueError(f"{text!r} is not a duration like P3DT2H")
    total = sum(
        float(match[part].replace(",", ".")) * seconds for part, seconds in _SECONDS.items() if match[part]
    )
    return round(total * 1000) * (-1 if match["sign"] == "-" else 1)


def is_offset_reset(text: str) -> bool:
    """Whether a share group can begin there: `latest`, `earliest` or `by_duration:<duration that is not negative>`."""
    if not text.startswith(BY_DURATION):
        return text in ("latest", "earliest")
    try:
        return duration_ms(text.removeprefix(BY_DURATION)) >= 0
    except ValueError:
        return False
