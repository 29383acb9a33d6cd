"""Control records carry the bytes Kafka's Java classes write, and read back."""

import pytest

from ottla.records.batch import (
    CorruptBatchError,
    build_batch,
    build_empty_batch,
    check_crc,
    iter_records,
    read_header,
)
from ottla.records.control import (
    ControlType,
    build_control_batch,
    build_end_txn_marker,
    control_key,
    decode_control,
    end_txn_marker,
    iter_control,
    parse_control_type,
)
from ottla.records.record import Record
from ottla.wire import messages


@pytest.mark.parametrize(("commit", "key"), [(True, "00000001"), (False, "00000000")])
def test_an_end_of_transaction_marker(commit, key):
    raw = build_end_txn_marker(
        commit=commit, producer_id=12, producer_epoch=3, coordinator_epoch=7, timestamp=55
    )
    header = read_header(raw)
    assert check_crc(raw, 0, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12, 3, -1)
    (record,) = iter_records(raw)
    assert record.key.hex() == key
    assert record.value.hex() == "000000000007"
    assert end_txn_marker(raw) == (ControlType.COMMIT if commit else ControlType.ABORT, 7)


def test_the_control_records_of_a_metadata_log_read_back():
    leader = messages.LeaderChangeMessage(
        version=0, leader_id=1, voters=[messages.LeaderChangeMessage.Voter(voter_id=1)]
    )
    entries = [
        (ControlType.SNAPSHOT_HEADER, messages.SnapshotHeaderRecord(last_contained_log_timestamp=9)),
        (ControlType.KRAFT_VERSION, messages.KRaftVersionRecord(kraft_version=1)),
        (ControlType.LEADER_CHANGE, leader),
        (ControlType.KRAFT_VOTERS, messages.VotersRecord()),
        (ControlType.SNAPSHOT_FOOTER, messages.SnapshotFooterRecord()),
    ]
    raw = build_control_batch(entries, base_offset=40, timestamp=9, leader_epoch=2)
    header = read_header(raw)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (40, 44, 2)
    assert header.is_control
    assert not header.is_transactional
    assert list(iter_control(raw)) == entries
    assert end_txn_marker(raw) is None


def test_a_type_of_a_later_kafka_is_unknown_not_an_error():
    assert decode_control(Record(0, 0, b"\0\0\0\x63", b"whatever")) == (ControlType.UNKNOWN, None)
    assert parse_control_type(b"\0\x05\0\x01more") is ControlType.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_key_that_has_no_type_is_corrupt(key):
    with pytest.raises(CorruptBatchError):
        parse_control_type(key)


def test_a_marker_without_its_version_is_corrupt():
    with pytest.raises(CorruptBatchError):
        decode_control(Record(0, 0, control_key(ControlType.ABORT), b"\0"))


def test_a_cleaned_marker_has_no_type_left():
    raw = build_end_txn_marker(commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1)
    assert end_txn_marker(build_empty_batch(read_header(raw))) is None
    assert (
        end_txn_marker(build_batch([Record(0, 1, b"\0\0\0\2", b"\0\0\0\0\0\1\1\1\0")], is_control=True))
        is None
    )
