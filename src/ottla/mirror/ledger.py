"""What a flow knows of its partitions between two runs, in two compacted topics of the target: notes and runs.

Notes are source offsets of Kafka Connect (MirrorMaker 2 goes on from them). Both are written under a producer id of
the flow's driver: a driver that was taken over cannot change them any more.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.connect.data.java_text import Ordered, to_json
from ottla.connect.formats import Entry, offset_key, parse_offset_key
from ottla.connect.topic_log import TopicLog, append
from ottla.errors import ApiException
from ottla.mirror import formats
from ottla.mirror.config import SOURCE_CONNECTOR, FlowConfig
from ottla.mirror.epochs import NO_EPOCH, Epoch
from ottla.mirror.failures import LaneFenced
from ottla.mirror.ownership import FENCED, Identity, LaneOwner
from ottla.mirror.runs import Run, RunMap
from ottla.pipeline.writer import BatchWriter, Grant, Place

_logger = logging.getLogger(__name__)

_OFFSETS_PARTITIONS: Final = 25
_NO_LANE: Final = -1


@dataclass(frozen=True, slots=True)
class Note:
    """How far a partition is copied.

    `offset` and `target` are the last offsets that are done at both sides; `target` is None if MirrorMaker 2 wrote the
    note. `lane` has the partition. While `open`, that lane may have written more than the note says. `stopped` says why
    the partition waits for a person.
    """

    offset: int
    target: int | None = None
    lane: int = _NO_LANE
    open: bool = False
    topic_id: str = ""
    epoch: Epoch = NO_EPOCH
    stopped: str = ""

    def value(self) -> bytes:
        """The value of its record. MirrorMaker 2 reads `offset` only."""
        fields = Ordered(offset=self.offset)
        if self.target is not None:
            fields |= {"target": self.target, "lane": self.lane, "open": self.open, "topicId": self.topic_id}
            if self.epoch != NO_EPOCH:
                fields |= {"epoch": self.epoch.number, "epochEnd": self.epoch.end}
            if self.stopped:
                fields |= {"stopped": self.stopped}
        return to_json(Ordered(fields)).encode()

    @classmethod
    def parse(cls, value: bytes) -> Note | None:
        """From a record; None if it is not a note."""
        try:
            found = json.loads(value)
        except ValueError:
            return None
        if not isinstance(found, dict) or not isinstance(found.get("offset"), int):
            return None
        target, lane = found.get("target"), found.get("lane")
        epoch, end = found.get("epoch"), found.get("epochEnd")
        return cls(
            found["offset"],
            target if isinstance(target, int) else None,
            lane if isinstance(lane, int) else _NO_LANE,
            found.get("open") is True,
            str(found.get("topicId") or ""),
            Epoch(epoch, end) if isinstance(epoch, int) and isinstance(end, int) else NO_EPOCH,
            str(found.get("stopped") or ""),
        )


def note_key(source: str, place: Place, connector: str = SOURCE_CONNECTOR) -> bytes:
    """The key of a note, byte for byte as Kafka Connect writes it."""
    where = {"cluster": source, "partition": place.partition, "topic": place.topic}
    return offset_key(connector, to_json(where))


def parse_note_key(key: bytes, source: str, connector: str = SOURCE_CONNECTOR) -> Place | None:
    """The partition that a note is about; None if it is not of this source."""
    found = parse_offset_key(key)
    if found is None or found[0] != connector:
        return None
    where = json.loads(found[1])
    if not isinstance(where, dict) or where.get("cluster") != source:
        return None
    topic, partition = where.get("topic"), where.get("partition")
    return Place(topic, partition) if isinstance(topic, str) and isinstance(partition, int) else None


class RunsLog:
    """The map of runs as the target's topic has it. Not for several threads at once."""

    def __init__(self, flow: FlowConfig) -> None:
        self._flow = flow
        self._found: dict[Place, dict[int, Run]] = {}
        self._log = TopicLog(flow.target_settings, flow.runs_topic, self._apply)

    def open(self) -> None:
        """Creates the topic where it is missing."""
        self._log.open(1, max(0, self._flow.number("offset.storage.replication.factor")), {})

    def read(self) -> dict[Place, RunMap]:
        """Reads what was written since the last time; the maps of all partitions of the source."""
        self._log.read_to_end()
        return {place: RunMap(runs.values()) for place, runs in self._found.items()}

    def _apply(self, key: bytes, value: bytes | None) -> None:
        try:
            place, upstream = formats.parse_run_key(key)
            if value is None:
                self._found.get(place, {}).pop(upstream, None)
            else:
                self._found.setdefault(place, {})[upstream] = formats.parse_run_value(value)
        except formats.BadRecord:
            _logger.warning("a record of %s is not a run and is skipped", self._flow.runs_topic)

    def close(self) -> None:
        """Closes connections."""
        self._log.close()


class Ledger:
    """The notes and runs of a flow. Not for several threads at once."""

    def __init__(self, flow: FlowConfig) -> None:
        self._flow = flow
        self._driver_id = f"ottla-mirror-{flow.source}-{flow.target}-driver"
        self._settings: ClusterSettings = flow.target_settings
        self.notes: dict[Place, Note] = {}
        self.runs: dict[Place, RunMap] = {}
        self._brokers = Cluster(self._settings)
        self._notes_log = TopicLog(self._settings, flow.offsets_topic, self._apply_note)
        self._runs_log = RunsLog(flow)
        self._writer: BatchWriter | None = None
        self._owner = LaneOwner(self._brokers, self._driver_id)
        self._owned_s = 0.0

    def open(self) -> None:
        """Takes the ledger over from an earlier driver, which can write no more, and reads it."""
        self._make()
        places = [Place(self._flow.offsets_topic, one) for one in range(self._notes_log.partitions)]
        self._write_as(self._owner.fence([*places, Place(self._flow.runs_topic, 0)]))
        self.read()

    def _write_as(self, identity: Identity) -> None:
        grant = Grant(self._settings, producer_id=identity.producer_id, epoch=identity.epoch)
        self._writer = BatchWriter(self._brokers, grant)
        self._owned_s = time.monotonic()

    def renew(self, now_s: float, every_s: float) -> None:
        """Takes the driver's id again when it is due: coordinators forget ids, and then fence no old driver."""
        if now_s - self._owned_s >= every_s:
            self._write_as(self._owner.own())

    def look(self) -> None:
        """Reads the ledger without taking it over; ApiException if no mirror has made its topics yet."""
        for topic in (self._flow.offsets_topic, self._flow.runs_topic):
            self._brokers.leaders(topic)
        self._make()
        self.read()

    def _make(self) -> None:
        replicas = max(0, self._flow.number("offset.storage.replication.factor"))
        self._notes_log.open(_OFFSETS_PARTITIONS, replicas, {})
        self._runs_log.open()

    def read(self) -> None:
        """Reads what was written since the last time."""
        self._notes_log.read_to_end()
        self.runs.update(self._runs_log.read())

    def _apply_note(self, key: bytes, value: bytes | None) -> None:
        place = parse_note_key(key, self._flow.source, self._flow.connector)
        if place is None:
            return
        note = None if value is None else Note.parse(value)
        if note is None:
            self.notes.pop(place, None)
        else:
            self.notes[place] = note

    def map_of(self, place: Place) -> RunMap:
        """The runs of a partition of the source."""
        return self.runs.setdefault(place, RunMap())

    def write(self, notes: Mapping[Place, Note], dropped: Iterable[tuple[Place, Run]] = ()) -> None:
        """Writes the runs that changed, then the notes: a note never speaks of runs that are not there."""
        assert self._writer is not None
        try:
            self._write(self._writer, notes, dropped)
        except ApiException as error:
            if error.code in FENCED:
                raise LaneFenced(self._driver_id, error.code) from error
            raise

    def _write(
        self, writer: BatchWriter, notes: Mapping[Place, Note], dropped: Iterable[tuple[Place, Run]]
    ) -> None:
        runs = [
            Entry(formats.run_key(place, run), formats.run_value(run))
            for place, known in self.runs.items()
            for run in known.take_changed()
        ]
        runs += [Entry(formats.run_key(place, run), None) for place, run in dropped]
        if runs:
            append(writer, self._flow.runs_topic, 1, runs)
            writer.flush()
        changed = {place: note for place, note in notes.items() if self.notes.get(place) != note}
        source, connector = self._flow.source, self._flow.connector
        entries = [Entry(note_key(source, place, connector), note.value()) for place, note in changed.items()]
        if entries:
            append(writer, self._flow.offsets_topic, self._notes_log.partitions, entries)
            writer.flush()
            self.notes.update(changed)

    def close(self) -> None:
        """Closes all connections."""
        self._notes_log.close()
        self._runs_log.close()
        self._brokers.close()
