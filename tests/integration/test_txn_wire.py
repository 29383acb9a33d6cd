"""Transactions on the wire: what clients of transaction version 2 and other brokers ask, and what admins see."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.errors import ErrorCode
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

NOT_YET = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
LATEST = -1


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.host, broker.port) as client:
        yield client


def until(ask: Callable[[], Any], code_of: Callable[[Any], int]) -> Any:
    """Ask again while the broker says that it is not ready yet, as every client does."""
    deadline = time.monotonic() + 60
    while True:
        answer = ask()
        if code_of(answer) not in NOT_YET or time.monotonic() > deadline:
            return answer


def create(broker: BrokerProcess, client: RawClient, topic: str, group: str = "") -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result()
    for key_type, key in ((1, topic), *(((0, group),) if group else ())):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        until(
            lambda request=request: client.ask(request, 4), lambda answer: answer.coordinators[0].error_code
        )


class Txn:
    """A transactional producer of version 2, word by word."""

    def __init__(self, client: RawClient, name: str) -> None:
        self.client = client
        self.name = name
        self.sequences: dict[int, Iterator[int]] = {}
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        answer = until(lambda: client.ask(request, 5), lambda answer: answer.error_code)
        assert answer.error_code == 0
        self.producer = (answer.producer_id, answer.producer_epoch)

    def send(self, topic: str, index: int, value: bytes, version: int = 12) -> ErrorCode:
        sequence = next(self.sequences.setdefault(index, itertools.count()))
        batch = build_batch(
            [Record(0, 1_700_000_000_000, None, value)],
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        data = ProduceRequest.PartitionProduceData(index=index, records=batch)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = until(
            lambda: self.client.ask(request, version),
            lambda answer: answer.responses[0].partition_responses[0].error_code,
        )
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def end(self, commit: bool, version: int = 5) -> Any:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=commit,
        )
        answer = self.client.ask(request, version)
        if not answer.error_code and version >= 5:
            self.producer = (answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        return answer

    def offsets(self, group: str, topic: str, offset: int, version: int = 5) -> ErrorCode:
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )

        def code_of(answer: Any) -> int:
            code: int = answer.topics[0].partitions[0].error_code
            return code

        return ErrorCode(code_of(until(lambda: self.client.ask(request, version), code_of)))


def end_offset(client: RawClient, topic: str, isolation: int) -> int:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])],
    )
    offset: int = client.ask(request, 7).topics[0].partitions[0].offset
    return offset


def describe(client: RawClient, name: str) -> Any:
    return client.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states[0]


def test_version_two_needs_no_partitions_added(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    create(broker, client, topic)
    txn = Txn(client, topic)
    producer_id, epoch = txn.producer
    assert txn.send(topic, 0, b"a") is ErrorCode.NONE
    assert (end_offset(client, topic, 0), end_offset(client, topic, 1)) == (1, 0)
    answer = txn.end(True)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, producer_id, epoch + 1)
    assert (end_offset(client, topic, 0), end_offset(client, topic, 1)) == (2, 2)
    assert txn.send(topic, 0, b"b") is ErrorCode.NONE
    txn.producer = (producer_id, epoch)
    assert txn.end(True).error_code == ErrorCode.PRODUCER_FENCED, "there is a new transaction by now"
    assert txn.send(topic, 1, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_answer_that_was_lost_is_given_again(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    create(broker, client, topic)
    txn = Txn(client, topic)
    producer_id, epoch = txn.producer
    txn.send(topic, 0, b"a")
    txn.end(True)
    txn.producer = (producer_id, epoch)
    answer = txn.end(True)
    assert (answer.error_code, answer.producer_epoch) == (0, epoch + 1)
    txn.producer = (producer_id, epoch)
    assert txn.end(False).error_code == ErrorCode.INVALID_TXN_STATE


def test_offsets_of_version_two(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    create(broker, client, topic, group=topic)
    txn = Txn(client, topic)

    def fetch(*, stable: bool) -> Any:
        wanted = OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=topic, topics=[wanted])
        answer = client.ask(OffsetFetchRequest(groups=[group], require_stable=stable), 8)
        return answer.groups[0].topics[0].partitions[0]

    assert txn.offsets(topic, topic, 5) is ErrorCode.NONE
    assert describe(client, topic).topics[0].topic == "__consumer_offsets"
    assert fetch(stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert fetch(stable=False).committed_offset == -1
    txn.end(True)
    assert (fetch(stable=True).error_code, fetch(stable=True).committed_offset) == (0, 5)
    assert txn.offsets(topic, topic, 9) is ErrorCode.NONE
    txn.end(False)
    assert fetch(stable=True).committed_offset == 5


def test_older_clients_add_the_group_first(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    create(broker, client, topic, group=topic)
    txn = Txn(client, topic)
    assert txn.offsets(topic, topic, 5, version=3) is ErrorCode.INVALID_TXN_STATE
    assert txn.offsets(topic, topic, 5, version=4) is ErrorCode.TRANSACTION_ABORTABLE
    assert txn.offsets(topic, "nowhere", 5, version=3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = AddOffsetsToTxnRequest(
        transactional_id=topic, producer_id=txn.producer[0], producer_epoch=txn.producer[1], group_id=topic
    )
    assert client.ask(request, 3).error_code == 0
    assert txn.offsets(topic, topic, 5, version=3) is ErrorCode.NONE
    request.producer_epoch += 1
    assert client.ask(request, 2).error_code == ErrorCode.PRODUCER_FENCED
    assert client.ask(request, 1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert txn.offsets("", topic, 5, version=3) is ErrorCode.INVALID_GROUP_ID
    assert txn.end(True, version=3).error_code == 0


def test_what_other_brokers_ask(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    create(broker, client, topic)
    txn = Txn(client, topic)

    def ask(*partitions: int, verify: bool, name: str = topic) -> list[int]:
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                    transactional_id=name,
                    producer_id=txn.producer[0],
                    producer_epoch=txn.producer[1],
                    verify_only=verify,
                    topics=[
                        AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=partitions)
                    ],
                )
            ]
        )
        answer = client.ask(request, 5)
        assert answer.error_code == 0
        (result,) = answer.results_by_transaction
        assert result.transactional_id == name
        return [each.partition_error_code for each in result.topic_results[0].results_by_partition]

    assert ask(0, verify=True) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert ask(0, verify=False) == [0]
    assert ask(0, 1, verify=True) == [0, ErrorCode.TRANSACTION_ABORTABLE]
    assert ask(0, 5, verify=False) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert ask(0, verify=True, name="nobody") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert ask(0, verify=False, name="") == [ErrorCode.INVALID_REQUEST]
    assert client.ask(AddPartitionsToTxnRequest(), 5).results_by_transaction == []


def test_admins_see_open_transactions_and_can_abort_them(
    broker: BrokerProcess, client: RawClient, topic: str
) -> None:
    create(broker, client, topic)
    txn = Txn(client, topic)
    state = describe(client, topic)
    assert (state.transaction_state, state.transaction_start_time_ms, state.topics) == ("Empty", -1, [])
    txn.send(topic, 0, b"a")
    state = describe(client, topic)
    assert state.transaction_state == "Ongoing"
    assert (state.producer_id, state.producer_epoch) == txn.producer
    assert [(each.topic, each.partitions) for each in state.topics] == [(topic, [0])]
    assert describe(client, "nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert describe(client, "").error_code == ErrorCode.INVALID_REQUEST

    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])

    def producers() -> Any:
        return (
            client.ask(DescribeProducersRequest(topics=[wanted]), 0).topics[0].partitions[0].active_producers
        )

    (producer,) = producers()
    assert (producer.producer_id, producer.producer_epoch) == txn.producer
    assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (0, -1)

    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=-1,
        transaction_result=False,
        topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[0, 9])],
    )
    answer = client.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    codes = {each.partition_index: each.error_code for each in answer.markers[0].topics[0].partitions}
    assert codes == {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert producers()[0].current_txn_start_offset == -1
    assert end_offset(client, topic, 1) == 2


def test_lists(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    create(broker, client, topic)
    Txn(client, topic + "-idle")
    busy = Txn(client, topic)
    busy.send(topic, 0, b"a")

    def names(version: int = 2, **filters: Any) -> set[str]:
        answer = client.ask(ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return {state.transactional_id for state in answer.transaction_states}

    assert {topic, topic + "-idle"} <= names(0)
    assert topic in names(state_filters=["Ongoing"]) and topic + "-idle" not in names(
        state_filters=["Ongoing"]
    )
    assert names(producer_id_filters=[busy.producer[0]]) == {topic}
    assert topic not in names(1, duration_filter=60_000)
    assert names(transactional_id_pattern=f"{topic}-i.*") == {topic + "-idle"}
    bad = client.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert client.ask(ListTransactionsRequest(state_filters=["Asleep"]), 0).unknown_state_filters == [
        "Asleep"
    ]


@pytest.mark.parametrize(
    ("options", "version", "code"),
    [
        ({"transactional_id": ""}, 5, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, 5, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, 5, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 1}, 5, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 987_654, "producer_epoch": 3}, 4, ErrorCode.PRODUCER_FENCED),
        ({"producer_id": 987_654, "producer_epoch": 3}, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_bad_beginnings(
    broker: BrokerProcess,
    client: RawClient,
    topic: str,
    options: dict[str, Any],
    version: int,
    code: ErrorCode,
) -> None:
    create(broker, client, topic)
    Txn(client, topic)
    request = InitProducerIdRequest(**{"transactional_id": topic, "transaction_timeout_ms": 1000, **options})
    assert client.ask(request, version).error_code == code


def test_bad_ends(broker: BrokerProcess, client: RawClient, topic: str) -> None:
    create(broker, client, topic)
    txn = Txn(client, topic)
    producer_id, epoch = txn.producer

    def end(producer_id: int, epoch: int, version: int, name: str = topic) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True
        )
        return ErrorCode(client.ask(request, version).error_code)

    assert end(producer_id, epoch, 3) is ErrorCode.INVALID_TXN_STATE
    assert end(producer_id, epoch, 5) is ErrorCode.INVALID_TXN_STATE
    assert end(producer_id + 1, epoch, 3) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end(producer_id, epoch + 1, 2) is ErrorCode.PRODUCER_FENCED
    assert end(producer_id, epoch + 1, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(producer_id, epoch, 5, "nobody") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end(producer_id, epoch, 5, "") is ErrorCode.INVALID_REQUEST
