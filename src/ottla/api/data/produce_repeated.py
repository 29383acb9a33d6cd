"""Produce requests that repeat: those of one producer mostly differ in their correlation id, partition and records.

The requests that `produce.py` answers at once, for one partition and without a transaction, are recognised by their
bytes. Only what differs is decoded and encoded. Everything else, and every error, is left to `produce.py`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.errors import ApiException
from ottla.ids import TopicName
from ottla.log.types import AppendInfo
from ottla.metadata.topic_names import INTERNAL_TOPICS
from ottla.records.batch import HEADER_SIZE, TRANSACTIONAL_FLAG
from ottla.wire.headers import encode_response
from ottla.wire.messages import ProduceResponse

if TYPE_CHECKING:
    from ottla.broker.services import Broker
    from ottla.replica.partition import Partition
    from ottla.wire.messages import ProduceRequest

_FIRST_FLEXIBLE: Final = 9
_TOPIC_IDS: Final = 13
_MAX_BYTES: Final = 32 << 10
"""In larger requests the copies cost more than the decoding."""
_MAX_LENGTH_BYTES: Final = 3
_ATTRIBUTES_LOW_BYTE: Final = 22
_NO_TAGS: Final = bytes(3)
"""The end of a request: no tags of the partition, of the topic and of the request."""
_CORRELATION_ID: Final = 4
_AFTER_CORRELATION_ID: Final = 8
_INDEX: Final = Struct(">i")
_ID: Final = Struct(">i")
_RESULT: Final = Struct(">ihqqq")
"""Partition, error code, base offset, log append time, log start offset."""
_MARKS: Final = (0x1A2B3C4D, 0, 0x11223344556677, 0x22334455667788, 0x33445566778899)
_THROTTLE: Final = Struct(">i")
_THROTTLE_MARK: Final = 0x4D3C2B1A


Append = tuple["Partition", memoryview, int]
"""The partition, the records, and the correlation id of the request."""


class RepeatedProduce:
    """What the requests of a producer to one topic have in common, and their responses."""

    __slots__ = (
        "_common",
        "_head_size",
        "_index_at",
        "_pack",
        "_response_head",
        "_response_size",
        "_response_tail",
        "_start",
        "_throttle_at",
        "acks",
        "client_id",
        "key",
        "version",
    )

    def __init__(
        self,
        version: int,
        client_id: str | None,
        key: str | bytes,
        acks: int,
        request_head: bytes,
        response: bytes,
    ) -> None:
        """`request_head` goes up to the partition; `response` is one with the values of the marks."""
        self.version = version
        self.client_id = client_id
        self.key = key
        self.acks = acks
        self._start = request_head[:_CORRELATION_ID]
        self._common = request_head[_AFTER_CORRELATION_ID:]
        self._index_at = len(request_head)
        self._head_size = len(request_head) + _INDEX.size + _MAX_LENGTH_BYTES
        head, tail = response.split(_RESULT.pack(*_MARKS))
        self._throttle_at = response.index(_THROTTLE.pack(_THROTTLE_MARK), len(head))
        tail = tail.replace(_THROTTLE.pack(_THROTTLE_MARK), _THROTTLE.pack(0))
        self._response_head = head[_AFTER_CORRELATION_ID:]
        self._response_tail = tail
        self._response_size = len(response) - _INDEX.size
        self._pack = Struct(f">ii{len(self._response_head)}sihqqq{len(tail)}s").pack

    def read(self, broker: Broker, frame: memoryview) -> Append | None:
        """What a request appends, if it can be answered at once. None: the whole request has to be decoded."""
        size = len(frame)
        if not self._head_size + HEADER_SIZE <= size <= _MAX_BYTES:
            return None
        head = bytes(frame[: self._head_size])
        at = self._index_at
        if not head.startswith(self._start) or head[_AFTER_CORRELATION_ID:at] != self._common:
            return None
        length = head[at + 4]
        records_at = at + 5
        if length > 127:
            more = head[records_at]
            records_at += 1
            length = length & 127 | more << 7
            if more > 127:
                more = head[records_at]
                if more > 127:
                    return None
                records_at += 1
                length = length & 0x3FFF | more << 14
        # The length is sent with one added, as 0 would be no records at all.
        end = records_at + length - 1
        if end != size - 3 or frame[end:] != _NO_TAGS:
            return None
        records = frame[records_at:end]
        if records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG or broker.replicas.unready:
            return None
        index = _INDEX.unpack_from(head, at)[0]
        try:
            partition = broker.replicas.find((self.key, index))
        except ApiException:
            return None
        if partition.topic in INTERNAL_TOPICS or not partition.acknowledges_at_once(self.acks):
            return None
        return partition, records, _ID.unpack_from(head, _CORRELATION_ID)[0]

    def answer(self, broker: Broker, frame: memoryview) -> bytes | None:
        """Append the records and return the response. None: nothing has happened, and the whole request is needed."""
        found = self.read(broker, frame)
        if found is None:
            return None
        partition, records, correlation_id = found
        try:
            result = partition.append(records, self.acks, broker.clock.now_ms(), self.version)
        except ApiException:
            # Nothing was appended. The answer with the error is made, and counted, by the handler.
            return None
        return self.response(partition, correlation_id, result) if isinstance(result, AppendInfo) else None

    def response(self, partition: Partition, correlation_id: int, result: AppendInfo) -> bytes:
        """The response to a request whose records were appended."""
        return self._pack(
            self._response_size,
            correlation_id,
            self._response_head,
            partition.index,
            0,
            result.first_offset,
            result.log_append_time,
            result.log_start_offset,
            self._response_tail,
        )

    def throttled(self, response: bytes, throttle_ms: int) -> bytes:
        """The same response for a client that is above a quota."""
        at = self._throttle_at
        return response[:at] + _THROTTLE.pack(throttle_ms) + response[at + _THROTTLE.size :]


def repeated_produce(
    version: int, frame: memoryview, request: ProduceRequest, client_id: str | None
) -> RepeatedProduce | None:
    """Learn from a request what the next ones may have in common with it; None if that is not worth it."""
    if (
        version < _FIRST_FLEXIBLE
        or request.transactional_id is not None
        or request.acks not in (-1, 1)
        or len(request.topic_data) != 1
        or len(request.topic_data[0].partition_data) != 1
        or len(frame) > _MAX_BYTES
    ):
        return None
    topic = request.topic_data[0]
    (data,) = topic.partition_data
    if data.records is None:
        return None
    records = data.records
    records_at = len(frame) - len(_NO_TAGS) - len(records)
    index_at = records_at - _length_size(len(records) + 1) - _INDEX.size
    if (
        index_at < _AFTER_CORRELATION_ID
        or frame[records_at:] != bytes(records) + _NO_TAGS
        or _INDEX.unpack_from(frame, index_at)[0] != data.index
    ):
        return None  # it has tags, or its length is not written in the shortest form
    key: str | bytes = topic.topic_id if version >= _TOPIC_IDS else topic.name
    response = b"".join(encode_response(0, _marked(topic.name, topic.topic_id), version))
    if response.count(_RESULT.pack(*_MARKS)) != 1 or response.count(_THROTTLE.pack(_THROTTLE_MARK)) != 1:
        return None
    return RepeatedProduce(version, client_id, key, request.acks, bytes(frame[:index_at]), response)


def _marked(name: TopicName, topic_id: bytes) -> ProduceResponse:
    index, _, base_offset, log_append_time_ms, log_start_offset = _MARKS
    result = ProduceResponse.PartitionProduceResponse(
        index=index,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    return ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[result])
        ],
        throttle_time_ms=_THROTTLE_MARK,
    )


def _length_size(length: int) -> int:
    """How many bytes a length takes as an unsigned varint."""
    return max(1, (length.bit_length() + 6) // 7)
