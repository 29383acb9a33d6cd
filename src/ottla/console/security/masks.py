"""Masks: parts of records that nobody sees but the roles that may. Applied before anything else looks at a record.

A filter, a search, the tail, an export and the API all get the masked record, so none of them can be used to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.errors import ApiException, ErrorCode
from ottla.json_types import Json

if TYPE_CHECKING:
    from ottla.console.reader.records import Seen
    from ottla.console.security.roles import Principal

HOW: Final = ("hide", "hash", "last4")
HIDDEN: Final = "(hidden)"
_WHOLE: Final = json.dumps(HIDDEN).encode()


@dataclass(frozen=True, slots=True)
class Mask:
    """Topics, paths and how.

    A path leads into the value (`customer.iban`, `items.*.card`); `key`, `value` and `headers.NAME` are masked whole.
    """

    topics: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]
    how: str
    exempt: frozenset[str]

    def fits(self, topic: str, roles: frozenset[str]) -> bool:
        return not (self.exempt & roles) and any(fnmatchcase(topic, pattern) for pattern in self.topics)


@dataclass(frozen=True, slots=True)
class Masks:
    """All masks."""

    masks: tuple[Mask, ...] = ()
    _salt: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)

    @classmethod
    def load(cls, path: Path | None) -> Masks:
        """Read a file of `[[mask]]` tables; ApiException that names the mistake."""
        if path is None:
            return cls()
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ApiException(ErrorCode.INVALID_REQUEST, f"{path} is not TOML: {error}") from None
        found = []
        for fields in document.get("mask", []):
            how = fields.get("how", "hide")
            topics, paths = fields.get("topics", []), fields.get("paths", [])
            if how not in HOW or not topics or not paths:
                raise ApiException(
                    ErrorCode.INVALID_REQUEST,
                    f"{path}: a mask needs topics, paths, and how = one of {', '.join(HOW)}",
                )
            exempt = frozenset(fields.get("except_roles", []))
            found.append(Mask(tuple(topics), tuple(tuple(each.split(".")) for each in paths), how, exempt))
        return cls(tuple(found))

    def for_reader(self, topic: str, principal: Principal) -> list[Mask]:
        """The masks that this principal sees a topic through."""
        return [mask for mask in self.masks if mask.fits(topic, principal.role_names)]

    def apply(self, record: Seen, masks: Sequence[Mask]) -> Seen:
        """The record with everything masked. A value that cannot be parsed is hidden whole."""
        if not masks:
            return record
        key, value, headers = record.key, record.value, list(record.headers)
        inside: list[tuple[tuple[str, ...], str]] = []
        for mask in masks:
            for path in mask.paths:
                if path == ("key",):
                    key = self._bytes(key, mask.how)
                elif path == ("value",):
                    value = self._bytes(value, mask.how)
                elif path[0] == "headers" and len(path) == 2:
                    headers = [
                        (name, self._bytes(data, mask.how) if fnmatchcase(name, path[1]) else data)
                        for name, data in headers
                    ]
                else:
                    inside.append((path, mask.how))
        if inside and value is not None:
            value = self._inside(value, inside)
        return replace(record, key=key, value=value, headers=headers, stored=None)

    def _inside(self, value: bytes, inside: Sequence[tuple[tuple[str, ...], str]]) -> bytes:
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            return _WHOLE
        if not isinstance(document, dict | list):
            return _WHOLE
        for path, how in inside:
            self._walk(document, path[1:] if path[0] == "value" else path, how)
        return json.dumps(document, ensure_ascii=False, default=str).encode()

    def _walk(self, document: Json, path: Sequence[str], how: str) -> None:
        if not path:
            return
        step, rest = path[0], path[1:]
        if isinstance(document, list):
            # A list stands for each of its items, with or without a star in the path.
            if step != "*" and not step.isdecimal():
                for item in document:
                    self._walk(item, path, how)
                return
            for index in range(len(document)) if step == "*" else [int(step)]:
                if index < len(document):
                    document[index] = self._part(document[index], rest, how)
        elif isinstance(document, dict):
            for name in list(document) if step == "*" else [step]:
                if name in document:
                    document[name] = self._part(document[name], rest, how)

    def _part(self, value: Json, rest: Sequence[str], how: str) -> Json:
        if rest:
            self._walk(value, rest, how)
            return value
        return None if value is None else self._text(json.dumps(value, default=str).strip('"'), how)

    def _bytes(self, data: bytes | None, how: str) -> bytes | None:
        return None if data is None else self._text(data.decode(errors="replace"), how).encode()

    def _text(self, text: str, how: str) -> str:
        if how == "hash":
            return hmac.new(self._salt, text.encode(), hashlib.sha256).hexdigest()[:16]
        if how == "last4" and len(text) > 8:
            return "*" * 8 + text[-4:]
        return HIDDEN
