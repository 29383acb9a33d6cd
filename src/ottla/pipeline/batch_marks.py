"""The topic that remembers, for each transactional id, the last micro-batch that was committed.

It is compacted, and shared by all sinks of a cluster. Open transactions of others must not hide our last mark, so
it is read to its end, and the ends of our own transactions in it are looked at here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.errors import ApiException, ErrorCode
from ottla.pipeline.columns import Section, encode_sections
from ottla.records.batch import iter_batches, iter_records
from ottla.records.control import ControlType, parse_control_type
from ottla.wire.messages import CreateTopicsRequest, FetchRequest, ListOffsetsRequest

BATCHES_TOPIC: Final = "__ottla_sink_batches"
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_EARLIEST: Final = -2
_FETCH_BYTES: Final = 4 << 20
_FETCH_BY_NAME: Final = 12


@dataclass(frozen=True, slots=True)
class Mark:
    """A batch of a lineage (a checkpoint's query): ids of another lineage say nothing about this one's."""

    batch_id: int
    lineage: str


def encode_mark(transactional_id: str, batch_id: int, lineage: str) -> Section:
    """The record that marks a batch as committed."""
    value = json.dumps({"batch": batch_id, "lineage": lineage}).encode()
    now = np.array([time.time_ns() // 1_000_000], np.int64)
    key = pa.array([transactional_id.encode()], pa.binary())
    return next(encode_sections(key, pa.array([value], pa.binary()), now, None, 1 << 20))


def make_batches_topic(brokers: Cluster, timeout_s: float) -> None:
    """Create the topic unless it is there."""

    def ask() -> None:
        try:
            brokers.leaders(BATCHES_TOPIC)
            return
        except ApiException as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        request = CreateTopicsRequest
        topic = request.CreatableTopic(
            name=BATCHES_TOPIC,
            num_partitions=1,
            replication_factor=-1,
            configs=[
                request.CreatableTopicConfig(name=name, value=value) for name, value in _SETTINGS.items()
            ],
        )
        answer = brokers.ask_on(brokers.any(), request(topics=[topic], timeout_ms=30_000))
        if answer.topics[0].error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise_for(answer.topics[0].error_code, None, f"topic {BATCHES_TOPIC}")
        brokers.leaders(BATCHES_TOPIC)

    brokers.retrying(ask, timeout_s)


def last_mark(brokers: Cluster, transactional_id: str) -> Mark | None:
    """The last mark of ours whose transaction was not aborted. None of ours may be open."""
    key = transactional_id.encode()
    committed: Mark | None = None
    undecided: dict[int, Mark | None] = {}
    for header, records in _batches(brokers):
        producer = header.producer_id
        if header.is_control:
            if producer in undecided:
                mark = undecided.pop(producer)
                if parse_control_type(next(iter(records)).key) == ControlType.COMMIT:
                    committed = mark
            continue
        for record in records:
            if record.key == key:
                told = json.loads(record.value) if record.value else None
                undecided[producer] = Mark(told["batch"], told["lineage"]) if told else None
    # An end that the cleaner has dropped was a commit: it drops aborted records first.
    return next(reversed(undecided.values())) if undecided else committed


def _batches(brokers: Cluster) -> Iterator[tuple[Any, Iterator[Any]]]:
    """All batches of the topic, from its first to what is its last now."""
    offset = _first_offset(brokers)
    end = offset + 1
    while offset < end:
        part = FetchRequest.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES, log_start_offset=-1
        )
        asked = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_FETCH_BYTES,
            isolation_level=0,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=BATCHES_TOPIC, partitions=[part])],
        )
        answer = brokers.ask_on(brokers.leader(BATCHES_TOPIC, 0), asked, _FETCH_BY_NAME)
        raise_for(answer.error_code, None, f"reading {BATCHES_TOPIC}")
        told = answer.responses[0].partitions[0]
        raise_for(told.error_code, None, f"reading {BATCHES_TOPIC}")
        end = told.high_watermark
        got = bytes(told.records or b"")
        before = offset
        for at, header in iter_batches(got):
            if header.last_offset >= offset:
                yield header, iter_records(got, at, header)
                offset = header.last_offset + 1
        if offset == before:
            return


def _first_offset(brokers: Cluster) -> int:
    request = ListOffsetsRequest
    part = request.ListOffsetsPartition(partition_index=0, timestamp=_EARLIEST)
    asked = request(replica_id=-1, topics=[request.ListOffsetsTopic(name=BATCHES_TOPIC, partitions=[part])])
    answer = brokers.ask_on(brokers.leader(BATCHES_TOPIC, 0), asked, 7)
    told = answer.topics[0].partitions[0]
    raise_for(told.error_code, None, f"the first offset of {BATCHES_TOPIC}")
    first: int = told.offset
    return first
