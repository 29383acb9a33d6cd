"""Encoding and decoding where the schema's finer rules decide."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.limits import MAX_UNKNOWN_TAG_BYTES, MAX_UNKNOWN_TAGS
from ottla.wire import (
    DecodeError,
    EncodeError,
    UnsupportedVersionError,
    decode,
    decode_prefix,
    encode,
)
from ottla.wire.classes import WireMessage
from ottla.wire.codec import encode_into
from ottla.wire.headers import read_request_start
from ottla.wire.messages import (
    ApiVersionsRequest,
    ConsumerGroupMemberMetadataValue,
    FetchRequest,
    FetchResponse,
    LeaderAndIsrRequest,
    MetadataRequest,
    ProduceRequest,
)
from ottla.wire.primitives import Buffer, uvarint


def encode_buffers(message: WireMessage, version: int) -> list[Buffer]:
    buffers: list[Buffer] = []
    buffers.append(encode_into(message, version, bytearray(), buffers))
    return buffers


def fetch_response(records: Any) -> FetchResponse:
    partition = FetchResponse.PartitionData(partition_index=1, high_watermark=9, records=records)
    topic = FetchResponse.FetchableTopicResponse(topic_id=bytes(range(16)), partitions=[partition])
    return FetchResponse(responses=[topic])


def test_bytes_written_by_hand():
    data = encode(ApiVersionsRequest(client_software_name="x", client_software_version="1.0"), 3)
    assert data == b"\x02x\x041.0\x00"
    assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"


def test_records_are_views_of_the_frame():
    request = ProduceRequest(
        acks=1,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t", partition_data=[ProduceRequest.PartitionProduceData(index=0, records=b"batch")]
            )
        ],
    )
    frame = bytearray(encode(request, 9))
    records = decode(ProduceRequest, 9, frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview) and records == b"batch"
    frame[frame.index(b"batch")] = ord("B")
    assert records == b"Batch"


def test_large_records_are_not_copied_into_the_answer():
    large = memoryview(bytes(10_000))
    for version in (11, 13):
        message = fetch_response(large)
        if version < 13:
            message.responses[0].topic_id = bytes(16)
        buffers = encode_buffers(message, version)
        assert len(buffers) == 3 and buffers[1] is large
        assert b"".join(buffers) == encode(message, version)


@pytest.mark.parametrize("size", [0, 1, 50, 5000])
def test_records_may_come_in_pieces(size: int):
    pieces = [memoryview(bytes(size)), b"tail", bytearray(b"end")]
    whole = fetch_response(bytes(size) + b"tailend")
    assert encode(fetch_response(pieces), 13) == encode(whole, 13)
    assert b"".join(encode_buffers(fetch_response(pieces), 13)) == encode(whole, 13)


def test_no_records_and_empty_records_differ():
    for version in (11, 12):
        for records in (None, b""):
            message = fetch_response(records)
            message.responses[0].topic_id = bytes(16)
            back = decode(FetchResponse, version, encode(message, version))
            assert back.responses[0].partitions[0].records == records


def test_tags_are_sorted_and_unknown_ones_kept():
    message = FetchRequest(cluster_id="c", unknown_tagged_fields=[(200, b"later"), (7, b"")])  # type: ignore[call-arg]
    message.replica_state = FetchRequest.ReplicaState(replica_id=5, replica_epoch=6)
    data = encode(message, 15)
    assert data.index(b"\x00\x02\x02c") < data.index(b"\x01\x0d") < data.index(b"later")
    back = decode(FetchRequest, 15, data)
    assert back.unknown_tagged_fields == [(7, b""), (200, b"later")]  # type: ignore[attr-defined]
    assert (back.cluster_id, back.replica_state.replica_epoch) == ("c", 6)
    assert encode(back, 15) == data


def test_a_tag_cannot_be_both_known_and_unknown():
    with pytest.raises(EncodeError, match="tag 0"):
        encode(FetchRequest(cluster_id="c", unknown_tagged_fields=[(0, b"")]), 15)  # type: ignore[call-arg]


def test_a_tagged_struct_may_be_null():
    for metadata in (None, ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(session_timeout_ms=3)):
        value = ConsumerGroupMemberMetadataValue(classic_member_metadata=metadata)
        assert decode(ConsumerGroupMemberMetadataValue, 0, encode(value, 0)) == value


def test_a_field_that_the_version_lacks_may_be_set_only_if_it_is_ignorable():
    with pytest.raises(UnsupportedVersionError, match="session_id") as caught:
        encode(FetchResponse(session_id=3), 6)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert encode(FetchRequest(rack_id="r"), 10) == encode(FetchRequest(), 10)
    with pytest.raises(UnsupportedVersionError, match="unknown_tagged_fields"):
        encode(FetchRequest(unknown_tagged_fields=[(9, b"")]), 11)  # type: ignore[call-arg]


@pytest.mark.parametrize("version", [-1, 3, 19])
def test_a_version_that_the_message_lacks(version: int):
    with pytest.raises(UnsupportedVersionError, match="4 to 18"):
        encode(FetchRequest(), version)
    with pytest.raises(DecodeError, match="4 to 18"):
        decode(FetchRequest, version, b"")


def test_a_message_that_was_removed_has_no_version():
    with pytest.raises(UnsupportedVersionError, match="none"):
        decode(LeaderAndIsrRequest, 0, b"")


@pytest.mark.parametrize(
    "message",
    [
        ApiVersionsRequest(client_software_name=None),
        ApiVersionsRequest(client_software_name=b"bytes"),
        ApiVersionsRequest(client_software_name="x" * 40_000),
        ApiVersionsRequest(client_software_name="\ud800"),
    ],
)
def test_a_value_that_does_not_fit_its_field(message: object):
    with pytest.raises(EncodeError):
        encode(message, 3)


def test_numbers_and_lists_that_do_not_fit():
    for bad in (FetchRequest(max_wait_ms=1 << 31), FetchRequest(topics=None), FetchRequest(max_wait_ms="1")):
        with pytest.raises(EncodeError):
            encode(bad, 12)
    with pytest.raises(EncodeError, match="16 bytes"):
        encode(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(topic_id=b"short")]), 12)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "not a valid ApiVersionsRequest"),
        (b"\x02x\x02y\x00more", "4 bytes follow"),
        (b"\x00\x02y\x00", "null"),
        (b"\x7fx\x02y\x00", "announces"),
        (b"\x03\xff\xfe\x02y\x00", "utf-8"),
        (b"\xff\xff\xff\xff\x7f", "32 bits"),
        (b"\xff\xff\xff\xff\xff\xff", "five bytes"),
        (b"\xff\xff\xff\xff\x0f", "longer than"),
        (b"\x02x\x02y\x01", "announces"),
        (b"\x02x\x02y\x01\x05\x7f", "tag 5"),
        (b"\x02x\x02y\xff\xff\xff\xff\x0f", "out of range"),
    ],
)
def test_bad_bytes_say_what_is_wrong(data: bytes, complaint: str):
    with pytest.raises(DecodeError, match=complaint) as caught:
        decode(ApiVersionsRequest, 3, data)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_count_is_checked_before_anything_is_made_of_it():
    with pytest.raises(DecodeError, match="topics"):
        decode(MetadataRequest, 1, b"\x7f\xff\xff\xff" + bytes(20))
    with pytest.raises(DecodeError, match="topics"):
        decode(MetadataRequest, 9, b"\xff\xff\xff\xff\x07" + bytes(20))


def test_a_known_tag_must_fill_its_size():
    data = bytearray(encode(FetchRequest(cluster_id="c"), 12))
    at = data.index(b"\x00\x02\x02c")
    data[at + 1] = 3
    with pytest.raises(DecodeError, match="cluster_id"):
        decode(FetchRequest, 12, bytes(data) + b"x")


def test_a_message_inside_a_larger_buffer():
    data = encode(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    for buf in (b"<<" + data + b">>", memoryview(bytearray(b"<<" + data + b">>"))):
        message, end = decode_prefix(ApiVersionsRequest, 3, buf, 2)
        assert (message.client_software_name, end) == ("x", 2 + len(data))


def unknown_tags(count: int, data: bytes = b"") -> bytes:
    one = uvarint(9) + uvarint(len(data)) + data
    return uvarint(count) + one * count


@pytest.mark.parametrize("count", [MAX_UNKNOWN_TAGS + 1, 1 << 20])
def test_too_many_unknown_tags_are_refused_before_any_is_read(count: int):
    with pytest.raises(DecodeError, match=f"announces {count} tagged fields"):
        decode(ApiVersionsRequest, 3, b"\x02x\x02y" + unknown_tags(count))


def test_known_tags_do_not_count_as_unknown_ones():
    tags = [(tag, b"") for tag in range(10, 10 + MAX_UNKNOWN_TAGS)]
    message = FetchRequest(cluster_id="c", unknown_tagged_fields=tags)  # type: ignore[call-arg]
    assert decode(FetchRequest, 15, encode(message, 15)) == message


@pytest.mark.parametrize(("count", "size"), [(1, MAX_UNKNOWN_TAG_BYTES + 1), (4, MAX_UNKNOWN_TAG_BYTES // 3)])
def test_unknown_tags_with_too_many_bytes_are_refused(count: int, size: int):
    with pytest.raises(DecodeError, match="bytes of unknown tagged fields"):
        decode(ApiVersionsRequest, 3, b"\x02x\x02y" + unknown_tags(count, bytes(size)))


def test_a_hostile_header_costs_neither_time_nor_memory():
    """52 million tags in a header of 100 MB took 1.7 s and 400 MB until they were refused."""
    count = 8 << 20
    start = bytes.fromhex("0012 0003 00000001 ffff") + uvarint(count)
    frame = memoryview(start + b"\x09\x00" * count)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="tagged fields"):
            read_request_start(frame)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
