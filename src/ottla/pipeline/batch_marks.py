"""The topic of batch marks: for each transactional id, the last micro-batch that was committed.

It is compacted, and all sinks of a cluster share it, unless they name another one. Open transactions of other sinks
must not hide the last mark, so this module reads the topic to its end without isolation, and finds out which of its own
transactions were committed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.records.batch import BatchHeader, iter_batches, iter_records
from ottla.records.control import ControlType, parse_control_type
from ottla.records.record import Record
from ottla.wire.messages import CreateTopicsRequest, FetchRequest, ListOffsetsRequest

if TYPE_CHECKING:
    from ottla.pipeline.columns import Section

BATCHES_TOPIC: Final = TopicName("__ottla_sink_batches")
"""The topic of sinks that name no other."""
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_EARLIEST: Final = -2
_NO_REPLICA: Final = BrokerId(-1)
_FETCH_BYTES: Final = 4 << 20
_FETCH_BY_NAME: Final = 12


@dataclass(frozen=True, slots=True)
class Mark:
    """A batch of a lineage (a checkpoint's query); batch ids of different lineages cannot be compared."""

    batch_id: int
    lineage: str


def encode_mark(transactional_id: str, batch_id: int, lineage: str) -> Section:
    """The record that marks a batch as committed."""
    value = json.dumps({"batch": batch_id, "lineage": lineage}).encode()
    import numpy as np
    import pyarrow as pa

    from ottla.pipeline.columns import encode_sections

    now = np.array([time.time_ns() // 1_000_000], np.int64)
    key = pa.array([transactional_id.encode()], pa.binary())
    return next(encode_sections(key, pa.array([value], pa.binary()), now, None, 1 << 20))


def make_batches_topic(brokers: Cluster, timeout_s: float, topic_name: TopicName = BATCHES_TOPIC) -> None:
    """Creates the topic unless it exists."""

    def ask() -> None:
        try:
            brokers.leaders(topic_name)
            return
        except ApiException as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        request = CreateTopicsRequest
        topic = request.CreatableTopic(
            name=topic_name,
            num_partitions=1,
            replication_factor=-1,
            configs=[
                request.CreatableTopicConfig(name=name, value=value) for name, value in _SETTINGS.items()
            ],
        )
        response = brokers.ask_on(brokers.any(), request(topics=[topic], timeout_ms=30_000))
        if response.topics[0].error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise_for(response.topics[0].error_code, None, f"topic {topic_name}")
        brokers.leaders(topic_name)

    brokers.retrying(ask, timeout_s)


def last_mark(brokers: Cluster, transactional_id: str, topic_name: TopicName = BATCHES_TOPIC) -> Mark | None:
    """The last committed mark of a transactional id, which must have no open transaction."""
    key = transactional_id.encode()
    committed: Mark | None = None
    undecided: dict[int, Mark | None] = {}
    for header, records in _batches(brokers, topic_name):
        producer = header.producer_id
        if header.is_control:
            if producer in undecided:
                mark = undecided.pop(producer)
                if parse_control_type(next(iter(records)).key) == ControlType.COMMIT:
                    committed = mark
            continue
        for record in records:
            if record.key == key:
                held = json.loads(record.value) if record.value else None
                undecided[producer] = Mark(held["batch"], held["lineage"]) if held else None
    # If the cleaner has removed the marker, it was a commit: the cleaner removes aborted records before their marker.
    return next(reversed(undecided.values())) if undecided else committed


def _batches(brokers: Cluster, topic_name: TopicName) -> Iterator[tuple[BatchHeader, Iterator[Record]]]:
    """All batches of the topic, from the first to the current last."""
    offset = _first_offset(brokers, topic_name)
    end = offset + 1
    while offset < end:
        part = FetchRequest.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES, log_start_offset=-1
        )
        request = FetchRequest(
            replica_id=_NO_REPLICA,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_FETCH_BYTES,
            isolation_level=0,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=topic_name, partitions=[part])],
        )
        response = brokers.ask_on(brokers.leader(topic_name, 0), request, _FETCH_BY_NAME)
        raise_for(response.error_code, None, f"reading {topic_name}")
        found = response.responses[0].partitions[0]
        raise_for(found.error_code, None, f"reading {topic_name}")
        end = found.high_watermark
        data = bytes(found.records or b"")
        before = offset
        for at, header in iter_batches(data):
            if header.last_offset >= offset:
                yield header, iter_records(data, at, header)
                offset = header.last_offset + 1
        if offset == before:
            return


def _first_offset(brokers: Cluster, topic_name: TopicName) -> int:
    request = ListOffsetsRequest
    part = request.ListOffsetsPartition(partition_index=0, timestamp=_EARLIEST)
    topic = request.ListOffsetsTopic(name=topic_name, partitions=[part])
    message = request(replica_id=_NO_REPLICA, topics=[topic])
    response = brokers.ask_on(brokers.leader(topic_name, 0), message, 7)
    found = response.topics[0].partitions[0]
    raise_for(found.error_code, None, f"the first offset of {topic_name}")
    return found.offset
