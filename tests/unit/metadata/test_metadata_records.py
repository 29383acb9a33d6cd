"""Metadata records as the value of log records: the bytes that Apache Kafka 4.3.1 writes."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ApiException
from ottla.metadata.features import LATEST_METADATA_VERSION
from ottla.metadata.records import RECORD_NAMES, MetadataSerde, decode_record, encode_record, record_version
from ottla.wire import messages
from ottla.wire.errors import DecodeError

KAFKA_BYTES = [
    # Taken from a bootstrap.checkpoint and a metadata log of Apache Kafka 4.3.1.
    (
        messages.FeatureLevelRecord(name="metadata.version", feature_level=30),
        "010c00116d657461646174612e76657273696f6e001e00",
    ),
    (
        messages.FeatureLevelRecord(name="group.version", feature_level=1),
        "010c000e67726f75702e76657273696f6e000100",
    ),
    (messages.EndTransactionRecord(), "01180000"),
    (messages.NoOpRecord(), "01140000"),
]


@pytest.mark.parametrize(("record", "expected"), KAFKA_BYTES, ids=lambda v: getattr(v, "NAME", ""))
def test_the_bytes_are_kafkas(record: Any, expected: str) -> None:
    assert encode_record(record).hex() == expected
    assert decode_record(bytes.fromhex(expected)) == record


@pytest.mark.parametrize("name", RECORD_NAMES.values())
def test_every_record_type_goes_there_and_back(name: str) -> None:
    record = getattr(messages, name)()
    assert decode_record(memoryview(encode_record(record))) == record


def test_all_26_types_of_the_schema_table_are_known() -> None:
    table = {
        c.NAME: c.API_KEY
        for c in messages.all_messages()
        if c.NAME.endswith("Record") and c.API_KEY is not None and not c.NAME.startswith("Remote")
    }
    assert {name: key for key, name in RECORD_NAMES.items()} == table
    assert len(RECORD_NAMES) == 26


@pytest.mark.parametrize(
    ("name", "metadata_version", "version"),
    [
        ("RegisterBrokerRecord", LATEST_METADATA_VERSION, 4),
        ("RegisterBrokerRecord", 29, 3),
        ("RegisterBrokerRecord", 8, 2),
        ("RegisterBrokerRecord", 7, 1),
        ("PartitionRecord", 30, 2),
        ("PartitionRecord", 22, 1),
        ("PartitionChangeRecord", 16, 0),
        ("TopicRecord", 30, 0),
    ],
)
def test_older_clusters_get_older_records(name: str, metadata_version: int, version: int) -> None:
    assert record_version(getattr(messages, name)(), metadata_version) == version


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({"fenced": -1}, 0),
        ({"in_controlled_shutdown": 1}, 1),
        ({"log_dirs": [bytes(16)]}, 2),
        ({"cordoned_log_dirs": []}, 3),
    ],
)
def test_a_registration_change_takes_the_lowest_version_that_fits(
    fields: dict[str, Any], version: int
) -> None:
    record = messages.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, **fields)
    assert record_version(record) == version
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01\x02",
        b"\x02\x14\x00\x00",
        b"\x01\x06\x00\x00",
        b"\x01\x14\x09\x00",
        b"\x01\x14\x00\x00\x00",
    ],
)
def test_anything_else_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(data)


def test_the_serde_writes_at_the_version_that_the_log_has_set() -> None:
    serde = MetadataSerde()
    serde.decode(encode_record(messages.FeatureLevelRecord(name="metadata.version", feature_level=20)))
    assert serde.encode(messages.PartitionRecord(topic_id=bytes(16)))[:3] == b"\x01\x03\x01"


def test_a_log_of_a_newer_release_is_refused() -> None:
    record = messages.FeatureLevelRecord(name="metadata.version", feature_level=LATEST_METADATA_VERSION + 1)
    with pytest.raises(ApiException, match="newer than 30"):
        MetadataSerde().decode(encode_record(record))
