"""Feature levels on a command line: `feature=level`, what a release has, what a level needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.errors import ApiException, ErrorCode
from ottla.metadata.features import (
    DEPENDENCIES,
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    bootstrap_levels,
    metadata_version_name,
)

_PRINTED: Final = (TRANSACTION_VERSION, GROUP_VERSION, ELR_VERSION, SHARE_VERSION, STREAMS_VERSION)
_DYNAMIC_QUORUM_FROM: Final = 21
"""The metadata.version (3.9) whose new clusters have kraft.version 1."""


def parse_level(word: str) -> tuple[str, int]:
    """Name and level of `feature=level`."""
    name, _, level = word.partition("=")
    if not level.isdecimal():
        raise _invalid(f"Invalid value '{word}' for --feature: expected feature=level")
    if name not in SUPPORTED_FEATURES:
        raise _invalid(f"Unknown feature: {name}")
    if not SUPPORTED_FEATURES[name].min <= int(level) <= SUPPORTED_FEATURES[name].max:
        raise _invalid(f"Feature level {level} is not supported for feature {name}")
    return name, int(level)


def parse_levels(words: Iterable[str]) -> dict[str, int]:
    """All levels of a repeated `--feature`."""
    return dict(parse_level(word) for word in words)


def release_levels(metadata_version: int) -> dict[str, int]:
    """The levels of a new cluster, in the order in which kafka-storage prints them."""
    levels = bootstrap_levels(metadata_version)
    kraft = 1 if metadata_version >= _DYNAMIC_QUORUM_FROM else 0
    return {KRAFT_VERSION: kraft, **{name: levels.get(name, 0) for name in _PRINTED}}


def dependencies_text(name: str, level: int) -> str:
    """What a level needs, in kafka-storage's form."""
    if name == METADATA_VERSION:
        return f"{name}={level} ({metadata_version_name(level)}) has no dependencies."
    needed = DEPENDENCIES.get((name, level))
    if not needed:
        return f"{name}={level} has no dependencies."
    lines = [f"{name}={level} requires:"]
    for other, least in needed.items():
        shown = f" ({metadata_version_name(least)})" if other == METADATA_VERSION else ""
        lines.append(f"    {other}={least}{shown}")
    return "\n".join(lines)


def check_dependencies(levels: Mapping[str, int]) -> None:
    """Refuse levels that need more of another feature than is given."""
    for (name, level), needed in DEPENDENCIES.items():
        for other, least in needed.items():
            if levels.get(name) == level and levels.get(other, 0) < least:
                raise _invalid(f"{name}={level} requires {other}={least}, not {levels.get(other, 0)}")


def _invalid(message: str) -> ApiException:
    return ApiException(ErrorCode.INVALID_CONFIG, message)
