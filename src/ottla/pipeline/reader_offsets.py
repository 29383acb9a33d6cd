"""Which offsets a read covers: partitions of the subscription, where to start and to end, limits, and splits.

This is the driver's side of `format("ottla")`. Offsets have the form of Spark's Kafka source, {topic: {partition: next
offset}}, so that a checkpoint shows the same.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.errors import ApiException, ErrorCode
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.fetching import EARLIEST, LATEST, OffsetRange, list_offsets
from ottla.pipeline.reader_options import At, ReaderOptions
from ottla.pipeline.writer import Place

_logger = logging.getLogger(__name__)

_PARTITIONS_MAX_AGE_S: Final = 1.0
"""How long a stream may take to notice new partitions."""
_OUTAGE_S: Final = 120.0
"""How long a cluster that has answered before may be away, as for the sink."""
_NO_RECORD: Final = -1

JsonOffsets = dict[str, dict[str, int]]
"""The form of offsets in a checkpoint."""


def to_json(offsets: Mapping[Place, int]) -> JsonOffsets:
    """Offsets as a checkpoint has them."""
    found: JsonOffsets = {}
    for place in sorted(offsets):
        found.setdefault(place.topic, {})[str(place.partition)] = offsets[place]
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> dict[Place, int]:
    """The way back of `to_json`."""
    return {
        Place(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


class OffsetPlanner:
    """Looks offsets up in a cluster. Not for several threads at once."""

    def __init__(self, options: ReaderOptions, brokers: Cluster) -> None:
        self._options = options
        self._brokers = brokers
        self._places: list[Place] = []
        self._looked_up = float("-inf")
        self._patience_s: float | None = None
        """None is that of the settings: a wrong address is reported soon."""

    # -- partitions

    def places(self) -> list[Place]:
        """The partitions of the subscription, as of a second ago at most."""
        if time.monotonic() - self._looked_up > _PARTITIONS_MAX_AGE_S:
            self._places = self._brokers.retrying(self._look_up, self._patience_s)
            self._looked_up = time.monotonic()
            self._patience_s = _OUTAGE_S
        return self._places

    def _look_up(self) -> list[Place]:
        options = self._options
        if options.pattern is not None:
            matches = re.compile(options.pattern).fullmatch
            topics = [
                topic
                for topic in self._brokers.metadata(None).topics
                if topic.name and not topic.is_internal and matches(topic.name)
            ]
        else:
            wanted = options.topics or tuple(dict.fromkeys(place.topic for place in options.places))
            topics = self._brokers.metadata(wanted).topics
        found: list[Place] = []
        for topic in topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise PipelineError(
                    f"there is no topic {topic.name}: `ottla topics --create --topic {topic.name}`"
                )
            if topic.error_code:
                code = ErrorCode.of(topic.error_code)
                raise ApiException(code, f"topic {topic.name}: {code.name}")
            found += [Place(topic.name or "", part.partition_index) for part in topic.partitions]
        if options.places:
            missing = set(options.places) - set(found)
            if missing:
                shown = ", ".join(f"{place.topic}-{place.partition}" for place in sorted(missing))
                raise PipelineError(f"the option assign names partitions that do not exist: {shown}")
            found = list(options.places)
        return sorted(found)

    # -- where to start and to end

    def starts(self) -> dict[Place, int]:
        """The offsets that the options give for the start."""
        return self._resolved(self._options.start, "startingOffsets")

    def ends(self) -> dict[Place, int]:
        """The offsets that the options give for the end of a batch read."""
        return self._resolved(self._options.end, "endingOffsets")

    def latest(self, places: Iterable[Place] | None = None) -> dict[Place, int]:
        """The end of each partition, up to which a reader with this isolation sees records."""
        return self._listed(dict.fromkeys(self.places() if places is None else places, LATEST))

    def earliest(self, places: Iterable[Place]) -> dict[Place, int]:
        """The first offset of each partition."""
        return self._listed(dict.fromkeys(places, EARLIEST))

    def _listed(self, wanted: Mapping[Place, int]) -> dict[Place, int]:
        if not wanted:
            return {}
        return list_offsets(
            self._brokers, wanted, isolation=self._options.isolation, timeout_s=self._patience_s
        )

    def _resolved(self, at: At, option: str) -> dict[Place, int]:
        places = self.places()
        if at.timestamp is not None:
            return self._at_times(dict.fromkeys(places, at.timestamp), option)
        if at.timestamps is not None:
            self._check_complete(at.timestamps, places, f"{option}ByTimestamp")
            return self._at_times(at.timestamps, option)
        if isinstance(at.positions, dict):
            self._check_complete(at.positions, places, option)
            open_ends = {place: offset for place, offset in at.positions.items() if offset < 0}
            return at.positions | self._listed(open_ends)
        return self._listed(dict.fromkeys(places, EARLIEST if at.positions == "earliest" else LATEST))

    @staticmethod
    def _check_complete(given: Mapping[Place, int], places: list[Place], option: str) -> None:
        if set(given) != set(places):
            shown = ", ".join(
                f"{place.topic}-{place.partition}" for place in sorted(set(given) ^ set(places))
            )
            raise PipelineError(
                f"the option {option} must name each partition that is read, and no other: see {shown}. Use -1 for "
                "latest and -2 for earliest"
            )

    def _at_times(self, times: Mapping[Place, int], option: str) -> dict[Place, int]:
        found = self._listed(times)
        none = [place for place, offset in found.items() if offset == _NO_RECORD]
        if none and option == "startingOffsets" and not self._options.latest_if_no_record:
            place = min(none)
            raise PipelineError(
                f"{place.topic}-{place.partition} has no record as late as {times[place]}: give an earlier time, or "
                "startingOffsetsByTimestampStrategy=latest"
            )
        return found | self.latest(none)

    # -- batches of a stream

    def limited(self, start: Mapping[Place, int], end: Mapping[Place, int], most: int) -> dict[Place, int]:
        """An end at most `most` offsets after the start, shared out by how much each partition has."""
        begin = self._with_new_places(start, end)
        sizes = {place: max(0, offset - begin[place]) for place, offset in end.items()}
        total = sum(sizes.values())
        if total <= most:
            return dict(end)
        shares = {place: most * size // total for place, size in sizes.items()}
        left = most - sum(shares.values())
        # What rounding has left goes to the fullest, so that each batch gets on.
        for place in sorted(sizes, key=lambda one: (shares[one] - sizes[one], one))[:left]:
            shares[place] += min(1, sizes[place] - shares[place])
        return {place: begin[place] + shares[place] if sizes[place] else end[place] for place in end}

    def available(self, start: Mapping[Place, int], end: Mapping[Place, int]) -> int:
        """How many offsets there are between two positions."""
        begin = self._with_new_places(start, end)
        return sum(max(0, offset - begin[place]) for place, offset in end.items())

    def ranges(self, start: Mapping[Place, int], end: Mapping[Place, int]) -> list[OffsetRange]:
        """The ranges between two positions; data loss is an error, unless the options say otherwise."""
        gone = sorted(set(start) - set(end))
        if gone:
            self._lost(f"{gone[0].topic}-{gone[0].partition} does not exist any more")
        begin = self._with_new_places(start, end)
        ranges: list[OffsetRange] = []
        for place, offset in sorted(end.items()):
            if offset < begin[place]:
                self._lost(
                    f"{place.topic}-{place.partition} ends at offset {offset}, and the read had come to {begin[place]}"
                )
            elif offset > begin[place]:
                ranges.append(OffsetRange(place.topic, place.partition, begin[place], offset))
        return ranges

    def _with_new_places(self, start: Mapping[Place, int], end: Mapping[Place, int]) -> dict[Place, int]:
        """The start, with the first offsets of partitions that were added since."""
        new = self.earliest(set(end) - set(start))
        for place, offset in new.items():
            if offset > 0:
                self._lost(
                    f"the new partition {place.topic}-{place.partition} begins at offset {offset}, not at 0"
                )
        return {**start, **new}

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise PipelineError(
                f"records were lost: {what}. To go on without them, set failOnDataLoss to false"
            )
        _logger.warning("records were lost: %s; the read goes on, since failOnDataLoss is false", what)


def split(ranges: list[OffsetRange], least: int, most_records: int) -> list[OffsetRange]:
    """Cuts ranges into pieces of `most_records` at most, and into about `least` pieces by their size."""
    pieces = [piece for one in ranges for piece in _cut(one, most_records)] if most_records else list(ranges)
    if len(pieces) >= least:
        return pieces
    total = sum(one.end - one.start for one in pieces)
    return [
        part
        for one in pieces
        for part in _cut(
            one, -(-(one.end - one.start) // max(1, round(least * (one.end - one.start) / total)))
        )
    ]


def _cut(one: OffsetRange, most: int) -> list[OffsetRange]:
    return [
        OffsetRange(one.topic, one.partition, start, min(start + most, one.end))
        for start in range(one.start, one.end, most)
    ]
