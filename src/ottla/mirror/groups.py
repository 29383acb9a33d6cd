"""Positions of consumer groups: read at the source, translated exactly, noted as checkpoints, committed at the target.

A group that has members at the target is left alone there, and so is a position that somebody else moved forward.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.admin.groups import (
    Committed,
    Group,
    alter_offsets,
    committed_offsets,
    describe_groups,
    list_consumer_groups,
)
from ottla.admin.partitions import Partition
from ottla.connect.formats import Entry
from ottla.errors import ApiException
from ottla.mirror.earlier import FURTHEST, EarlierRuns
from ottla.mirror.formats import BadRecord, Checkpoint
from ottla.mirror.internal_topics import InternalTopic
from ottla.mirror.runs import Run, RunMap
from ottla.pipeline.fetching import EARLIEST, READ_UNCOMMITTED, list_offsets
from ottla.pipeline.writer import Place

if TYPE_CHECKING:
    from ottla.mirror.config import FlowConfig

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Copy:
    """What translation needs to know of a partition: where its copy is, how far it goes, and its runs."""

    remote: Place
    upstream: int
    downstream: int
    runs: RunMap
    stopped: str | None = None
    """Why the partition cannot go on: groups keep the places that they have in its copy."""


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """A group's position in one partition at both sides. `downstream` is None where it cannot be translated."""

    group: str
    place: Place
    remote: Place
    upstream: int
    downstream: int | None
    ahead: int = 0
    """How many offsets the group is ahead of the copy: it waits at the copy's end."""
    metadata: str = ""
    mirrored: bool = True
    """Whether any record of the partition was copied: before that, MirrorMaker 2 writes no checkpoint."""
    target: int | None = None
    """What the group has committed at the target, if anything."""


def translate(copy: Copy, offset: int, log_start: int) -> int | None:
    """The target's offset of the first record at or after an offset of the source.

    None for offsets before the first known run whose records the source still has: another mirror copied them, and
    only `EarlierRuns` may know where.
    """
    if offset >= copy.upstream:
        return copy.downstream
    first = next(iter(copy.runs), None)
    if first is None or (offset < first.upstream and log_start < first.upstream):
        return None
    return copy.runs.translate(offset)


def group_positions(
    config: FlowConfig,
    source: Cluster,
    copies: Mapping[Place, Copy],
    only: str | None = None,
    *,
    earlier: EarlierRuns | None = None,
) -> list[GroupPosition]:
    """The positions of all mirrored groups, or of one, at both sides. `earlier` knows what others have copied."""
    wanted = config.group_filter()
    names = [only] if only is not None else [one.group_id for one in list_consumer_groups(source)]
    starts = list_offsets(source, dict.fromkeys(copies, EARLIEST), isolation=READ_UNCOMMITTED)
    read: list[tuple[str, Place, Committed]] = []
    for name in names:
        if only is None and name not in wanted:
            continue
        for (topic, partition), committed in committed_offsets(source, name).items():
            if (place := Place(topic, partition)) in copies:
                read.append((name, place, committed))
    known = dict(copies)
    if earlier is not None:
        for place, offsets in _too_early(read, copies, starts).items():
            known[place] = _with_earlier(earlier, place, copies[place], offsets)
    return [
        GroupPosition(
            name,
            place,
            known[place].remote,
            committed.offset,
            translate(known[place], committed.offset, starts[place]),
            max(0, committed.offset - known[place].upstream),
            committed.metadata,
            any(run.span for run in known[place].runs),
        )
        for name, place, committed in read
    ]


def _too_early(
    read: Iterable[tuple[str, Place, Committed]], copies: Mapping[Place, Copy], starts: Mapping[Place, int]
) -> dict[Place, set[int]]:
    """Where positions cannot be translated, as far as they are worth looking for."""
    found: dict[Place, set[int]] = {}
    for _, place, committed in read:
        first = next(iter(copies[place].runs), None)
        offset = max(committed.offset, starts[place])
        if first is not None and first.upstream - FURTHEST <= offset < first.upstream:
            found.setdefault(place, set()).add(offset)
    return found


def _with_earlier(earlier: EarlierRuns, place: Place, copy: Copy, offsets: Iterable[int]) -> Copy:
    """A copy with the runs back to the lowest of some offsets; the nearest ones are looked for first."""
    first = next(iter(copy.runs))
    runs: Sequence[Run] = ()
    for offset in sorted(offsets, reverse=True):
        runs = earlier.before(place, copy.remote, first, offset)
    return replace(copy, runs=RunMap([*runs, *copy.runs])) if runs else copy


class Copies(Protocol):
    """Who knows what is copied: a flow, or a reader of its map of runs."""

    config: FlowConfig

    def copies(self) -> dict[Place, Copy]:
        """What is copied so far."""


class GroupSync:
    """Keeps groups at the target where they are at the source. Not for several threads at once."""

    def __init__(self, flow: Copies) -> None:
        self._flow = flow
        self._config = flow.config
        self._source = Cluster(flow.config.source_settings)
        self._target = Cluster(flow.config.target_settings)
        self._checkpoints: dict[tuple[str, Place], Checkpoint] = {}
        topic = flow.config.policy.checkpoints_topic(flow.config.source)
        replicas = flow.config.number("checkpoints.topic.replication.factor")
        self._topic = InternalTopic(flow.config.target_settings, topic, replicas, self._apply)
        self._opened = False
        self._earlier = EarlierRuns(self._source, self._target)
        self._warned: set[tuple[str, Place]] = set()

    def _apply(self, key: bytes, value: bytes | None) -> None:
        try:
            if value is not None:
                found = Checkpoint.parse(key, value)
                self._checkpoints[found.group, found.place] = found
        except BadRecord as error:
            _logger.warning("%s: a record of the checkpoints is skipped: %s", self._config.name, error)

    def sync(self) -> int:
        """Writes checkpoints of positions that changed, and commits them at the target; returns how many changed."""
        if not self._opened:
            self._topic.open(read=True)
            self._opened = True
        going = {place: copy for place, copy in self._flow.copies().items() if copy.stopped is None}
        positions = group_positions(self._config, self._source, going, earlier=self._earlier)
        self._tell(positions)
        before = dict(self._checkpoints)
        changed = self._write_checkpoints(positions)
        if self._config.flag("sync.group.offsets.enabled"):
            by_group: dict[str, list[GroupPosition]] = {}
            for one in positions:
                by_group.setdefault(one.group, []).append(one)
            states = describe_groups(self._target, list(by_group))
            for name, some in by_group.items():
                state = states.get(name)
                if isinstance(state, Group) and state.members:
                    continue
                try:
                    self._commit(name, some, before)
                except ApiException as error:
                    # One group that cannot be moved does not hold the others up.
                    _logger.warning("%s: group %s: %s", self._config.name, name, error)
        return changed

    def _write_checkpoints(self, positions: list[GroupPosition]) -> int:
        entries: list[Entry] = []
        for one in positions:
            if one.downstream is None or not one.mirrored:
                continue
            new = Checkpoint(one.group, one.remote, one.upstream, one.downstream, one.metadata)
            if self._checkpoints.get((one.group, one.remote)) != new:
                self._checkpoints[one.group, one.remote] = new
                entries.append(Entry(new.key(), new.value()))
        if self._config.flag("emit.checkpoints.enabled"):
            self._topic.write(entries)
        return len(entries)

    def _commit(
        self, group: str, positions: list[GroupPosition], before: Mapping[tuple[str, Place], Checkpoint]
    ) -> None:
        there = committed_offsets(self._target, group)
        new: dict[Partition, Committed] = {}
        for one in positions:
            if one.downstream is None:
                continue
            now = there.get((one.remote.topic, one.remote.partition))
            ours = before.get((group, one.remote))
            moved_by_others = now is not None and (ours is None or now.offset != ours.downstream)
            if now is None or (
                now.offset != one.downstream and not (moved_by_others and now.offset > one.downstream)
            ):
                # A leader epoch of the source means nothing at the target.
                new[one.remote.topic, one.remote.partition] = Committed(one.downstream, None, one.metadata)
        if not new:
            return
        for (topic, number), code in alter_offsets(self._target, group, new).items():
            raise_for(code, None, f"the position of {group} in {topic}-{number} at {self._config.target}")

    def _tell(self, positions: list[GroupPosition]) -> None:
        """Says once what cannot be translated."""
        for one in positions:
            if one.downstream is None and (one.group, one.place) not in self._warned:
                self._warned.add((one.group, one.place))
                _logger.warning(
                    "%s: group %s stands at offset %d of %s-%d, which was copied before this mirror's notes begin, and "
                    "counting back from there finds no equal records: its position at the target stays as it is",
                    self._config.name,
                    one.group,
                    one.upstream,
                    *one.place,
                )

    def close(self) -> None:
        """Closes connections."""
        self._topic.close()
        self._source.close()
        self._target.close()
