"""Records for a person at a terminal: when, where, key and headers in columns, JSON over several lines."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from ottla.client.engine_types import EngineMessage

_JSON_WORD: Final = re.compile(
    r'("(?:[^"\\]|\\.)*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?'
)
_LONG: Final = 100
"""JSON up to this many characters stays on the record's own line."""


class TerminalFormatter:
    """One line per record; long JSON values follow below it."""

    def __init__(self, *, color: bool = True, show_topic: bool = False) -> None:
        self._color = color
        self._show_topic = show_topic
        self._key_width = 0

    def format(self, record: EngineMessage, delivery_count: int | None = None) -> bytes:
        kind, moment = record.timestamp()
        when = (
            datetime.fromtimestamp(moment / 1000).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            if kind
            else "no timestamp"
        )
        topic = f"{record.topic()}/" if self._show_topic else ""
        place = f"{topic}{record.partition()}:{record.offset()}"
        key = _text(record.key())
        self._key_width = min(max(self._key_width, len(key)), 30)
        parts = [
            self._dim(when),
            self._dim(place.rjust(8)),
            self._style(key.ljust(self._key_width), fg="cyan"),
        ]
        headers = " ".join(f"{name}={_text(value)}" for name, value in record.headers() or [])
        if headers:
            parts.append(self._style(headers, fg="magenta"))
        parts.append(self._value(record.value()))
        return ("  ".join(part for part in parts if part) + "\n").encode()

    def _value(self, data: bytes | None) -> str:
        if data is None:
            return self._dim("(null)")
        text = _text(data)
        if text[:1] not in ("{", "["):
            return text
        import json

        try:
            document = json.loads(text)
        except ValueError:
            return text
        short = json.dumps(document, ensure_ascii=False)
        shown = short if len(short) <= _LONG else "\n" + json.dumps(document, ensure_ascii=False, indent=2)
        return _JSON_WORD.sub(self._json_word, shown) if self._color else shown

    def _json_word(self, found: re.Match[str]) -> str:
        text, colon, constant = found.groups()
        if text is not None:
            return click.style(text, fg="blue" if colon else "green") + (colon or "")
        return click.style(found[0], fg="yellow" if constant is None else "red")

    def _dim(self, text: str) -> str:
        return click.style(text, dim=True) if self._color else text

    def _style(self, text: str, fg: str) -> str:
        return click.style(text, fg=fg) if self._color and text else text


def _text(data: bytes | str | None) -> str:
    """Text without what would confuse a terminal; bytes that are no text as hexadecimal numbers."""
    if data is None:
        return ""
    if isinstance(data, str):
        text = data
    else:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return "0x" + data.hex()
    return "".join(sign if sign.isprintable() or sign in "\n\t" else f"\\x{ord(sign):02x}" for sign in text)
