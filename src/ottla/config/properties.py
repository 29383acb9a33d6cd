"""Reads Java's .properties format, the format of `server.properties` and `meta.properties`."""

from __future__ import annotations

import re

from ottla.config.errors import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
_UNICODE = re.compile(r"[0-9a-fA-F]{4}")


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a .properties text, in order. The last value of a repeated key counts."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key_end = _end_of_key(line)
        value_start = key_end
        while value_start < len(line) and line[value_start] in _BLANKS:
            value_start += 1
        if value_start < len(line) and line[value_start] in "=:":
            value_start += 1
            while value_start < len(line) and line[value_start] in _BLANKS:
                value_start += 1
        found[_unescape(line[:key_end])] = _unescape(line[value_start:])
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        part = raw.lstrip(_BLANKS)
        if not pending and (not part or part[0] in "#!"):
            continue
        pending += part
        backslashes = len(pending) - len(pending.rstrip("\\"))
        if backslashes % 2:
            pending = pending[:-1]
            continue
        lines.append(pending)
        pending = ""
    if pending:
        lines.append(pending)
    return lines


def _end_of_key(line: str) -> int:
    index = 0
    while index < len(line):
        if line[index] == "\\":
            index += 1
        elif line[index] in "=:" or line[index] in _BLANKS:
            break
        index += 1
    return min(index, len(line))


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    index = 0
    while index < len(text):
        char = text[index]
        index += 1
        if char != "\\" or index == len(text):
            out.append(char)
            continue
        char = text[index]
        index += 1
        if char == "u":
            code = text[index : index + 4]
            if not _UNICODE.fullmatch(code):
                raise ConfigError(f"Malformed \\u escape in '{text}': expected four hexadecimal digits")
            out.append(chr(int(code, 16)))
            index += 4
        else:
            out.append(_ESCAPES.get(char, char))
    # Java writes characters beyond the basic plane as two escapes.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
