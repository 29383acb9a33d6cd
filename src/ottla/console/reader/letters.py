"""Dead letters: where a record came from and why it was set aside, from the headers that frameworks add.

Knows Kafka Connect's headers, Kafka Streams' and ours, those of `ottla.schemas`, and Spring's.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.records.record import Header

NAMES: Final = re.compile(
    r"(^|[-_.])(dlq|dlt|dead[-_.]?letters?([-_.]?queue)?|quarantine|errors?)([-_.]|$)", re.I
)
"""Names that dead-letter topics usually have."""
MARK: Final = "__ottla.sent.back"
"""The header of a record that was sent back: the place of its dead letter."""
_SPRING: Final = "kafka_dlt-"
_FAMILIES: Final = (
    ("Connect", "__connect.errors.", "exception.class.name", "exception.message"),
    ("Streams", "__streams.errors.", "exception", "message"),
    ("schemas", "__errors.", "exception", "message"),
)
_MAX_TEXT: Final = 400
_NUMBERS: Final = re.compile(r"\b[0-9]+\b")


@dataclass(frozen=True, slots=True)
class Letter:
    """What the headers of a dead letter say. `topic` is empty where they do not name one."""

    family: str
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    exception: str = ""
    message: str = ""

    @property
    def cause(self) -> str:
        """The exception's short name, and the message's first line without the numbers that differ."""
        name = self.exception.rpartition(".")[2]
        line = self.message.strip().partition("\n")[0]
        plain = _NUMBERS.sub("#", line)
        return f"{name}: {plain}".strip(": ")[:_MAX_TEXT]


def letter(headers: Sequence[Header]) -> Letter | None:
    """The dead letter of headers; None for a record that is none."""
    found = {name: data or b"" for name, data in headers}
    for family, prefix, exception, message in _FAMILIES:
        if any(name.startswith(prefix) for name in found):
            return Letter(
                family,
                _text(found.get(f"{prefix}topic")),
                _number(found.get(f"{prefix}partition")),
                _number(found.get(f"{prefix}offset")),
                _text(found.get(prefix + exception)),
                _text(found.get(prefix + message)),
            )
    if any(name.startswith(_SPRING) for name in found):
        return Letter(
            "Spring",
            _text(found.get(f"{_SPRING}original-topic")),
            _binary(found.get(f"{_SPRING}original-partition")),
            _binary(found.get(f"{_SPRING}original-offset")),
            _text(found.get(f"{_SPRING}exception-cause-fqcn") or found.get(f"{_SPRING}exception-fqcn")),
            _text(found.get(f"{_SPRING}exception-message")),
        )
    return None


def as_it_was(headers: Sequence[Header]) -> list[Header]:
    """The headers without those that say why the record was set aside, and without an older mark."""
    prefixes = (*(each[1] for each in _FAMILIES), _SPRING, MARK)
    return [(name, data) for name, data in headers if not name.startswith(prefixes)]


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")[:_MAX_TEXT]


def _number(data: bytes | None) -> int | None:
    text = _text(data)
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _binary(data: bytes | None) -> int | None:
    """A number as Spring writes it: four or eight bytes."""
    if data is not None and len(data) in (4, 8):
        value: int = struct.unpack(">i" if len(data) == 4 else ">q", data)[0]
        return value if value >= 0 else None
    return _number(data)
