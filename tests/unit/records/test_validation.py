"""A producer's batch is taken as it is, changed as the topic asks, or refused with Kafka's code for the reason."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ApiException, ErrorCode
from ottla.records.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    build_batch,
    check_crc,
    iter_records,
    read_header,
)
from ottla.records.codecs import Compression
from ottla.records.record import Record
from ottla.records.validation import (
    Pending,
    ProducePolicy,
    RecordValidationError,
    finish,
    validate_produce,
)
from unit.records.stamping import stamp_max_timestamp

NOW = 1_700_000_000_000
HOUR = 3_600_000
POLICY = ProducePolicy(
    max_message_bytes=1_048_588,
    compacted=False,
    timestamp_type=CREATE_TIME,
    before_max_ms=2**63 - 1,
    after_max_ms=HOUR,
    codec=None,
    level=None,
)


def policy(**changes):
    return msgspec.structs.replace(POLICY, **changes)


def batch(*timestamps, keys=True, **fields):
    stamps = timestamps or (NOW - 2, NOW - 1, NOW - 3)
    return build_batch(
        [Record(i, t, b"k%d" % i if keys else None, b"v") for i, t in enumerate(stamps)], **fields
    )


def run(raw, with_policy=POLICY, **options):
    """Validate to the end and give the batch as it would be written at offset 100."""
    checked = validate_produce(memoryview(raw), with_policy, NOW, **options)
    if checked.pending:
        checked = finish(checked)
    written = b"".join(checked.buffers(100, 5))
    header = read_header(written)
    assert header == checked.header._replace(base_offset=100, partition_leader_epoch=5)
    assert check_crc(written, 0, header)
    assert header.size_in_bytes == len(written) == checked.size_in_bytes
    return checked, written


def refused(raw, with_policy=POLICY, **options):
    with pytest.raises(ApiException) as caught:
        run(raw, with_policy, **options)
    return caught.value


def test_an_ordinary_batch_goes_through_untouched():
    raw = batch(producer_id=4, producer_epoch=0, base_sequence=0)
    checked, written = run(raw)
    assert not checked.header_changed
    assert written[16:] == raw[16:]
    assert checked.log_append_time == NO_TIMESTAMP
    assert [r.offset for r in iter_records(written)] == [100, 101, 102]


@pytest.mark.parametrize("codec", list(Compression))
def test_the_records_are_not_looked_at_when_nothing_asks_for_it(codec):
    assert not validate_produce(batch(compression=codec), POLICY, NOW).pending


@pytest.mark.parametrize("cut", [0, 1, 16])
def test_no_batch_is_an_invalid_record(cut):
    assert refused(batch()[:cut]).code == ErrorCode.INVALID_RECORD


def test_a_torn_batch_is_an_invalid_record():
    raw = batch()
    for cut in (17, 60, 61, len(raw) - 1):
        assert refused(raw[:cut]).code == ErrorCode.INVALID_RECORD


def test_two_batches_are_an_invalid_record():
    assert refused(batch() + batch()).code == ErrorCode.INVALID_RECORD


def test_a_torn_second_batch_is_dropped():
    raw = batch()
    _, written = run(raw + raw[:50])
    assert len(written) == len(raw)


def test_nonsense_after_the_batch_is_corrupt():
    assert refused(batch() + b"\xff" * 40).code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_an_invalid_record_as_in_kafka(magic):
    raw = bytearray(batch())
    raw[16] = magic
    error = refused(raw)
    assert error.code == ErrorCode.INVALID_RECORD
    assert f"magic {magic}" in error.message


@pytest.mark.parametrize(
    ("position", "data"), [(8, b"\0\0\0\x05"), (8, b"\xff\xff\xff\xff"), (16, b"\x03"), (16, b"\xff")]
)
def test_impossible_length_or_magic_is_corrupt(position, data):
    raw = bytearray(batch())
    raw[position : position + len(data)] = data
    assert refused(raw).code == ErrorCode.CORRUPT_MESSAGE


def test_a_length_smaller_than_the_header_is_corrupt():
    raw = bytearray(batch())
    raw[8:12] = (40).to_bytes(4, "big")
    assert refused(raw[:52]).code == ErrorCode.CORRUPT_MESSAGE


def test_a_flipped_bit_is_corrupt():
    raw = bytearray(batch())
    raw[-1] ^= 1
    assert refused(raw).code == ErrorCode.CORRUPT_MESSAGE


def test_size_is_bounded_by_the_topic():
    raw = batch()
    run(raw, policy(max_message_bytes=len(raw)))
    assert refused(raw, policy(max_message_bytes=len(raw) - 1)).code == ErrorCode.MESSAGE_TOO_LARGE


def test_count_and_last_offset_must_agree():
    assert refused(batch(last_offset=7)).code == ErrorCode.INVALID_RECORD
    assert refused(build_batch([Record(5, NOW, b"k", b"v")])).code == ErrorCode.INVALID_RECORD


def test_clients_write_no_control_batches_but_coordinators_do():
    raw = batch(is_control=True, is_transactional=True, producer_id=1, producer_epoch=0)
    assert refused(raw).code == ErrorCode.INVALID_RECORD
    run(raw, from_client=False)
    checked, _ = run(raw, policy(compacted=True, codec=Compression.GZIP), from_client=False)
    assert checked.header.compression is Compression.NONE


def test_a_producer_id_needs_a_sequence():
    assert refused(batch(producer_id=1, producer_epoch=0)).code == ErrorCode.INVALID_RECORD


def test_zstd_takes_produce_version_7():
    raw = batch(compression=Compression.ZSTD)
    assert refused(raw, api_version=6).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    run(raw, api_version=7)


def test_an_unknown_codec_is_refused():
    raw = bytearray(batch())
    raw[22] |= 7
    assert refused(raw).code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", list(Compression))
def test_compacted_topics_need_keys_and_name_the_records_without(codec):
    compacted = policy(compacted=True)
    run(batch(compression=codec), compacted)
    records = [Record(0, NOW, b"k"), Record(1, NOW, None, b"v"), Record(2, NOW, b""), Record(3, NOW)]
    error = refused(build_batch(records, compression=codec), compacted)
    assert isinstance(error, RecordValidationError)
    assert error.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1, 3]


def test_timestamps_too_far_ahead_name_their_records():
    run(batch(NOW + HOUR))
    error = refused(batch(NOW, NOW + HOUR + 1, NOW))
    assert isinstance(error, RecordValidationError)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1]


def test_timestamps_too_old_are_found_even_behind_a_fresh_first_record():
    limited = policy(before_max_ms=1000)
    run(batch(NOW - 1000, NOW), limited)
    error = refused(batch(NOW, NOW - 1001, NOW), limited)
    assert error.code == ErrorCode.INVALID_TIMESTAMP


def test_records_without_a_timestamp_have_no_bounds():
    run(batch(NO_TIMESTAMP, NO_TIMESTAMP), policy(before_max_ms=1, after_max_ms=1))


def test_a_wrong_timestamp_outranks_a_missing_key():
    error = refused(batch(NOW, NOW + 2 * HOUR, keys=False), policy(compacted=True, before_max_ms=5))
    assert error.code == ErrorCode.INVALID_RECORD
    mixed = build_batch([Record(0, NOW, None, b""), Record(1, NOW + 2 * HOUR, b"k", b"")])
    assert refused(mixed, policy(compacted=True)).code == ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_is_stamped_with_a_new_checksum():
    checked, written = run(batch(NOW + 100 * HOUR, 1), policy(timestamp_type=LOG_APPEND_TIME))
    assert checked.log_append_time == NOW
    assert {r.timestamp for r in iter_records(written)} == {NOW}
    assert checked.header.attributes & LOG_APPEND_TIME_FLAG


def test_log_append_time_is_not_for_producers_to_set():
    raw = bytearray(batch())
    stamp_max_timestamp(raw, 0, LOG_APPEND_TIME, NOW)
    error = refused(raw, policy(timestamp_type=LOG_APPEND_TIME))
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    _, written = run(raw)
    assert read_header(written).timestamp_type == CREATE_TIME


def test_a_highest_timestamp_below_the_first_is_put_right():
    raw = bytearray(batch(NOW - 5, NOW - 1))
    stamp_max_timestamp(raw, 0, CREATE_TIME, NOW - 9)
    checked, _ = run(raw)
    assert checked.header.max_timestamp == NOW - 1


@pytest.mark.parametrize("source", list(Compression))
@pytest.mark.parametrize("target", list(Compression))
def test_the_topics_codec_wins(source, target):
    raw = batch(compression=source, producer_id=9, producer_epoch=2, base_sequence=6, is_transactional=True)
    checked, written = run(raw, policy(codec=target, timestamp_type=LOG_APPEND_TIME))
    assert checked.header.compression is target
    before, after = read_header(raw), checked.header
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (9, 2, 6)
    assert after.is_transactional
    assert after.base_timestamp == before.base_timestamp
    assert [(r.key, r.value) for r in iter_records(written)] == [(r.key, r.value) for r in iter_records(raw)]


def test_a_batch_that_outgrows_the_limit_by_unpacking_is_too_large():
    raw = build_batch([Record(0, NOW, b"k", bytes(5000))], compression=Compression.ZSTD)
    limited = policy(codec=Compression.NONE, max_message_bytes=1000)
    assert refused(raw, limited).code == ErrorCode.MESSAGE_TOO_LARGE


def test_records_numbered_wrongly_are_numbered_anew():
    raw = bytearray(build_batch([Record(0, NOW, b"a"), Record(1, NOW, b"b")]))
    wrong = build_batch([Record(0, NOW, b"a"), Record(0, NOW, b"b", None, [("h", b"x")])], last_offset=1)
    _, written = run(wrong, policy(compacted=True))
    assert [r.offset for r in iter_records(written)] == [100, 101]
    assert [tuple(r.headers) for r in iter_records(written)] == [(), (("h", b"x"),)]
    assert read_header(raw).last_offset_delta == 1


def test_records_that_cannot_be_unpacked_are_invalid_not_corrupt():
    raw = bytearray(batch(compression=Compression.GZIP))
    raw[22] = raw[22] & ~7 | Compression.ZSTD
    stamp_max_timestamp(raw, 0, CREATE_TIME, NOW)
    assert refused(raw, policy(compacted=True)).code == ErrorCode.INVALID_RECORD


def test_a_bomb_is_too_large():
    raw = build_batch([Record(0, NOW, b"k", bytes(1 << 20))], compression=Compression.ZSTD)
    checked = validate_produce(raw, policy(compacted=True), NOW)
    assert checked.offload
    with pytest.raises(ApiException) as caught:
        finish(checked, max_output=100_000)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_work_for_a_thread_survives_the_request_buffer():
    buffer = bytearray(batch(compression=Compression.LZ4))
    checked = validate_produce(memoryview(buffer), policy(codec=Compression.GZIP), NOW)
    assert checked.pending == Pending.CODEC
    checked.detach()
    buffer[:] = bytes(len(buffer))
    assert finish(checked).header.count == 3


@given(st.data())
def test_mutated_batches_pass_or_give_a_typed_error(data):
    raw = bytearray(batch(compression=data.draw(st.sampled_from(Compression))))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        try:
            stamp_max_timestamp(raw, 0, CREATE_TIME, NOW)
        except ApiException:
            return
    chosen = policy(compacted=True, codec=data.draw(st.sampled_from([None, *Compression])))
    try:
        run(raw, chosen)
    except ApiException as error:
        assert error.code != ErrorCode.UNKNOWN_SERVER_ERROR
