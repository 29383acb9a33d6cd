"""A state that is a fold over the records of a topic: each record once, in the order of offsets."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from typing import Final, TypeVar

from ottla.json_types import JsonObject
from ottla.registry import records

_logger = logging.getLogger(__name__)

_MALFORMED: Final = (records.BadRecord, KeyError, TypeError, ValueError)

K = TypeVar("K")


class Fold(ABC):
    """The base of such states. A subclass says what a record of a kind changes."""

    holds: str
    """What the topic holds, for the log."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.changes = 0
        """Counts changes, so that caches of answers know when they are stale."""
        self._spellings: dict[bytes, list[bytes]] = {}
        """Keys as older registries wrote them, by the key that this one writes."""

    def apply(self, offset: int, key: bytes | None, raw: bytes | None) -> None:
        """Take one record in. A record that no registry writes is logged and passed over."""
        if offset < self.next_offset:
            return
        self.next_offset = offset + 1
        self.changes += 1
        try:
            fields, value = records.read(key, raw)
            self._fold(fields, value)
            self._take_note(key or b"", fields, ended=value is None)
        except _MALFORMED as error:
            # The record itself is not shown: properties of a key management service may be secrets.
            _logger.warning(
                "The record at offset %d of the registry's %s is passed over: %s", offset, self.holds, error
            )

    def other_spellings(self, key: bytes) -> list[bytes]:
        """Keys with the same fields that have a value, in other bytes: compaction knows bytes only."""
        return self._spellings.get(key, [])

    def _take_note(self, key: bytes, fields: JsonObject, *, ended: bool) -> None:
        ours = records.spelled(fields)
        if ours is None or ours == key:
            return
        others = [one for one in self._spellings.get(ours, ()) if one != key]
        self._spellings[ours] = others if ended else [*others, key]
        if not self._spellings[ours]:
            del self._spellings[ours]

    @abstractmethod
    def _fold(self, key: JsonObject, value: JsonObject | None) -> None:
        """Change the state by the fields of one record."""


def put(table: MutableMapping[K, JsonObject], place: K, value: JsonObject | None) -> None:
    """Set what a record says about a place; a record without a value removes it."""
    if value is None:
        table.pop(place, None)
    else:
        table[place] = value
