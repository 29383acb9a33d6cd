"""Where a path names a subject, and the subject that an alias stands for."""

from __future__ import annotations

from typing import Final

from ottla.registry import names
from ottla.registry.state import State

_DEK_AREA: Final = "dek-registry"
_SETTINGS: Final = ("config", "mode")


def subject_at(segments: tuple[str, ...]) -> int | None:
    """The index of the segment that is a subject; None in a path about the whole registry."""
    area = segments[0] if segments else ""
    at: int | None = None
    if area in ("subjects", *_SETTINGS):
        at = 1
    elif area == "compatibility" or segments[:2] == ("associations", "subjects"):
        at = 2
    elif area == _DEK_AREA:
        # .../keks/{kek}/deks/{subject}: the KEKs themselves belong to the whole registry.
        at = 5
    return at if at is not None and len(segments) > at else None


def without_aliases(segments: tuple[str, ...], context: str, state: State) -> tuple[str, ...]:
    """The path with the subject itself in place of an alias. Settings are those of the alias."""
    at = subject_at(segments)
    if at is None or segments[0] in _SETTINGS:
        return segments
    word = "aliasForDeks" if segments[0] == _DEK_AREA else "alias"
    return (*segments[:at], subject_of(segments[at], context, state, word), *segments[at + 1 :])


def subject_of(given: str, context: str, state: State, word: str = "alias") -> str:
    """The subject that a name stands for: itself, or what the setting `word` of that name says."""
    qualified = names.normalize(given if given.startswith(":.") else names.qualify(context, given))
    target = state.configs.get(qualified, {}).get(word)
    return names.within(target, qualified) if isinstance(target, str) and target else given
