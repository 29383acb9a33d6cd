"""Transactions on real logs and a virtual clock: producers old and new, read_committed readers, brokers that die."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.api.base import PARKED
from ottla.api.data import fetch, produce
from ottla.api.transactions import add_partitions_to_txn, end_txn, init_producer_id
from ottla.broker.coordinator_log import CoordinatedPartitions
from ottla.broker.markers import LocalMarkerWriter
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.transaction.add_partitions_manager import AddPartitionsToTxnManager
from ottla.coordinator.transaction.marker_manager import MarkersDone, TxnMarker
from ottla.coordinator.transaction.marker_router import TransactionMarkerRouter
from ottla.coordinator.transaction.service import SERDE, TransactionCoordinator
from ottla.errors import ApiException, ErrorCode
from ottla.log.types import TopicPartition
from ottla.metadata.topic_names import TRANSACTIONS_TOPIC
from ottla.peers import BrokerPeers
from ottla.records.batch import iter_batches, iter_records
from ottla.records.control import ControlType, iter_control
from ottla.testing.memfs import MemFs
from ottla.testing.memory_peers import MemoryNetwork
from ottla.wire.codec import decode, encode
from ottla.wire.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FetchRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from unit.replica.replica_scene import NODE, Context, Scene, make_scene

READ_COMMITTED = 1


class UnreliableMarkers:
    """Markers that do not reach some partitions while the test says so."""

    def __init__(self, inner: LocalMarkerWriter) -> None:
        self.inner = inner
        self.unreachable: set[TopicPartition] = set()

    def write(self, marker: TxnMarker, partitions: Iterable[TopicPartition], done: MarkersDone) -> None:
        asked = list(partitions)
        lost = [tp for tp in asked if tp in self.unreachable]

        def written(results: Any) -> None:
            done({**results, **dict.fromkeys(lost, ErrorCode.NOT_LEADER_OR_FOLLOWER)})

        self.inner.write(marker, [tp for tp in asked if tp not in self.unreachable], written)


class TxnScene:
    """A broker with a transaction coordinator. `restart` is a kill -9 and a new start on the same disk."""

    def __init__(self, version: int = 2) -> None:
        self.version = version
        self.topics: list[tuple[str, int, dict[str, str]]] = []
        self._begin(make_scene())
        self.create(TRANSACTIONS_TOPIC, 2, {"cleanup.policy": "compact"})

    def _begin(self, scene: Scene) -> None:
        self.scene = scene
        self.clock = scene.clock
        self.broker = scene.broker
        self.markers = UnreliableMarkers(LocalMarkerWriter(scene.replicas, scene.clock, self._no_groups))
        nobody = BrokerPeers(
            MemoryNetwork(scene.clock).peers(NODE), "transactions", scene.replicas.endpoint_of
        )
        self.coordinator = TransactionCoordinator(
            scene.broker.config,
            scene.clock,
            scene.broker.producer_ids,
            TransactionMarkerRouter(
                NODE, scene.clock, lambda: scene.replicas.image, self.markers, nobody, 30.0
            ),
            AddPartitionsToTxnManager(scene.clock, nobody, 30.0),
            exists=lambda tp: scene.replicas.hosts(tp),
            transaction_version=lambda: self.version,
            make_runtime=lambda new_shard: CoordinatorRuntime(
                topic=TRANSACTIONS_TOPIC,
                clock=scene.clock,
                executor=scene.executor,  # type: ignore[arg-type]
                post=lambda call, *args: call(*args),
                partitions=CoordinatedPartitions(scene.replicas, scene.clock),
                serde=SERDE,
                new_shard=new_shard,
                image=scene.replicas.image,
                linger_ms=0,
            ),
        )
        scene.broker.transactions = self.coordinator
        scene.broker.local_markers = self.markers
        scene.publishers.append(lambda delta, image: self.coordinator.publish(delta, image, NODE))
        self.coordinator.start()

    @staticmethod
    def _no_groups(*marker: Any) -> None:
        raise AssertionError("no offsets are committed here")

    def create(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        self.topics.append((name, partitions, configs or {}))
        self.scene.create_topic(name, partitions, configs)
        self.settle()

    def settle(self) -> None:
        """Let the loop turn until nothing is left to do at this moment."""
        for _ in range(20):
            self.scene.turn()
            if not self.scene.executor.run():
                break

    def advance_ms(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        self.settle()

    def restart(self) -> None:
        old = self.scene
        self.coordinator.shutdown()
        old.replicas.shutdown()
        fs: MemFs = old.fs
        fs._locks.clear()
        scene = make_scene(fs, old.clock)
        scene.broker.producer_ids = old.broker.producer_ids
        self._begin(scene)
        for name, partitions, configs in self.topics:
            scene.create_topic(name, partitions, configs, topic_id=old.topic_ids[name])
        self.settle()

    # -- requests

    def ask(self, api: Any, request: Any, version: int) -> Any:
        """The answer, through the bytes of its version; None while it is not there."""
        ctx = Context(version)
        sent = decode(type(request), version, encode(request, version))
        try:
            answer = api.handle(self.broker, ctx, sent)
        except ApiException as error:
            return api.on_error(ctx, sent, error)
        if answer is PARKED:
            self.settle()
            answer = ctx.response
        return answer

    def init(self, name: str, timeout_ms: int = 60_000) -> Producer | ErrorCode:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        answer = self.ask(init_producer_id.API, request, 5)
        if answer.error_code:
            return ErrorCode(answer.error_code)
        return Producer(self, name, answer.producer_id, answer.producer_epoch)

    def producer(self, name: str, **options: Any) -> Producer:
        """A producer, after whatever it fences is out of the way."""
        for _ in range(3):
            found = self.init(name, **options)
            if isinstance(found, Producer):
                return found
            assert found is ErrorCode.CONCURRENT_TRANSACTIONS, found
            self.advance_ms(100)
        raise AssertionError("no end of concurrent transactions")

    # -- what readers see

    def log(self, topic: str = "t", index: int = 0) -> Any:
        return self.scene.replicas.find((topic, index)).local_log()

    def committed(self, topic: str = "t", index: int = 0, max_bytes: int = 1 << 20) -> list[bytes]:
        """The values that a read_committed consumer gets, from fetch responses alone."""
        values: list[bytes] = []
        position = 0
        while True:
            answer = self._fetch(topic, index, position, max_bytes)
            batches = list(iter_batches(answer.records or b""))
            if not batches:
                return values
            aborted = sorted((txn.first_offset, txn.producer_id) for txn in answer.aborted_transactions or ())
            dropped: set[int] = set()
            for at, header in batches:
                while aborted and aborted[0][0] <= header.last_offset:
                    dropped.add(aborted.pop(0)[1])
                if header.is_control:
                    ((kind, _),) = iter_control(answer.records, at, header)
                    if kind is ControlType.ABORT:
                        dropped.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in dropped):
                    values += [
                        record.value or b""
                        for record in iter_records(answer.records, at, header)
                        if record.offset >= position
                    ]
                position = max(position, header.next_offset)

    def _fetch(self, topic: str, index: int, offset: int, max_bytes: int) -> Any:
        part = FetchRequest.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        request = FetchRequest(
            max_wait_ms=0,
            max_bytes=max_bytes,
            isolation_level=READ_COMMITTED,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])],
        )
        answer = self.ask(fetch.API, request, 11)
        return answer.responses[0].partitions[0]


class Producer:
    """One instance of a transactional producer. `version` 2 leaves adding partitions to the broker."""

    def __init__(self, scene: TxnScene, name: str, producer_id: int, epoch: int) -> None:
        self.scene = scene
        self.name = name
        self.producer_id = producer_id
        self.epoch = epoch
        self._sequences: dict[tuple[str, int], int] = {}

    def add(self, *partitions: tuple[str, int]) -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[index])
                for topic, index in partitions
            ],
        )
        answer = self.scene.ask(add_partitions_to_txn.API, request, 3)
        return [
            ErrorCode(result.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]

    def send(self, *values: bytes, topic: str = "t", index: int = 0, version: int = 12) -> ErrorCode | None:
        """None: the answer is not there yet."""
        sequence = self._sequences.get((topic, index), 0)
        batch = self.scene.scene.batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        part = ProduceRequest.PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=1000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[part])],
        )
        answer = self.scene.ask(produce.API, request, version)
        if answer is None:
            return None
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            self._sequences[topic, index] = sequence + len(values)
        return code

    def end(self, commit: bool, version: int = 5) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = self.scene.ask(end_txn.API, request, version)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE and version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        return code

    def commit(self, **options: Any) -> ErrorCode:
        return self.end(True, **options)

    def abort(self, **options: Any) -> ErrorCode:
        return self.end(False, **options)
