"""Values of flags: numbers, durations and moments as Kafka's tools take them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from ottla.cli.tools.failures import UsageProblem

_DURATION: Final = re.compile(r"P(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+(?:\.\d+)?)S)?)?")

_AGO: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


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


def now_ms() -> int:
    """The time of this machine."""
    return time.time_ns() // 1_000_000


def parse_datetime(text: str) -> int:
    """Milliseconds since the epoch of a moment like 2026-03-01T12:00:00.000, with or without a zone; UTC without."""
    if "T" not in text:
        raise UsageProblem(f"'{text}' is not a moment: expected YYYY-MM-DDTHH:MM:SS.sss")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageProblem(f"'{text}' is not a moment: expected YYYY-MM-DDTHH:MM:SS.sss") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration_ms(flag: str, text: str) -> int:
    """Milliseconds of an ISO 8601 duration like P1DT2H30M or PT10S."""
    found = _DURATION.fullmatch(text.upper())
    if found is None or text.upper() in ("P", "PT") or text.upper().endswith("T"):
        raise UsageProblem(f"{flag} {text}: expected a duration like P1DT2H30M or PT10S")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def parse_since(text: str) -> int:
    """Milliseconds since the epoch of a time ago, like 10m, 2h30m or 1d, or of a moment."""
    found = _AGO.fullmatch(text.strip())
    if found is None or not text.strip():
        try:
            return parse_datetime(text if "T" in text else f"{text.strip()}T00:00:00")
        except UsageProblem:
            raise UsageProblem(f"--since {text}: expected a time ago like 10m or 2h, or a moment") from None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return now_ms() - (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def java_double(value: float) -> str:
    """A number as Java writes a double: with an exponent if it is large or small."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    number = Decimal(repr(value)).normalize()
    digits = "".join(map(str, number.as_tuple().digits))
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{number.adjusted()}"
