"""A transactional producer that speaks the protocol itself (KIP-890's, where batches add their partitions).

It looks up leaders and coordinators again after a refusal or a lost connection, and gives up only on fatal errors.
librdkafka is no help here: it goes on asking a group coordinator that has left the metadata.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from ottla.errors import ErrorCode
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.cluster import Cluster
from ottla.testing.raw_client import RawClient
from ottla.wire import messages

GROUP, TRANSACTION = 0, 1
PATIENCE_S = 120.0

_FINE = {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}

Codes = Callable[[Any], Iterable[int]]


class Abortable(Exception):
    """The transaction has to be aborted; the next one may do better."""


def coordinator(cluster: Cluster, key: str, kind: int) -> int | None:
    """The broker that coordinates a group or a transactional id."""
    request = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    answer = cluster.ask(request, 4).coordinators[0]
    return None if answer.error_code else answer.node_id


class RawProducer:
    """One transactional id, one transaction at a time."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._clients: dict[int, RawClient] = {}
        answer = self._ask(
            lambda: coordinator(cluster, name, TRANSACTION),
            messages.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000),
            5,
            lambda answer: [answer.error_code],
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences: dict[tuple[str, int], int] = {}

    def send(self, topic: str, partition: int, values: list[bytes]) -> None:
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = sequence + len(values)
        now_ms = int(time.time() * 1000)
        batch = build_batch(
            [Record(index, now_ms, None, value) for index, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = messages.ProduceRequest
        data = request.PartitionProduceData(index=partition, records=batch)
        self._ask(
            lambda: self._cluster.leader_of(topic, partition),
            request(
                transactional_id=self._name,
                acks=-1,
                timeout_ms=5000,
                topic_data=[request.TopicProduceData(name=topic, partition_data=[data])],
            ),
            12,
            lambda answer: [answer.responses[0].partition_responses[0].error_code],
        )

    def commit_offsets(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        request = messages.TxnOffsetCommitRequest
        partitions = [
            request.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            for index, offset in offsets.items()
        ]
        self._ask(
            lambda: coordinator(self._cluster, group, GROUP),
            request(
                transactional_id=self._name,
                group_id=group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                topics=[request.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
            ),
            5,
            lambda answer: [part.error_code for each in answer.topics for part in each.partitions],
        )

    def end(self, *, commit: bool) -> None:
        answer = self._ask(
            lambda: coordinator(self._cluster, self._name, TRANSACTION),
            messages.EndTxnRequest(
                transactional_id=self._name,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            5,
            lambda answer: [answer.error_code],
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _ask(self, find: Callable[[], int | None], request: Any, version: int, codes: Codes) -> Any:
        def attempt() -> Any | None:
            node_id = find()
            if node_id is None:
                return None
            try:
                answer = self._client(node_id).ask(request, version)
            except OSError:
                self._clients.clear()
                raise
            bad = {ErrorCode(code) for code in codes(answer)} - _FINE
            if not all(code.retriable for code in bad):
                raise Abortable(f"{type(request).__name__}: {bad}")
            return None if bad else answer

        return self._cluster.wait_for(attempt, PATIENCE_S)

    def _client(self, node_id: int) -> RawClient:
        client = self._clients.get(node_id)
        if client is None:
            host, port = self._cluster.plans[node_id].address
            client = self._clients[node_id] = RawClient(host, port)
        return client
