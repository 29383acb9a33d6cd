"""A compacted topic as a table: reads it to its end, follows it, and appends to it.

Open transactions of other writers must not hide what follows them: this module reads without isolation, holds the
records of a transaction back, and applies them at its commit marker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.errors import raise_for
from ottla.admin.settings import ClusterSettings
from ottla.admin.topics import NewTopic, create_topics
from ottla.client.partitioners import murmur2
from ottla.connect.failures import ConnectError
from ottla.connect.formats import Entry
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.pipeline.writer import BatchWriter, Place
from ottla.records.batch import BatchHeader, iter_batches, iter_records
from ottla.records.control import ControlType, parse_control_type
from ottla.wire.messages import DescribeConfigsRequest, FetchRequest, ListOffsetsRequest

_logger = logging.getLogger(__name__)

_EARLIEST: Final = -2
_LATEST: Final = -1
_FETCH_BYTES: Final = 4 << 20
_FETCH_BY_NAME: Final = 12
_TOPIC_RESOURCE: Final = 2
_DECIDED_MS: Final = 100
_RETRY_S: Final = 60.0
_USUAL_REPLICATION: Final = 3

Apply = Callable[[bytes, bytes | None], None]
"""Takes a committed record: its key and its value."""


@dataclass(slots=True)
class _Part:
    """What was read of a partition; `pending` are records of open transactions by producer id."""

    offset: int = 0
    end: int = 0
    pending: dict[int, list[tuple[int, bytes, bytes | None]]] = field(default_factory=dict)


class TopicLog:
    """One topic. Not for several threads at once."""

    def __init__(self, settings: ClusterSettings, topic: str, apply: Apply) -> None:
        self.topic = TopicName(topic)
        self._brokers = Cluster(settings)
        self._apply = apply
        self._parts: dict[int, _Part] = {}

    def open(
        self, partitions: int, replication: int, configs: dict[str, str], *, any_policy: bool = False
    ) -> None:
        """Creates the topic if it is missing; refuses one that is not compacted, unless `any_policy` is allowed.

        0 replicas means up to three.
        """
        self._brokers.retrying(lambda: self._make(partitions, replication, configs), _RETRY_S)
        if not any_policy:
            self._check_policy()
        self._brokers.retrying(self._find_parts, _RETRY_S)

    def _find_parts(self) -> None:
        for partition in self._brokers.leaders(self.topic):
            self._parts[partition] = _Part(self._list_offset(partition, _EARLIEST))

    def _make(self, partitions: int, replication: int, configs: dict[str, str]) -> None:
        try:
            self._brokers.leaders(self.topic)
            return
        except ApiException as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        there = len(self._brokers.nodes())
        if not replication:
            replication = min(_USUAL_REPLICATION, there)
        if replication > there:
            _logger.warning(
                "topic %s gets %d replicas, not %d: there are no more brokers", self.topic, there, replication
            )
            replication = there
        wanted = NewTopic(
            self.topic, partitions, replication, topic_configs={**configs, "cleanup.policy": "compact"}
        )
        result = create_topics(self._brokers, [wanted]).topics[0]
        if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise_for(result.error_code, result.error_message, f"topic {self.topic}")
        self._brokers.leaders(self.topic)

    def _check_policy(self) -> None:
        kind = DescribeConfigsRequest.DescribeConfigsResource
        resource = kind(
            resource_type=_TOPIC_RESOURCE, resource_name=self.topic, configuration_keys=["cleanup.policy"]
        )
        request = DescribeConfigsRequest(resources=[resource])
        response = self._brokers.retrying(
            lambda: self._brokers.ask_on(self._brokers.any(), request, 4), _RETRY_S
        )
        for result in response.results:
            for entry in result.configs:
                if entry.name == "cleanup.policy" and entry.value != "compact":
                    raise ConnectError(
                        f"Topic '{self.topic}' is required to have 'cleanup.policy=compact' to guarantee consistency "
                        f"and durability of connector state, but found the topic currently has "
                        f"'cleanup.policy={entry.value}'. Change it: ottla configs --alter --entity-type topics "
                        f"--entity-name {self.topic} --add-config cleanup.policy=compact"
                    )

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self._parts)

    # -- reading

    def read_to_end(self, *, decided: bool = False) -> None:
        """Applies everything that was written before this call.

        `decided` also waits for the ends of transactions: Apache Kafka answers a commit before its marker is there.
        """

        def ends() -> dict[int, int]:
            return {partition: self._list_offset(partition, _LATEST) for partition in self._parts}

        until = self._brokers.retrying(ends, _RETRY_S)
        deadline = time.monotonic() + _RETRY_S
        while any(self._parts[partition].offset < end for partition, end in until.items()):
            self._brokers.retrying(lambda: self.poll(0, until), _RETRY_S)
            if time.monotonic() > deadline:
                raise ConnectError(f"topic {self.topic} could not be read to its end within {_RETRY_S:.0f} s")
        while decided and any(any(part.pending.values()) for part in self._parts.values()):
            self._brokers.retrying(lambda: self.poll(_DECIDED_MS), _RETRY_S)
            if time.monotonic() > deadline:
                raise ConnectError(f"a transaction of topic {self.topic} did not end within {_RETRY_S:.0f} s")

    def poll(self, wait_ms: int, until: dict[int, int] | None = None) -> None:
        """One fetch from each leader; waits at most `wait_ms` for something new."""
        by_leader: dict[int, list[int]] = {}
        for partition, leader in self._brokers.leaders(self.topic).items():
            part = self._parts.setdefault(partition, _Part())
            if until is None or part.offset < until.get(partition, 0):
                by_leader.setdefault(leader, []).append(partition)
        for leader, partitions in by_leader.items():
            self._fetch(leader, partitions, wait_ms // len(by_leader))

    def _fetch(self, leader: int, partitions: list[int], wait_ms: int) -> None:
        kind = FetchRequest
        wanted = [
            kind.FetchPartition(
                partition=one,
                fetch_offset=self._parts[one].offset,
                partition_max_bytes=_FETCH_BYTES,
                log_start_offset=-1,
            )
            for one in partitions
        ]
        request = kind(
            replica_id=BrokerId(-1),
            max_wait_ms=wait_ms,
            min_bytes=1 if wait_ms else 0,
            max_bytes=_FETCH_BYTES,
            isolation_level=0,
            session_epoch=-1,
            topics=[kind.FetchTopic(topic=self.topic, partitions=wanted)],
        )
        response = self._brokers.ask(request, leader, _FETCH_BY_NAME)
        raise_for(response.error_code, None, f"reading {self.topic}")
        for topic in response.responses:
            for found in topic.partitions:
                raise_for(found.error_code, None, f"reading {self.topic}-{found.partition_index}")
                part = self._parts[found.partition_index]
                self._take(part, bytes(found.records or b""))
                if part.offset >= found.high_watermark:
                    self._decide(part, found.last_stable_offset)

    def _take(self, part: _Part, data: bytes) -> None:
        for at, header in iter_batches(data):
            if header.last_offset < part.offset:
                continue
            self._take_batch(part, data, at, header)
            part.offset = header.last_offset + 1

    def _take_batch(self, part: _Part, data: bytes, at: int, header: BatchHeader) -> None:
        records = iter_records(data, at, header)
        if header.is_control:
            held = part.pending.pop(header.producer_id, [])
            if parse_control_type(next(iter(records)).key) == ControlType.COMMIT:
                for _, key, value in held:
                    self._apply(key, value)
            return
        for record in records:
            if record.key is None:
                continue
            key, value = bytes(record.key), None if record.value is None else bytes(record.value)
            if header.is_transactional:
                part.pending.setdefault(header.producer_id, []).append((record.offset, key, value))
            else:
                self._apply(key, value)

    def _decide(self, part: _Part, stable: int) -> None:
        """A transaction below the last stable offset has ended. The cleaner removes the marker of a commit only."""
        for producer, held in list(part.pending.items()):
            if held and held[-1][0] < stable:
                del part.pending[producer]
                for _, key, value in held:
                    self._apply(key, value)

    def _list_offset(self, partition: int, which: int) -> int:
        kind = ListOffsetsRequest
        wanted = kind.ListOffsetsPartition(partition_index=partition, timestamp=which)
        request = kind(
            replica_id=BrokerId(-1), topics=[kind.ListOffsetsTopic(name=self.topic, partitions=[wanted])]
        )
        leader = self._brokers.leaders(self.topic)[partition]
        found = self._brokers.ask(request, leader, 7).topics[0].partitions[0]
        raise_for(found.error_code, None, f"offsets of {self.topic}-{partition}")
        return found.offset

    def close(self) -> None:
        """Closes all connections."""
        self._brokers.close()


def append(writer: BatchWriter, topic: str, partitions: int, entries: Iterable[Entry]) -> None:
    """Gives entries to a writer, each for the partition of its key."""
    import numpy as np
    import pyarrow as pa

    from ottla.pipeline.columns import encode_sections

    for entry in entries:
        partition = (murmur2(entry.key) & 0x7FFFFFFF) % partitions
        now = np.array([time.time_ns() // 1_000_000], np.int64)
        keys, values = pa.array([entry.key], pa.binary()), pa.array([entry.value], pa.binary())
        writer.add(Place(topic, partition), encode_sections(keys, values, now, None, 1 << 20))
