from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire import DecodeError, FrameTooLargeError, decode, messages
from ottla.wire.apis import ApiKey
from ottla.wire.frames import FrameDecoder
from ottla.wire.headers import (
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
    read_request_start,
    request_header_version,
    response_header_version,
)


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.API_VERSIONS, 99, 2, 0),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.DESCRIBE_CLUSTER, 0, 2, 1),
    ],
)
def test_header_versions_follow_from_the_api(
    key: int, version: int, request_header: int, response_header: int
):
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


@pytest.mark.parametrize("version", [8, 9])
def test_a_request_with_its_header(version: int):
    request = messages.MetadataRequest(topics=[messages.MetadataRequest.MetadataRequestTopic(name="t")])
    whole = b"".join(encode_request(42, "me", request, version))
    (payload,) = FrameDecoder(1000).feed(whole)
    header, offset = decode_request_header(payload)
    assert (header.request_api_key, header.request_api_version) == (ApiKey.METADATA, version)
    assert (header.correlation_id, header.client_id) == (42, "me")
    assert decode(messages.MetadataRequest, version, payload[offset:]) == request


@given(
    key=st.sampled_from([0, 1, 3, 8, 18, 26, 77, -1]),
    version=st.integers(-1, 15),
    rest=st.one_of(
        st.binary(max_size=40),
        st.builds(
            lambda client_id, end: (
                bytes(4)
                + (b"\xff\xff" if client_id is None else len(client_id).to_bytes(2, "big") + client_id)
                + end
            ),
            st.one_of(st.none(), st.binary(max_size=10), st.text(max_size=5).map(str.encode)),
            st.sampled_from([b"", b"\0", b"\0\0\0", b"\1\5\2ab", b"\1\5\x09ab", b"\xff"]),
        ),
    ),
)
def test_the_short_way_to_a_header_leads_to_the_same(key: int, version: int, rest: bytes):
    data = struct.pack(">hh", key, version) + rest
    try:
        header, offset = decode_request_header(data)
    except DecodeError:
        with pytest.raises(DecodeError):
            read_request_start(data)
        return
    for buf in (data, memoryview(data)):
        assert read_request_start(buf) == (
            header.request_api_key,
            header.request_api_version,
            header.correlation_id,
            header.client_id,
            offset,
        )


def test_the_client_id_of_a_flexible_header_keeps_its_old_form():
    request = messages.ApiVersionsRequest(client_software_name="a", client_software_version="b")
    assert b"".join(encode_request(1, None, request, 3)) == bytes.fromhex(
        "0000001000120003 00000001 ffff 00 0261 0262 00"
    )


@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.FETCH, 11), (ApiKey.FETCH, 13), (ApiKey.API_VERSIONS, 4)]
)
def test_a_response_with_its_header(key: ApiKey, version: int):
    cls = messages.response_class(key)
    whole = b"".join(encode_response(7, cls(throttle_time_ms=5), version))
    (payload,) = FrameDecoder(1000).feed(whole)
    header, offset = decode_response_header(key, version, payload)
    assert header.correlation_id == 7
    assert decode(cls, version, payload[offset:]).throttle_time_ms == 5  # type: ignore[attr-defined]


def test_a_response_with_records_counts_them_in_its_size():
    cls = messages.FetchResponse
    records = memoryview(bytes(100_000))
    partition = cls.PartitionData(partition_index=0, records=records)
    response = cls(responses=[cls.FetchableTopicResponse(topic_id=bytes(16), partitions=[partition])])
    buffers = encode_response(7, response, 13)
    assert any(buffer is records for buffer in buffers)
    (payload,) = FrameDecoder(200_000).feed(b"".join(buffers))
    assert len(payload) > 100_000


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x12", b"\x00\x5d\x00\x00" + bytes(10), b"\xff\xff\x00\x00" + bytes(10)]
)
def test_what_is_no_request_header(data: bytes):
    with pytest.raises(DecodeError):
        decode_request_header(data)


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def test_frames_come_out_whole_however_the_bytes_come_in():
    stream = frame(b"one") + frame(b"") + frame(b"three" * 100)
    for step in (1, 3, 7, len(stream)):
        decoder = FrameDecoder(1000)
        frames = [
            bytes(one) for at in range(0, len(stream), step) for one in decoder.feed(stream[at : at + step])
        ]
        assert frames == [b"one", b"", b"three" * 100]
        assert decoder.pending_bytes == 0


def test_frames_outlive_the_next_feed():
    decoder = FrameDecoder(100)
    source = bytearray(frame(b"first") + b"\x00\x00")
    (first,) = decoder.feed(source)
    source[:] = bytes(len(source))
    (second,) = decoder.feed(b"\x00\x01x")
    assert (bytes(first), bytes(second)) == (b"first", b"x")


@pytest.mark.parametrize("size", ["7fffffff", "ffffffff", "00000065"])
def test_a_frame_of_a_size_it_may_not_have(size: str):
    with pytest.raises(FrameTooLargeError, match="announces"):
        FrameDecoder(100).feed(bytes.fromhex(size))


@pytest.mark.parametrize("scratch_bytes", [1, 5, 64, 4096])
def test_frames_are_read_straight_into_the_buffers_of_the_decoder(scratch_bytes: int):
    stream = frame(b"one") + frame(b"") + frame(b"three" * 100) + frame(b"four") + b"\x00\x00\x00"
    decoder = FrameDecoder(1000, memoryview(bytearray(scratch_bytes)))
    frames, at = [], 0
    while at < len(stream):
        room = decoder.buffer()
        read = stream[at : at + len(room)]
        room[: len(read)] = read
        at += len(read)
        frames += decoder.received(len(read))
    assert [bytes(one) for one in frames] == [b"one", b"", b"three" * 100, b"four"]
    assert decoder.pending_bytes == 3


def test_frames_before_a_bad_size_are_still_given():
    scratch = bytearray(frame(b"good") + bytes.fromhex("7fffffff"))
    frames = FrameDecoder(100, memoryview(scratch)).received(len(scratch))
    assert bytes(next(frames)) == b"good"
    with pytest.raises(FrameTooLargeError):
        next(frames)
