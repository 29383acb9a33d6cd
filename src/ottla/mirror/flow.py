"""The driver of a flow: deals partitions to lanes, takes them over safely, runs cycles and notes how far they came.

States of a partition: noted (a pair of offsets in the ledger), open (a lane may write beyond the note), stopped (it
needs a person). After an unclean end the lane is fenced and the target's tail is read before it is open again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.retries import Backoff
from ottla.errors import ApiException
from ottla.mirror import topics as topic_sync
from ottla.mirror.config import FlowConfig
from ottla.mirror.epochs import NO_EPOCH, went_back
from ottla.mirror.failures import LaneFenced, PartitionStopped, made_again, passes
from ottla.mirror.filling import fill
from ottla.mirror.groups import Copy
from ottla.mirror.lanes import Copied, LaneOutcome, Position, Share
from ottla.mirror.ledger import Ledger, Note
from ottla.mirror.ownership import FENCED, Identity, LaneOwner
from ottla.mirror.runners import Runner
from ottla.mirror.runs import Run, RunMap
from ottla.mirror.syncs import OffsetSyncs
from ottla.mirror.tails import TailQuestion, read_tail
from ottla.mirror.topics import CopyLimits, MirroredTopic, is_another
from ottla.pipeline.fetching import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    list_offsets,
)
from ottla.pipeline.writer import Place

_logger = logging.getLogger(__name__)

_RENEW_S: Final = 24 * 3600.0
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0


@dataclass(slots=True)
class PartitionState:
    """A partition of the source and where its copy stands."""

    place: Place
    remote: Place
    lane: int
    position: Position
    topic_id: str = ""
    source_end: int = -1
    records: int = 0
    size: int = 0
    rebuilt: int = 0
    stopped: str | None = None
    last_pair: tuple[int, int] | None = None
    """The offsets of the last record at both sides."""
    differs: bool = False
    """Whether it was said that these are not equal."""

    @property
    def lag(self) -> int:
        """Offsets of the source that are not copied yet."""
        return max(0, self.source_end - self.position.upstream)

    def note(self, *, still_open: bool) -> Note:
        """What the ledger holds of it."""
        position = self.position
        return Note(
            position.upstream - 1,
            position.downstream - 1,
            self.lane,
            still_open,
            self.topic_id,
            position.epoch,
            self.stopped or "",
        )


@dataclass(slots=True)
class Lane:
    """A lane of the driver: its right to write."""

    number: int
    owner: LaneOwner
    identity: Identity | None = None
    owned_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """How far a flow is."""

    partitions: int
    stopped: int
    records: int
    size: int
    lag: int


class Flow:
    """One flow. `prepare`, then `cycle` again and again, then `close`. `lock` guards the maps of runs."""

    def __init__(self, config: FlowConfig, runner: Runner) -> None:
        self.config = config
        self.lock = threading.Lock()
        self.source = Cluster(config.source_settings)
        self.target = Cluster(config.target_settings)
        self.ledger = Ledger(config)
        self.topics: dict[str, MirroredTopic] = {}
        self.partitions: dict[Place, PartitionState] = {}
        self._lanes: dict[int, Lane] = {}
        self._limits: dict[str, CopyLimits] = {}
        self._runner = runner
        self._syncs = OffsetSyncs(config)
        self._pauses = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self.records = 0
        self.size = 0

    # -- topics and partitions

    def prepare(self) -> None:
        """Makes what is missing at the target, takes all lanes over, and finds out where each partition goes on."""
        for alias, cluster in ((self.config.source, self.source), (self.config.target, self.target)):
            try:
                cluster.metadata(())
            except ApiException as error:
                # Said at once: the requests that follow are repeated for a minute before they fail.
                raise ApiException(error.code, f"{alias}: {error.message}") from error
        with self.lock:
            self.ledger.open()
        self._syncs.open()
        self.refresh_topics()

    def refresh_topics(self) -> None:
        """Looks for new topics and partitions at the source; they are dealt to lanes. Vanished topics are let go."""
        found = topic_sync.mirrored_topics(self.config, self.source)
        topic_sync.make_remote_topics(self.config, self.source, self.target, found)
        self._limits = topic_sync.copy_limits(self.target, found)
        self.topics = found
        wanted = {
            Place(topic.name, number): topic for topic in found.values() for number in range(topic.partitions)
        }
        for place in [place for place in self.partitions if place not in wanted]:
            _logger.warning("%s: %s-%d is gone at the source", self.config.name, *place)
            del self.partitions[place]
        for place, state in self.partitions.items():
            if state.stopped is None and is_another(state.topic_id, wanted[place].topic_id):
                state.stopped = made_again(place)
        new = {place: topic for place, topic in wanted.items() if place not in self.partitions}
        if new:
            self._adopt(new)
        self._drop_runs()

    def _adopt(self, new: Mapping[Place, MirroredTopic]) -> None:
        """Takes partitions up: fences the lanes that may still write to them, deals them, reads their tails."""
        self._forget_empty_copies(new)
        fenced: dict[int, list[Place]] = {}
        for place, topic in new.items():
            note = self.ledger.notes.get(place)
            if note is not None and note.open and note.lane >= 0:
                places = fenced.setdefault(note.lane, [])
                if not self._keeps_offsets(place):
                    places.append(Place(topic.remote, place.partition))
        for number in sorted({*fenced, *range(self._count_lanes())}):
            lane = self._lanes.get(number)
            if lane is None:
                owner = LaneOwner(self.target, self.config.transactional_id(number))
                lane = self._lanes[number] = Lane(number, owner)
            if number in fenced or lane.identity is None:
                lane.identity = lane.owner.fence(fenced.get(number, ()))
        self._deal(new)
        states = [self.partitions[place] for place in new]
        if self.config.identical:
            self._fill(states)
        self._read_tails(states)
        self._write_notes(states, still_open=True)

    def _forget_empty_copies(self, new: Mapping[Place, MirroredTopic]) -> None:
        """A copy that was deleted begins afresh: its notes are of the one before. Markers of fences come later."""
        remotes = {
            place: Place(new[place].remote, place.partition) for place in new if place in self.ledger.notes
        }
        ends = list_offsets(self.target, dict.fromkeys(remotes.values(), LATEST), isolation=READ_UNCOMMITTED)
        for place, remote in remotes.items():
            note = self.ledger.notes[place]
            replaced = is_another(note.topic_id, new[place].topic_id)
            written = note.target is not None and note.target >= 0
            if not ends[remote] and (replaced or written):
                _logger.warning(
                    "%s: %s-%d is empty at the target and is copied afresh", self.config.name, *remote
                )
                self._forget_runs(place)
                del self.ledger.notes[place]

    def _keeps_offsets(self, place: Place) -> bool:
        """Whether a copy has the source's offsets: a marker would take one, and old writers repeat none."""
        return self._limits[place.topic].keeps_offsets

    def _count_lanes(self) -> int:
        wanted = max(1, self.config.number("tasks.max"))
        return min(wanted, self._runner.most_lanes or wanted)

    def _deal(self, new: Mapping[Place, MirroredTopic]) -> None:
        """A place for each partition: where the ledger says, else the beginning; the largest go first, evenly."""
        places = {place: Place(topic.remote, place.partition) for place, topic in new.items()}
        first = list_offsets(self.source, dict.fromkeys(new, EARLIEST), isolation=READ_UNCOMMITTED)
        last = list_offsets(self.source, dict.fromkeys(new, LATEST), isolation=READ_COMMITTED)
        source_ends = list_offsets(self.source, dict.fromkeys(new, LATEST), isolation=READ_UNCOMMITTED)
        ends = list_offsets(self.target, dict.fromkeys(places.values(), LATEST), isolation=READ_UNCOMMITTED)
        load = dict.fromkeys(range(self._count_lanes()), 0)
        for state in self.partitions.values():
            load[state.lane] = load.get(state.lane, 0) + state.lag + 1
        states = []
        for place, topic in new.items():
            note, remote = self.ledger.notes.get(place), places[place]
            upstream = last[place] if self.config.from_end else first[place]
            downstream = ends[remote]
            replaced = note is not None and is_another(note.topic_id, topic.topic_id)
            if note is not None:
                upstream = note.offset + 1
                if note.target is not None:
                    downstream = note.target + 1
            begin = downstream
            if self._keeps_offsets(place):
                # The copy itself says how far it goes.
                lost = downstream > ends[remote] and note is not None
                downstream = ends[remote]
                begin = upstream = downstream if lost else max(upstream, downstream)
            if note is None or note.target is None:
                newest = self.ledger.map_of(place).last
                if newest is not None and (newest.upstream_end, newest.downstream_end) != (upstream, begin):
                    # MirrorMaker 2 copied what lies between: nobody noted where.
                    self._forget_runs(place)
                with self.lock:
                    self.ledger.map_of(place).add(upstream, begin, 0)
            epoch = NO_EPOCH if note is None else note.epoch
            state = PartitionState(
                place, remote, 0, Position(upstream, downstream, epoch=epoch), topic.topic_id
            )
            state.source_end = last[place]
            if note is not None and replaced:
                # Its note keeps the id of the topic that was copied.
                state.topic_id, state.stopped = note.topic_id, made_again(place)
            elif source_ends[place] < upstream:
                state.stopped = went_back(place, source_ends[place], upstream)
            states.append(state)
        for state in sorted(states, key=lambda one: -one.lag):
            state.lane = min(range(self._count_lanes()), key=lambda number: load[number])
            load[state.lane] += state.lag + 1
            self.partitions[state.place] = state

    def _fill(self, states: list[PartitionState]) -> None:
        """Partitions that begin after 0 and have no copy yet get the same offsets."""
        empty = [
            state
            for state in states
            if state.stopped is None
            and state.position.upstream > 0
            and state.position.downstream == 0
            and self._limits[state.place.topic].deletes
            and not self._keeps_offsets(state.place)
        ]
        if not empty:
            return
        # A driver that dies here leaves a note by which the next one goes on filling.
        self._write_notes(empty, still_open=True)
        ends = list_offsets(self.target, {one.remote: LATEST for one in empty}, isolation=READ_UNCOMMITTED)
        for state in empty:
            identity = self._lanes[state.lane].identity
            first, end = state.position.upstream, ends[state.remote]
            if identity is None or end > first:
                continue
            sequence = fill(self.target, identity, state.remote, end, first)
            state.position = Position(first, first, sequence)
            with self.lock:
                self.ledger.runs[state.place] = RunMap([Run(first, first, 0)])
        self._write_notes(empty, still_open=True)

    def _forget_runs(self, place: Place) -> None:
        with self.lock:
            self.ledger.write({}, [(place, run) for run in self.ledger.runs.pop(place, ())])

    def _drop_runs(self) -> None:
        """Forgets the runs below the source's log starts."""
        starts = list_offsets(
            self.source, dict.fromkeys(self.partitions, EARLIEST), isolation=READ_UNCOMMITTED
        )
        with self.lock:
            dropped = [
                (place, run)
                for place, start in starts.items()
                for run in self.ledger.map_of(place).drop_below(start)
            ]
            if dropped:
                self.ledger.write({}, dropped)

    def _read_tails(self, states: list[PartitionState]) -> None:
        """Moves partitions to where the target really ends."""
        going = [state for state in states if state.stopped is None]
        ends = list_offsets(
            self.target, {state.remote: LATEST for state in going}, isolation=READ_UNCOMMITTED
        )
        for state in going:
            if ends[state.remote] == state.position.downstream:
                continue
            if self._keeps_offsets(state.place):
                end, position = ends[state.remote], state.position
                upstream = end if end < position.downstream else max(position.upstream, end)
                with self.lock:
                    self._learn(state.place, (Run(end, end, 0),))
                state.position = replace(position, upstream=upstream, downstream=end, sequence=0)
                continue
            limits = self._limits[state.place.topic]
            question = TailQuestion(
                state.place,
                state.remote,
                state.position.upstream,
                state.position.downstream,
                limits.max_batch_bytes,
                resume=self.config.values["on.foreign.records"] == "resume",
                compacts=limits.compacts,
            )
            try:
                tail = read_tail(self.source, self.target, question)
            except PartitionStopped as stopped:
                self._stop(state, str(stopped))
                continue
            with self.lock:
                self._learn(state.place, tail.added_runs())
            state.position = Position(tail.upstream, tail.downstream, epoch=state.position.epoch)
            if tail.records:
                _logger.info(
                    "%s: %s-%d goes on after %d records that were not noted",
                    self.config.name,
                    *state.place,
                    tail.records,
                )

    def _learn(self, place: Place, runs: tuple[Run, ...]) -> None:
        known = self.ledger.map_of(place)
        for run in runs:
            known.add(*run)
        last = known.last
        if last is not None and last.span:
            self.partitions[place].last_pair = last.upstream_end - 1, last.downstream_end - 1

    def _stop(self, state: PartitionState, why: str) -> None:
        state.stopped = why
        _logger.error("%s: %s", self.config.name, why)

    def _write_notes(self, states: list[PartitionState], *, still_open: bool) -> None:
        """Notes where partitions are. Nobody writes to one that is stopped."""
        with self.lock:
            self.ledger.write(
                {state.place: state.note(still_open=still_open and state.stopped is None) for state in states}
            )

    # -- cycles

    def ends(self) -> dict[Place, int]:
        """Where the source's partitions end now, as far as transactions have ended."""
        going = [place for place, state in self.partitions.items() if state.stopped is None]
        found = list_offsets(self.source, dict.fromkeys(going, LATEST), isolation=READ_COMMITTED)
        for place, end in found.items():
            self.partitions[place].source_end = end
        return found

    def cycle(self, ended: threading.Event, until: Mapping[Place, int] | None = None) -> int:
        """One cycle of all lanes; returns the records that it copied."""
        shares = self._shares(until)
        copied, failed = 0, False
        for outcome in self._runner.run(shares, ended):
            if outcome.failure is None:
                copied += self._take(outcome)
            else:
                failed = True
                self._recover(outcome)
        if failed and not copied:
            # Each takeover costs an offset: a lane that fails at once must not be taken over all the time.
            ended.wait(self._pauses.next_s())
        else:
            self._pauses = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        states = list(self.partitions.values())
        self._write_notes(states, still_open=True)
        self._syncs.write(states)
        self._renew()
        return copied

    def _renew(self) -> None:
        """Takes each id again once a day: coordinators forget ids after a week, and then fence no old writer."""
        now_s = time.monotonic()
        with self.lock:
            self.ledger.renew(now_s, _RENEW_S)
        for lane in self._lanes.values():
            if now_s - lane.owned_s < _RENEW_S:
                continue
            lane.identity, lane.owned_s = lane.owner.own(), now_s
            for state in self.partitions.values():
                if state.lane == lane.number:
                    state.position = replace(state.position, sequence=0)

    def _shares(self, until: Mapping[Place, int] | None) -> list[Share]:
        found = []
        for number, lane in self._lanes.items():
            positions = {
                place: state.position
                for place, state in self.partitions.items()
                if state.lane == number and state.stopped is None
            }
            if not positions:
                continue
            assert lane.identity is not None
            names = {place.topic for place in positions}
            share = Share(
                number,
                self.config.source_settings,
                self.config.target_settings,
                lane.identity,
                positions,
                {name: self.topics[name].remote for name in names},
                {name: self._limits[name].max_batch_bytes for name in names},
                self.config.number("mirror.cycle.ms"),
                self.config.values["on.foreign.records"] == "resume",
                None if until is None else {place: until.get(place, 0) for place in positions},
                frozenset(name for name in names if self._limits[name].keeps_offsets),
            )
            found.append(share)
        return found

    def _take(self, outcome: LaneOutcome) -> int:
        with self.lock:
            for part in outcome.parts:
                self._learn(part.place, part.runs)
        for part in outcome.parts:
            self._count(self.partitions[part.place], part)
            self._tell_of_gap(self.partitions[part.place])
        return sum(part.records for part in outcome.parts)

    def _count(self, state: PartitionState, part: Copied) -> None:
        state.position = part.position
        state.source_end = max(state.source_end, part.source_end, part.position.upstream)
        state.records += part.records
        state.size += part.size
        state.rebuilt += part.rebuilt
        self.records += part.records
        self.size += part.size
        if part.stopped is not None:
            self._stop(state, part.stopped)

    def _tell_of_gap(self, state: PartitionState) -> None:
        """Says once that a partition's offsets are not equal any more."""
        pair = state.last_pair
        if self.config.identical and not state.differs and pair is not None and pair[0] != pair[1]:
            state.differs = True
            _logger.warning(
                "%s: %s-%d has a gap at one side: its offset %d is %d at the target. Groups are translated",
                self.config.name,
                *state.place,
                *pair,
            )

    def _recover(self, outcome: LaneOutcome) -> None:
        """A lane ended in the middle: its writers are shut out, and the target says how far it came."""
        lane = self._lanes[outcome.lane]
        if outcome.code in FENCED:
            raise LaneFenced(lane.owner.transactional_id, outcome.code)
        if outcome.refused is None and not passes(outcome.code):
            raise ApiException(outcome.code, outcome.failure or "")
        states = [
            state
            for state in self.partitions.values()
            if state.lane == outcome.lane and state.stopped is None
        ]
        _logger.warning(
            "%s: lane %d ended in the middle and is taken over: %s",
            self.config.name,
            outcome.lane,
            outcome.failure,
        )
        lane.identity = lane.owner.fence(
            [state.remote for state in states if not self._keeps_offsets(state.place)]
        )
        before = {state.place: state.position.downstream for state in states}
        for state in states:
            state.position = replace(state.position, sequence=0)
        self._read_tails(states)
        for state in states:
            grew = self._keeps_offsets(state.place) and state.position.downstream > before[state.place]
            if state.remote == outcome.refused and not grew:
                self._stop(state, outcome.failure or "")

    def copies(self) -> dict[Place, Copy]:
        """What is copied so far, as a picture that does not change."""
        with self.lock:
            return {
                place: Copy(
                    state.remote,
                    state.position.upstream,
                    state.position.downstream,
                    RunMap(self.ledger.map_of(place)),
                    state.stopped,
                )
                for place, state in list(self.partitions.items())
            }

    def progress(self) -> FlowProgress:
        """How far it is."""
        states = list(self.partitions.values())
        return FlowProgress(
            len(states),
            sum(state.stopped is not None for state in states),
            self.records,
            self.size,
            sum(state.lag for state in states if state.stopped is None),
        )

    def close(self, *, clean: bool = True) -> None:
        """Notes that no lane writes any more, and closes connections."""
        try:
            if clean and self.partitions:
                self._write_notes(list(self.partitions.values()), still_open=False)
        finally:
            self.ledger.close()
            self._syncs.close()
            self.source.close()
            self.target.close()
