"""`dump-log --remote-log-metadata-decoder`: ours and Kafka's print the same, also of what is broken."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from oracle.kafka_tools import needs_java
from oracle.tools_oracle import JavaTools, run_ottla
from ottla.records.batch import build_batch, iter_batches, iter_records
from ottla.records.record import Record
from ottla.testing.apache import run_java

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

_WRITER = Path(__file__).parent / "java" / "RemoteMetadataOracle.java"
_TOPIC = "größe.of-things".encode()
_TAGGED_END = b"\x01\x00\x01"
"""One tag, the first, of one byte."""
_LINES = (
    "dump-log --remote-log-metadata-decoder",
    "dump-log --remote-log-metadata-decoder --skip-record-metadata",
    "dump-log --remote-log-metadata-decoder --share-group-state-decoder",
    "dump-log --remote-log-metadata-decoder --print-data-log --max-bytes 900",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segment whose values Kafka's own class wrote."""
    path = tmp_path_factory.mktemp("__remote_log_metadata-0") / f"{0:020}.log"
    # `java FILE ARGUMENT`: the program is compiled as it is started.
    run_java(str(_WRITER), path)
    return path


def values(path: Path) -> list[bytes]:
    data = path.read_bytes()
    found = [record.value for at, header in iter_batches(data) for record in iter_records(data, at, header)]
    return [value for value in found if value is not None]


def both(java_tools: JavaTools, path: Path, line: str) -> tuple[list[str], list[str]]:
    tool, *flags = line.split()
    theirs, ours = java_tools.run(tool, "--files", path, *flags), run_ottla(tool, "--files", path, *flags)
    assert (theirs.code, ours.code) == (0, 0), theirs.err + ours.err
    return ours.out.splitlines(), theirs.out.splitlines()


@pytest.mark.parametrize("line", _LINES)
def test_what_kafka_wrote_is_printed_alike(written: Path, java_tools: JavaTools, line: str) -> None:
    ours, theirs = both(java_tools, written, line)
    assert ours == theirs
    assert "Error" not in "".join(ours)


def test_every_type_was_in_it(written: Path) -> None:
    said = run_ottla("dump-log", "--files", written, "--remote-log-metadata-decoder").out
    for name, count in {
        "RemoteLogSegmentMetadata": 4,
        "RemoteLogSegmentMetadataUpdate": 5,
        "RemotePartitionDeleteMetadata": 3,
        "RemoteLogSegmentMetadataSnapshot": 4,
    }.items():
        assert said.count(f"payload: {name}{{") == count
    assert len(values(written)) == 16


def test_broken_values_are_told_alike(written: Path, java_tools: JavaTools, tmp_path: Path) -> None:
    segment, update, deletion, snapshot = (values(written)[at] for at in (0, 4, 9, 12))
    broken = [
        b"",
        b"\x00" + segment[1:],
        b"\x05" + segment[1:],
        b"\x80\x80\x04" + segment[1:],
        b"\xff\xff\xff\xff\x0f" + segment[1:],
        b"\x80",
        b"\x01",
        b"\x01\x00",
        b"\x01\x09\x00rest",
        b"\x01\x00\x07" + segment[3:],
        b"{not metadata}",
    ]
    for value in (segment, update, deletion, snapshot):
        broken += [value[:-1], value[:20], value + b"more"]
    broken += [update[:-2] + b"\x04\x00", update[:-2] + b"\xff\x00", deletion[:-2] + b"\x03\x00"]
    path = log_of(tmp_path, broken)
    ours, theirs = both(java_tools, path, _LINES[0])
    assert ours == theirs
    assert sum("Error at offset" in line for line in ours) == len(broken)


def test_a_changed_byte_anywhere_is_told_alike(written: Path, java_tools: JavaTools, tmp_path: Path) -> None:
    rng = random.Random(8)
    changed = []
    for value in values(written):
        # A changed name of a topic may be no text, or more than a line of it.
        name = range(3, value.index(_TOPIC) + len(_TOPIC)) if _TOPIC in value else ()
        for at in (at for at in range(len(value)) if at not in name):
            changed.append(value[:at] + bytes((rng.randrange(256),)) + value[at + 1 :])
    ours, theirs = both(java_tools, log_of(tmp_path, changed), _LINES[0])
    different = [line for line, other in zip(ours, theirs, strict=True) if line != other]
    # Kafka reads past a wrong size of a tag that it knows.
    assert all("skipping. Failed to deserialize record with type" in line for line in different)
    assert len(different) <= sum(value[-4:-1] == _TAGGED_END for value in values(written))
    assert len(changed) > 2000


def log_of(directory: Path, broken: list[bytes]) -> Path:
    path = directory / f"{0:020}.log"
    path.write_bytes(build_batch([Record(at, 1, None, value) for at, value in enumerate(broken)]))
    return path
