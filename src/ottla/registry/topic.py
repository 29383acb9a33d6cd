"""The partition `_schemas`-0 over the wire: create, fetch and produce, in blocking calls for threads.

Writers share a transactional id. Each new leader takes its next epoch, so that brokers refuse a leader before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ottla.admin.cluster import Cluster
from ottla.admin.configs import describe_configs
from ottla.admin.errors import raise_for
from ottla.admin.retries import Backoff
from ottla.admin.topics import NewTopic, create_topics
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId, TopicName, TransactionalId
from ottla.records.batch import build_batch, check_crc, iter_batches, iter_records
from ottla.records.record import Record
from ottla.registry.records import Pair
from ottla.wire.enums import ConfigResourceType, CoordinatorType
from ottla.wire.messages import FetchRequest, InitProducerIdRequest, ListOffsetsRequest, ProduceRequest

T = TypeVar("T")

_FETCH_BYTES: Final = 4 << 20
_FETCH_BY_NAME: Final = 12
_PRODUCE_BY_NAME: Final = 12
_NO_REPLICA: Final = BrokerId(-1)
_EARLIEST: Final = -2
_REPLICAS_TIMEOUT_MS: Final = 10_000
_FENCE_TIMEOUT_MS: Final = 60_000
_FENCED: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
_FATAL: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors after which the record is known not to be in the log, and no repetition helps."""


class WriteAborted(Exception):
    """The writer stops before the fate of a write is known: it may still be in the log."""


class Fenced(Exception):
    """Another registry has taken the topic over. What was to be written has to be decided again."""


def ensure_topic(cluster: Cluster, topic: str, replication_factor: int) -> None:
    """Create the topic with one compacted partition if it is missing; refuse one that would lose schemas."""
    found = cluster.metadata([topic]).topics[0]
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        factor = min(replication_factor, len(cluster.nodes()))
        wanted = NewTopic(topic, 1, factor, topic_configs={"cleanup.policy": "compact"})
        result = create_topics(cluster, [wanted]).topics[0]
        if result.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise_for(result.error_code, result.error_message, f"creating the topic {topic}")
        return
    raise_for(found.error_code, None, f"the topic {topic}")
    if len(found.partitions) != 1:
        raise ApiException(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic {topic} has {len(found.partitions)} partitions, and a registry needs exactly one; name another"
            " topic with --topic",
        )
    resource = (ConfigResourceType.TOPIC, topic)
    for entry in describe_configs(cluster, [resource])[resource]:
        if entry.name == "cleanup.policy" and entry.value != "compact":
            raise ApiException(
                ErrorCode.POLICY_VIOLATION,
                f"the topic {topic} has cleanup.policy={entry.value}, which deletes schemas;"
                " set it to compact",
            )


class SchemasPartition:
    """Reads or writes the one partition. Each thread has its own. Writers share a `fence_id`."""

    def __init__(self, cluster: Cluster, topic: str, fence_id: str = "") -> None:
        self.cluster = cluster
        self.topic = TopicName(topic)
        self.fence_id = TransactionalId(fence_id)
        self._producer = (-1, -1)
        self._sequence = 0

    def first_offset(self) -> int:
        part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=_EARLIEST)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=self.topic, partitions=[part])
        request = ListOffsetsRequest(replica_id=_NO_REPLICA, topics=[topic])
        response = self.cluster.ask_on(self.cluster.leader(self.topic, 0), request, 7)
        found = response.topics[0].partitions[0]
        raise_for(found.error_code, None, f"the first offset of {self.topic}")
        return found.offset

    def fetch(self, offset: int, max_wait_ms: int) -> tuple[list[Record], int, int]:
        """Records from an offset, the offset after them, and the high watermark."""
        part = FetchRequest.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES, log_start_offset=-1
        )
        request = FetchRequest(
            replica_id=_NO_REPLICA,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=0,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=self.topic, partitions=[part])],
        )
        response = self.cluster.ask_on(self.cluster.leader(self.topic, 0), request, _FETCH_BY_NAME)
        raise_for(response.error_code, None, f"reading {self.topic}")
        found = response.responses[0].partitions[0]
        raise_for(found.error_code, None, f"reading {self.topic}")
        data = bytes(found.records or b"")
        records: list[Record] = []
        for at, header in iter_batches(data):
            if header.last_offset < offset:
                continue
            if not check_crc(data, at, header):
                raise ApiException(
                    ErrorCode.CORRUPT_MESSAGE, f"{self.topic}: the batch at {header.base_offset} is damaged"
                )
            if not header.is_control:
                records += [one for one in iter_records(data, at, header) if one.offset >= offset]
            offset = header.last_offset + 1
        return records, offset, found.high_watermark

    def fence(self, may_continue: Callable[[], bool]) -> None:
        """Take the next epoch of the transactional id.

        From the first record of this epoch on the brokers refuse the records of all earlier ones.
        """
        request = InitProducerIdRequest(
            transactional_id=self.fence_id, transaction_timeout_ms=_FENCE_TIMEOUT_MS
        )

        def ask() -> None:
            connection = self.cluster.coordinator_connection(self.fence_id, CoordinatorType.TRANSACTION)
            granted = self.cluster.ask_on(connection, request, 5)
            raise_for(granted.error_code, None, f"the epoch of the transactional id {self.fence_id}")
            self._producer, self._sequence = (granted.producer_id, granted.producer_epoch), 0

        self._until_known(ask, may_continue)

    def produce(self, pairs: Sequence[Pair], may_continue: Callable[[], bool]) -> int:
        """Write records as one batch; the offset of the first. Repeats until the fate of the batch is known.

        Raises Fenced where another registry has taken the topic over.
        """
        now = int(time.time() * 1000)
        # Plain records of an idempotent producer: readers see what Confluent's registry writes.
        batch = build_batch(
            [Record(number, now, key, value) for number, (key, value) in enumerate(pairs)],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._sequence,
        )
        base = self._until_known(lambda: self._produce(batch), may_continue)
        self._sequence += len(pairs)
        return base

    def _until_known(self, attempt: Callable[[], T], may_continue: Callable[[], bool]) -> T:
        backoff = Backoff(0.05, 1.0)
        while True:
            if not may_continue():
                raise WriteAborted(
                    f"the registry is not the leader any more; {self.topic} may hold the record"
                )
            try:
                return attempt()
            except ApiException as error:
                if error.code in _FATAL:
                    raise
                if error.code in _FENCED:
                    raise Fenced(str(error)) from None
                self.cluster.forget_locations()
            time.sleep(backoff.next_s())

    def _produce(self, batch: bytes) -> int:
        part = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = ProduceRequest.TopicProduceData(name=self.topic, partition_data=[part])
        request = ProduceRequest(acks=-1, timeout_ms=_REPLICAS_TIMEOUT_MS, topic_data=[topic])
        response = self.cluster.ask_on(self.cluster.leader(self.topic, 0), request, _PRODUCE_BY_NAME)
        found = response.responses[0].partition_responses[0]
        raise_for(found.error_code, found.error_message, f"writing {self.topic}")
        return found.base_offset
