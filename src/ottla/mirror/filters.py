"""Which topics, groups and settings are mirrored: MirrorMaker 2's lists of regular expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.mirror.failures import MirrorError

TOPICS: Final = (".*",)
TOPICS_EXCLUDE: Final = (r"mm2.*\.internal", r".*\.replica", "__.*")
GROUPS: Final = (".*",)
GROUPS_EXCLUDE: Final = ("console-consumer-.*", "connect-.*", "__.*")
CONFIGS_EXCLUDE: Final = (
    *("follower.replication.throttled.replicas", "leader.replication.throttled.replicas"),
    *("message.timestamp.difference.max.ms", "log.message.timestamp.before.max.ms"),
    *("log.message.timestamp.after.max.ms", "message.timestamp.type"),
    *("unclean.leader.election.enable", "min.insync.replicas"),
)


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Names that fit one of the patterns and none of the excluded ones, each as a whole."""

    include: re.Pattern[str]
    exclude: re.Pattern[str] | None

    def __contains__(self, name: str) -> bool:
        if self.exclude is not None and self.exclude.fullmatch(name):
            return False
        return self.include.fullmatch(name) is not None


def name_filter(key: str, include: Sequence[str], exclude: Sequence[str]) -> NameFilter:
    """A filter of lists of patterns; `key` names the setting in an error."""
    chosen = _pattern(key, include)
    if chosen is None:
        chosen = re.compile(r"(?!)")
    return NameFilter(chosen, _pattern(f"{key}.exclude", exclude))


def _pattern(key: str, words: Sequence[str]) -> re.Pattern[str] | None:
    words = [word for word in words if word]
    if not words:
        return None
    try:
        return re.compile("|".join(words))
    except re.error as error:
        raise MirrorError(f"{key}={','.join(words)} is not a regular expression: {error}") from None
