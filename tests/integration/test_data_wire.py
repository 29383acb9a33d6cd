"""Produce, Fetch and ListOffsets in every version, as bytes on a socket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.records.batch import build_batch, iter_batches, iter_records
from ottla.records.codecs import Compression
from ottla.records.record import Record
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.wire.apis import API_VERSIONS, ApiKey
from ottla.wire.messages import (
    CreateTopicsRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)

NO_ID = bytes(16)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.host, broker.port) as client:
        yield client


def versions(key: int) -> range:
    known = API_VERSIONS[key]
    return range(known.min_version, known.max_version + 1)


def create(client: RawClient, topic: str, partitions: int = 1, **configs: str) -> bytes:
    """Make a topic; its id."""
    request = CreateTopicsRequest(
        timeout_ms=10_000,
        topics=[
            CreateTopicsRequest.CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=name.replace("_", "."), value=value)
                    for name, value in configs.items()
                ],
            )
        ],
    )
    (created,) = client.ask(request, 7).topics
    assert created.error_code == 0, created
    found: bytes = created.topic_id
    return found


def batch(*values: bytes, compression: Compression = Compression.NONE, key: bytes | None = None) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    records = [Record(at, now_ms, key, value, ()) for at, value in enumerate(values)]
    return build_batch(records, base_offset=0, compression=compression)


def produce_request(topic: str, topic_id: bytes, records: bytes, *, acks: int = -1, index: int = 0) -> Any:
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[ProduceRequest.PartitionProduceData(index=index, records=records)],
            )
        ],
    )


def fetch_request(topic: str, topic_id: bytes, *offsets: int, **options: Any) -> Any:
    """Fetch partitions 0, 1, ... from the given offsets."""
    options = {"max_wait_ms": 5000, "min_bytes": 1, "session_epoch": -1, **options}
    return FetchRequest(
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                    for index, offset in enumerate(offsets)
                ],
            )
        ],
        **options,
    )


def partitions(response: Any) -> list[Any]:
    assert response.error_code == 0
    return [part for topic in response.responses for part in topic.partitions]


def values(records: Any) -> list[bytes]:
    return [
        record.value
        for position, header in iter_batches(records)
        for record in iter_records(records[position : position + header.size_in_bytes])
    ]


@pytest.mark.parametrize("version", versions(ApiKey.PRODUCE))
def test_produce_in_every_version(client, topic, version):
    topic_id = create(client, topic)
    for offset in range(2):
        response = client.ask(produce_request(topic, topic_id, batch(b"a%d" % offset)), version)
        (answered,) = response.responses
        assert answered.topic_id == topic_id if version >= 13 else answered.name == topic
        (part,) = answered.partition_responses
        assert (part.error_code, part.base_offset, part.log_append_time_ms) == (0, offset, -1)
        assert part.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("version", versions(ApiKey.FETCH))
def test_fetch_in_every_version(client, topic, version):
    topic_id = create(client, topic)
    client.ask(produce_request(topic, topic_id, batch(b"a", b"b")), 12)
    client.ask(produce_request(topic, topic_id, batch(b"c")), 12)
    response = client.ask(fetch_request(topic, topic_id, 1), version)
    assert response.session_id == 0
    (answered,) = response.responses
    assert answered.topic_id == topic_id if version >= 13 else answered.topic == topic
    (part,) = answered.partitions
    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 3, 3)
    assert values(part.records) == [b"a", b"b", b"c"], "the batch that holds the offset comes whole"
    assert part.aborted_transactions is None


@pytest.mark.parametrize("version", versions(ApiKey.LIST_OFFSETS))
def test_list_offsets_in_every_version(client, topic, version):
    topic_id = create(client, topic)
    client.ask(produce_request(topic, topic_id, batch(b"a", b"b")), 12)
    part = ListOffsetsRequest.ListOffsetsPartition

    def offset_of(timestamp: int) -> tuple[int, int]:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name=topic, partitions=[part(partition_index=0, timestamp=timestamp)]
                )
            ],
        )
        (answer,) = client.ask(request, version).topics[0].partitions
        return answer.error_code, answer.offset

    assert [offset_of(timestamp) for timestamp in (-1, -2, 0)] == [(0, 2), (0, 0), (0, 0)]
    assert offset_of(-3) == ((0, 0) if version >= 7 else (ErrorCode.UNSUPPORTED_VERSION, -1))


def test_requests_after_a_long_poll_are_handled_while_it_waits(client, topic):
    topic_id = create(client, topic)
    waiting = client.send(fetch_request(topic, topic_id, 0), 17)
    produced = client.send(produce_request(topic, topic_id, batch(b"a")), 12)
    first, response = client.receive_with_id()
    assert first == waiting, "answers come in the order of the requests"
    assert values(partitions(response)[0].records) == [b"a"]
    assert client.receive_with_id()[0] == produced


def test_a_long_poll_ends_after_its_time(client, topic):
    topic_id = create(client, topic)
    before = time.monotonic()
    (part,) = partitions(client.ask(fetch_request(topic, topic_id, 0, max_wait_ms=300), 17))
    assert 0.29 <= time.monotonic() - before < 25, "its own time, not the connection's"
    assert not part.records


def test_an_incremental_session(client, topic):
    topic_id = create(client, topic, 3)
    options = {"max_wait_ms": 0}
    opened = client.ask(fetch_request(topic, topic_id, 0, 0, 0, session_epoch=0, **options), 17)
    assert opened.session_id > 0
    assert len(partitions(opened)) == 3

    def next_fetch(epoch: int, *offsets: int, **more: Any) -> Any:
        request = fetch_request(
            topic, topic_id, *offsets, session_id=opened.session_id, session_epoch=epoch, **options
        )
        if not offsets:
            request.topics = []
        for name, value in more.items():
            setattr(request, name, value)
        return client.ask(request, 17)

    assert partitions(next_fetch(1)) == []
    client.ask(produce_request(topic, topic_id, batch(b"a"), index=1), 12)
    (part,) = partitions(next_fetch(2))
    assert (part.partition_index, values(part.records)) == (1, [b"a"])
    forgotten = [FetchRequest.ForgottenTopic(topic_id=topic_id, partitions=[1])]
    assert partitions(next_fetch(3, forgotten_topics_data=forgotten)) == []
    assert next_fetch(3).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (
        client.ask(
            fetch_request(topic, topic_id, session_id=opened.session_id, session_epoch=4), 12
        ).error_code
        == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    )
    closed = next_fetch(-1, 0)
    assert closed.session_id == 0
    assert next_fetch(4).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_acks_zero_is_not_answered(client, topic):
    topic_id = create(client, topic)
    client.send(produce_request(topic, topic_id, batch(b"a"), acks=0), 12, expects_answer=False)
    (part,) = partitions_after(client, fetch_request(topic, topic_id, 0))
    assert values(part.records) == [b"a"]


def partitions_after(client: RawClient, request: Any) -> list[Any]:
    sent = client.send(request, 17)
    correlation_id, response = client.receive_with_id()
    assert correlation_id == sent, "the request before was answered"
    return partitions(response)


def test_an_error_with_acks_zero_closes_the_connection(client, topic):
    topic_id = create(client, topic)
    client.send(produce_request(topic, topic_id, batch(b"a"), acks=0, index=99), 12, expects_answer=False)
    with pytest.raises(ConnectionError):
        client.receive()


def test_a_produce_version_that_is_only_advertised_closes_the_connection(broker):
    with RawClient(broker.host, broker.port) as client:
        client.socket.sendall(
            bytes.fromhex("0000000e 0000 0002 00000001 ffff 0001 00000000".replace(" ", ""))
        )
        with pytest.raises(ConnectionError):
            client.receive()


def test_a_record_can_be_sent_as_soon_as_its_topic_is_created(client, topic):
    topic_id = create(client, topic, 100)
    for index in (99, 0, 50):
        response = client.ask(produce_request(topic, topic_id, batch(b"a"), index=index), 13)
        assert response.responses[0].partition_responses[0].error_code == 0


def test_bad_batches_get_kafkas_errors(client, topic):
    topic_id = create(client, topic, max_message_bytes="1000")

    def outcome(records: bytes) -> tuple[int, str | None]:
        response = client.ask(produce_request(topic, topic_id, records), 12)
        part = response.responses[0].partition_responses[0]
        return part.error_code, part.error_message

    flipped = bytearray(batch(b"a"))
    flipped[-1] ^= 1
    old_magic = bytearray(batch(b"a"))
    old_magic[16] = 1
    for records, code in [
        (bytes(flipped), ErrorCode.CORRUPT_MESSAGE),
        (bytes(old_magic), ErrorCode.INVALID_RECORD),
        (batch(b"x" * 2000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
    ]:
        found, message = outcome(records)
        assert found == code
        assert message
    assert outcome(batch(b"fine"))[0] == 0


def test_batches_are_encoded_anew_where_the_topic_asks_for_another_codec(client, topic):
    topic_id = create(client, topic, compression_type="zstd")
    sent = []
    for number in range(20):
        codec = list(Compression)[number % 5]
        value = b"%d" % number * 300
        sent.append(value)
        client.send(produce_request(topic, topic_id, batch(value, compression=codec)), 12)
    answers = [client.receive().responses[0].partition_responses[0] for _ in range(20)]
    assert [(part.error_code, part.base_offset) for part in answers] == [(0, offset) for offset in range(20)]
    (part,) = partitions(client.ask(fetch_request(topic, topic_id, 0), 17))
    assert values(part.records) == sent
    assert {header.compression for _, header in iter_batches(part.records)} == {Compression.ZSTD}


def test_a_topic_id_that_nobody_has(client, topic):
    create(client, topic)
    unknown = bytes(range(16))
    response = client.ask(produce_request(topic, unknown, batch(b"a")), 13)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (part,) = partitions(client.ask(fetch_request(topic, unknown, 0), 17))
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_deleting_a_topic_wakes_the_fetches_that_wait_for_it(client, broker, topic):
    from ottla.wire.messages import DeleteTopicsRequest

    topic_id = create(client, topic)
    client.send(fetch_request(topic, topic_id, 0, max_wait_ms=30_000), 17)
    with RawClient(broker.host, broker.port) as other:
        other.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
    (part,) = partitions(client.receive())
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_metadata_names_this_broker_as_leader(client, topic):
    create(client, topic, 2)
    response = client.ask(
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic, topic_id=NO_ID)]), 12
    )
    (found,) = response.topics
    assert [part.leader_id for part in found.partitions] == [response.brokers[0].node_id] * 2
