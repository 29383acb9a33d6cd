"""`dump-log --remote-log-metadata-decoder` on bytes made by hand: each type of record, and each way to be none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import main
from ottla.records.batch import build_batch
from ottla.records.record import Record

TOPIC_ID, SEGMENT = bytes(range(16)), bytes(15) + b"\x07"
PARTITION = b"\x05logs" + TOPIC_ID + b"\x00\x00\x00\x02" + b"\x00"
SEGMENT_ID = PARTITION + SEGMENT + b"\x00"
TIME = (1_700_000_000_000).to_bytes(8)
EPOCHS = b"\x03" + b"\0\0\0\x04" + (150).to_bytes(8) + b"\0" + b"\0\0\0\x01" + (100).to_bytes(8) + b"\0"
OFFSETS = (100).to_bytes(8) + (199).to_bytes(8)
BROKER = b"\0\0\0\x01"
SIZE = (4096).to_bytes(4)
NAME = "AAECAwQFBgcICQoLDA0ODw:logs-2"
ID = f"RemoteLogSegmentId{{topicIdPartition={NAME}, id=AAAAAAAAAAAAAAAAAAAABw}}"


def segment(offsets: bytes = OFFSETS, epochs: bytes = EPOCHS, end: bytes = b"\x00\x00\x00") -> bytes:
    return b"\x01\x00\x00" + SEGMENT_ID + offsets + BROKER + TIME + TIME + epochs + SIZE + end


def snapshot(epochs: bytes = EPOCHS, end: bytes = b"\x00\x03\x01\x00\x01\x01") -> bytes:
    return b"\x01\x03\x00" + SEGMENT + OFFSETS + BROKER + TIME + TIME + epochs + SIZE + end


def update(end: bytes = b"\x04abc\x01\x00") -> bytes:
    return b"\x01\x01\x00" + SEGMENT_ID + BROKER + TIME + end


def deletion(end: bytes = b"\x02\x00") -> bytes:
    return b"\x01\x02\x00" + PARTITION + BROKER + TIME + end


def dumped(tmp_path: Path, values: list[bytes | None], *flags: str) -> list[str]:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(build_batch([Record(at, 5, b"key", value) for at, value in enumerate(values)]))
    words = ["dump-log", "--files", str(path), "--remote-log-metadata-decoder", *flags]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


WHOLE = {
    segment(): f"RemoteLogSegmentMetadata{{remoteLogSegmentId={ID}, startOffset=100, endOffset=199, brokerId=1,"
    " maxTimestampMs=1700000000000, eventTimestampMs=1700000000000, segmentLeaderEpochs={1=100, 4=150},"
    " segmentSizeInBytes=4096, customMetadata=Optional.empty, state=COPY_SEGMENT_STARTED, txnIdxEmpty=false}",
    update(): f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={ID},"
    " customMetadata=Optional[CustomMetadata{3 bytes}], state=COPY_SEGMENT_FINISHED,"
    " eventTimestampMs=1700000000000, brokerId=1}",
    deletion(): f"RemotePartitionDeleteMetadata{{topicPartition={NAME}, state=DELETE_PARTITION_FINISHED,"
    " eventTimestampMs=1700000000000, brokerId=1}",
    snapshot(): "RemoteLogSegmentMetadataSnapshot{segmentId=AAAAAAAAAAAAAAAAAAAABw, startOffset=100, endOffset=199,"
    " maxTimestampMs=1700000000000, segmentLeaderEpochs={1=100, 4=150}, segmentSizeInBytes=4096,"
    " customMetadata=Optional.empty, state=DELETE_SEGMENT_FINISHED, txnIdxEmpty=true}",
}

BROKEN: dict[bytes | None, str] = {
    None: "There is no value.",
    b"": "Error while reading frame version",
    b"\x00\x00\x00": "Could not deserialize metadata record with frame version 0. Note that upgrades from the"
    " preview release of KRaft in 2.8 to newer versions are not supported.",
    b"\x02\x00\x00": "Could not deserialize metadata record due to unknown frame version 2(only frame version 1 is"
    " supported)",
    b"\x01\x80\x80\x02\x00": "Value for type was too large.",
    b"\x01\x00": "Error while reading version",
    b"\x01\x04\x00": "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id 4",
    b"\x01\x01\x01" + update()[3:]: "Failed to deserialize record with type 1",
    segment()[:-1]: "Failed to deserialize record with type 0",
    segment() + b"\x00\x00": "Found 2 byte(s) of garbage after 0",
    segment(offsets=b"\xff" * 16): "Unexpected start offset = -1. StartOffset for a remote segment cannot be"
    " negative",
    segment(
        offsets=OFFSETS[8:] + OFFSETS[:8]
    ): "Unexpected end offset = 100. EndOffset for a remote segment cannot be less than startOffset = 199",
    segment(epochs=b"\x01"): "segmentLeaderEpochs can not be null or empty",
    segment(end=b"\x00\x04\x00"): "state can not be null",
    update(end=b"\x00\xff\x00"): "state can not be null",
    deletion(end=b"\x03\x00"): "null",
    snapshot(epochs=b"\x01"): "segmentLeaderEpochs can not be null or empty",
    snapshot(epochs=b"\x01", end=b"\x00\x09\x00"): "state can not be null",
}


@pytest.mark.parametrize("value", WHOLE)
def test_each_type_is_shown(tmp_path: Path, value: bytes) -> None:
    *_, line = dumped(tmp_path, [value])
    about = f"keySize: 3 valueSize: {len(value)} sequence: -1 headerKeys: []"
    assert line == f"| offset: 0 CreateTime: 5 {about} payload: {WHOLE[value]}"


def test_what_is_broken_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    _, _, _, *output = dumped(tmp_path, [*BROKEN, update()], "--skip-record-metadata")
    errors = [f"| payload: Error at offset {at}, skipping. {text}" for at, text in enumerate(BROKEN.values())]
    assert output == [*errors, f"| payload: {WHOLE[update()]}"]


def test_json_has_the_text_too(tmp_path: Path) -> None:
    *_, line = dumped(tmp_path, [deletion()], "--json")
    record = json.loads(line)
    assert (record["offset"], record["key"], record["payload"]) == (0, None, WHOLE[deletion()])
