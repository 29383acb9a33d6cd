"""Java's SimpleDateFormat in UTC: its patterns, for writing and for reading times."""

from __future__ import annotations

import datetime
import re
from typing import Final

from ottla.connect.data.logical import EPOCH, timestamp_of
from ottla.connect.failures import ConfigInvalid, DataError

_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_LETTERS: Final = "GyMdHhkKmsSaEDuzZX"
_NUMBERS: Final = "yMdHhkKmsSDu"


class JavaDateFormat:
    """One pattern. Letters that are not in Java's patterns are refused, and the few that Ottla does not know.

    >>> JavaDateFormat("yyyy-MM-dd'T'HH:mm").format(datetime.datetime(2024, 2, 29, 8, 5))
    '2024-02-29T08:05'
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._parts: list[tuple[str, int]] = []
        """(letter, count), or ("'" + text, 0) for text that stands for itself."""
        at = 0
        while at < len(pattern):
            one = pattern[at]
            if one == "'":
                at = self._quoted(at)
            elif one.isascii() and one.isalpha():
                end = at
                while end < len(pattern) and pattern[end] == one:
                    end += 1
                if one not in _LETTERS:
                    raise ConfigInvalid(f"the letter {one} of the date pattern {pattern} is not supported")
                self._parts.append((one, end - at))
                at = end
            else:
                self._parts.append(("'" + one, 0))
                at += 1

    def _quoted(self, at: int) -> int:
        if self.pattern[at : at + 2] == "''":
            self._parts.append(("''", 0))
            return at + 2
        end = self.pattern.find("'", at + 1)
        while end >= 0 and self.pattern[end : end + 2] == "''":
            end = self.pattern.find("'", end + 2)
        if end < 0:
            raise ConfigInvalid(f"the date pattern {self.pattern} has a quote without an end")
        self._parts.append(("'" + self.pattern[at + 1 : end].replace("''", "'"), 0))
        return end + 1

    def format(self, value: datetime.datetime) -> str:
        """The text of a time."""
        return "".join(
            letter[1:] if letter.startswith("'") else _shown(letter, count, value)
            for letter, count in self._parts
        )

    def parse(self, text: str) -> datetime.datetime:
        """The time of a text; DataError if it does not fit. What follows the pattern is ignored, as in Java."""
        fields: dict[str, int] = {}
        at = 0
        for number, (letter, count) in enumerate(self._parts):
            if letter.startswith("'"):
                if not text.startswith(letter[1:], at):
                    raise self._refused(text)
                at += len(letter) - 1
                continue
            following = self._parts[number + 1][0] if number + 1 < len(self._parts) else "'"
            fixed = following[0] in _NUMBERS
            match = re.compile(_expected(letter, count, fixed), re.IGNORECASE).match(text, at)
            if match is None:
                raise self._refused(text)
            fields[letter] = _read(letter, count, match.group())
            at = match.end()
        return _assembled(fields)

    def _refused(self, text: str) -> DataError:
        return DataError(f"Could not parse timestamp: value ({text}) does not match pattern ({self.pattern})")


def _shown(letter: str, count: int, value: datetime.datetime) -> str:
    if letter == "y":
        return f"{value.year % 100:02d}" if count == 2 else str(value.year).zfill(count)
    if letter == "M" and count >= 3:
        return _MONTHS[value.month - 1] if count >= 4 else _MONTHS[value.month - 1][:3]
    if letter == "E":
        return _DAYS[value.weekday()] if count >= 4 else _DAYS[value.weekday()][:3]
    if letter == "a":
        return "AM" if value.hour < 12 else "PM"
    if letter == "G":
        return "AD"
    if letter == "z":
        return "UTC" if count < 4 else "Coordinated Universal Time"
    if letter == "Z":
        return "+0000"
    if letter == "X":
        return "Z"
    numbers = {
        "M": value.month,
        "d": value.day,
        "H": value.hour,
        "k": value.hour or 24,
        "K": value.hour % 12,
        "h": value.hour % 12 or 12,
        "m": value.minute,
        "s": value.second,
        "S": value.microsecond // 1000,
        "D": value.timetuple().tm_yday,
        "u": value.isoweekday(),
    }
    return str(numbers[letter]).zfill(count)


def _expected(letter: str, count: int, fixed: bool) -> str:
    if letter in "ME" and count >= 3:
        names = _MONTHS if letter == "M" else _DAYS
        return "|".join([*names, *(one[:3] for one in names)])
    if letter in _NUMBERS:
        return rf"\s*[+-]?\d{{{count}}}" if fixed else r"\s*[+-]?\d{1,18}"
    return {
        "a": "AM|PM",
        "E": "|".join([*_DAYS, *(one[:3] for one in _DAYS)]),
        "G": "AD|BC",
        "z": r"UTC|GMT(?:[+-]\d\d?:?\d\d)?|[+-]\d{4}",
        "Z": r"[+-]\d{4}|UTC|GMT",
        "X": r"Z|[+-]\d\d(?::?\d\d)?",
    }[letter]


def _read(letter: str, count: int, text: str) -> int:
    if letter == "M" and count >= 3:
        return next(at for at, one in enumerate(_MONTHS, 1) if one[:3].lower() == text[:3].lower())
    if letter in "zZX":
        digits = re.sub(r"[^\d+-]", "", text)
        if not digits:
            return 0
        sign = -1 if digits[0] == "-" else 1
        digits = digits[1:].ljust(4, "0")
        return sign * (int(digits[:2]) * 60 + int(digits[2:4]))
    if letter == "a":
        return 12 if text.upper() == "PM" else 0
    if letter in "EG":
        return 0
    number = int(text)
    if letter == "y" and count <= 2 and len(text.strip()) == 2:
        now = datetime.datetime.now(datetime.UTC).year
        century = (now - 80) // 100 * 100
        number += century if number + century >= now - 80 else century + 100
    return number


def _assembled(fields: dict[str, int]) -> datetime.datetime:
    """The time of the parsed fields, lenient as Java's calendar: a 32nd of January is the first of February."""
    year, month = fields.get("y", 1970), fields.get("M", 1)
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    hours = fields.get("H", fields.get("k", 0) % 24)
    if "h" in fields or "K" in fields:
        hours = fields.get("h", fields.get("K", 0)) % 12 + fields.get("a", 0)
    days = fields.get("d", 1) - 1
    if "D" in fields and "M" not in fields:
        month, days = 1, fields["D"] - 1
    try:
        start = datetime.datetime(year, month, 1, tzinfo=datetime.UTC)
    except ValueError:
        raise DataError(f"the year {year} is not in the years 1 to 9999") from None
    ms = int((start - EPOCH).total_seconds()) * 1000
    ms += (
        (days * 24 + hours) * 60 + fields.get("m", 0) - fields.get("Z", fields.get("X", fields.get("z", 0)))
    ) * 60_000
    return timestamp_of(ms + fields.get("s", 0) * 1000 + fields.get("S", 0))
