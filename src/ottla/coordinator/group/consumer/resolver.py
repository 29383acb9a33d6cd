"""Resolves the regular expressions of a group to topics.

A look-up runs in slices of a few milliseconds between the heartbeats. It writes the topics of each expression, and a
new group epoch where they have changed. As in Kafka it runs at most every ten seconds: when there is a new expression,
when topics were created, or when the last look-up is old.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.consumer import records as write
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.regex import compile_regex, matching_topics
from ottla.coordinator.group.consumer.subscriptions import ResolvedRegex
from ottla.coordinator.group.metadata_hash import metadata_hash
from ottla.coordinator.records import CoordinatorRecord
from ottla.coordinator.result import CoordinatorResult
from ottla.ids import TopicName

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer.groups import ConsumerGroups
    from ottla.coordinator.group.consumer.update import MemberUpdate

_logger = logging.getLogger(__name__)

MIN_REFRESH_MS: Final = 10_000
SLICE: Final = 2_000
"""Topics matched in one step: about 4 ms per expression."""


class RegexChange(Enum):
    """How a heartbeat changes the member's expression."""

    NONE = "the member's expression is the same"
    UNRESOLVED = "changed, and what it matches is not known yet"
    RESOLVED = "changed, and what it matches is known"


def lookup_key(group_id: str) -> Hashable:
    return ("consumer-regex", group_id)


def update_regex(
    consumers: ConsumerGroups, update: MemberUpdate, may_describe: Callable[[str], bool]
) -> RegexChange:
    """Apply the member's expression, and schedule a look-up if one is due. Raises INVALID_REGULAR_EXPRESSION.

    As in Kafka, the rights of the member that causes a look-up decide for the whole group.
    """
    group, old, new = update.group, update.old.topic_regex, update.new.topic_regex
    regexes = group.subscriptions.regexes
    change = RegexChange.NONE
    if old != new:
        change = RegexChange.UNRESOLVED
        if old and regexes.get(old) == 1:
            update.records.append(write.regular_expression_tombstone(group.group_id, old))
        if not new or (new in regexes and new in group.subscriptions.resolved):
            change = RegexChange.RESOLVED
        elif new not in regexes:
            compile_regex(new)
    if (new or regexes) and _lookup_is_due(consumers, update):
        consumers.context.timers.schedule(
            lookup_key(group.group_id), 0, _Lookup(consumers, group.group_id, may_describe).step, retry=False
        )
    return change


def _lookup_is_due(consumers: ConsumerGroups, update: MemberUpdate) -> bool:
    group, now_ms = update.group, update.now_ms
    if consumers.context.timers.is_scheduled(lookup_key(group.group_id)):
        return False
    last = next(iter(group.subscriptions.resolved.values()), None)
    if last is None:
        return bool(update.new.topic_regex or group.subscriptions.regexes)
    # A time in the future comes from a wrong clock: see `ModernGroup.assigned_recently`.
    age_ms = abs(now_ms - last.resolved_ms)
    if age_ms <= MIN_REFRESH_MS:
        return False
    wanted = update.subscriptions_after().regexes
    return bool(wanted) and (
        wanted.keys() != group.subscriptions.resolved.keys()
        or last.version < consumers.topics_created_at
        or age_ms > consumers.context.config.int("group.consumer.regex.refresh.interval.ms")
    )


class _Lookup:
    """One look-up of all expressions of a group, against the metadata of its start."""

    __slots__ = (
        "_consumers",
        "_group_id",
        "_image",
        "_matches",
        "_may_describe",
        "_names",
        "_position",
        "_started_ms",
    )

    def __init__(self, consumers: ConsumerGroups, group_id: str, may_describe: Callable[[str], bool]) -> None:
        self._consumers = consumers
        self._may_describe = may_describe
        self._group_id = group_id
        self._image = consumers.context.image
        self._names = list(self._image.topics.by_name)
        self._matches: dict[str, list[TopicName]] | None = None
        self._position = 0
        self._started_ms = 0

    def step(self, now_ms: int) -> CoordinatorResult[None]:
        group = self._consumers.context.groups.get(self._group_id)
        if not isinstance(group, ConsumerGroup):
            return CoordinatorResult([], None)
        if self._matches is None:
            self._matches = {regex: [] for regex in group.subscriptions.regexes}
            self._started_ms = now_ms
        names = self._names[self._position : self._position + SLICE]
        for regex, found in self._matches.items():
            found += filter(self._may_describe, matching_topics(regex, names))
        self._position += SLICE
        if self._position < len(self._names):
            timers = self._consumers.context.timers
            timers.schedule(lookup_key(self._group_id), 0, self.step, retry=False)
            return CoordinatorResult([], None)
        return CoordinatorResult(self._records(group, self._matches, now_ms), None)

    def _records(
        self, group: ConsumerGroup, matches: dict[str, list[TopicName]], now_ms: int
    ) -> list[CoordinatorRecord]:
        records: list[CoordinatorRecord] = []
        after = group.subscriptions.copy()
        bump = False
        for regex, topics in matches.items():
            if regex not in after.regexes:
                continue
            resolved = ResolvedRegex(frozenset(topics), self._image.offset, self._started_ms)
            known = after.resolved.get(regex)
            bump = bump or resolved.topics != (frozenset() if known is None else known.topics)
            after.resolve(regex, resolved)
            records.append(write.regular_expression(group.group_id, regex, resolved))
        hashed = metadata_hash(after.topics(), self._consumers.context.image, self._consumers.topic_hashes)
        if bump or hashed != group.metadata_hash:
            epoch = group.epoch + 1
            records.append(write.group_epoch(group.group_id, epoch, hashed))
            group.refreshed(now_ms, epoch)
            _logger.info("group %s is in epoch %d: its expressions match other topics", group.group_id, epoch)
        return records
