"""Leader epochs of the source: where one ended, by which a mirror sees that copied records were lost there."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.ids import BrokerId, TopicName
from ottla.pipeline.writer import Place
from ottla.wire.messages import OffsetForLeaderEpochRequest

_VERSION: Final = 4
_CONSUMER: Final = BrokerId(-1)


_WAYS: Final = "Delete the topic at the target and restart the mirror: it is copied afresh"


def went_back(place: Place, end: int, copied: int) -> str:
    """The sentence about a source that ends before what was copied."""
    return (
        f"{place.topic}-{place.partition} ends at offset {end} at the source, and {copied} was copied already: an "
        f"unclean election, or the topic was created again. {_WAYS}"
    )


def lost_offsets(place: Place, end: int, copied: int) -> str:
    """The sentence about a source that lost copied records and has others in their place."""
    return (
        f"{place.topic}-{place.partition} lost its offsets from {end} on at the source, and those up to {copied - 1} "
        f"were copied already: an unclean election. {_WAYS}"
    )


class Epoch(NamedTuple):
    """The leader epoch of the last copied batch, and the offset after that batch."""

    number: int
    end: int


NO_EPOCH: Final = Epoch(-1, 0)
"""Nothing is known."""


def end_of_epoch(source: Cluster, place: Place, epoch: int) -> int:
    """Where a leader epoch ended at the source; -1 if its leader does not know."""
    kind = OffsetForLeaderEpochRequest
    wanted = kind.OffsetForLeaderPartition(
        partition=place.partition, current_leader_epoch=-1, leader_epoch=epoch
    )
    request = kind(
        replica_id=_CONSUMER,
        topics=[kind.OffsetForLeaderTopic(topic=TopicName(place.topic), partitions=[wanted])],
    )

    def ask() -> int:
        response = source.ask_on(source.leader(*place), request, _VERSION)
        (part,) = response.topics[0].partitions
        raise_for(part.error_code, None, f"the epochs of {place.topic}-{place.partition}")
        return int(part.end_offset)

    return source.retrying(ask)
