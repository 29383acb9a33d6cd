"""Kafka's own classes read our batches in every codec, and we read theirs."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from oracle.kafka_tools import needs_java
from ottla.records.batch import build_batch, build_empty_batch, check_crc, iter_records, read_header
from ottla.records.codecs import Compression
from ottla.records.control import build_end_txn_marker
from ottla.records.record import Record
from ottla.testing.apache import LEAN_JVM_FLAGS, kafka_classpath

pytestmark = [pytest.mark.java, pytest.mark.slow, needs_java]

_PROGRAM = Path(__file__).parent / "java" / "RecordsOracle.java"


def ask(lines: list[str]) -> list[str]:
    done = subprocess.run(
        ["java", *LEAN_JVM_FLAGS, "-cp", kafka_classpath(), str(_PROGRAM)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )
    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(said) == len(lines), done.stderr
    return said


def hexed(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def word(record: Record) -> str:
    headers = [f"{name.encode().hex()}={hexed(value)}" for name, value in record.headers]
    fields = [str(record.offset), str(record.timestamp), hexed(record.key), hexed(record.value)]
    return ",".join(fields + headers)


def batch_word(raw: bytes) -> str:
    header = read_header(raw)
    horizon = header.delete_horizon_ms
    fields = [
        header.base_offset,
        header.last_offset,
        header.compression.name.lower(),
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        str(header.is_transactional).lower(),
        str(header.is_control).lower(),
        header.max_timestamp,
        header.count,
        -1 if horizon is None else horizon,
    ]
    return ",".join(map(str, fields))


def reported(raw: bytes) -> str:
    return " ".join(["batch", batch_word(raw), *(word(record) for record in iter_records(raw))])


def random_records(rng: random.Random) -> list[Record]:
    dull = rng.random() < 0.5
    count = rng.choice([1, 2, 7, 200])
    records = []
    for offset in range(count):
        size = rng.choice([0, 1, 63, 64, 1000, 9000])
        value = None if rng.random() < 0.1 else (b"dull" * size if dull else rng.randbytes(size))
        headers = [("n\u00e4me", rng.choice([None, b"", b"value"])) for _ in range(rng.choice([0, 0, 0, 2]))]
        key = None if rng.random() < 0.2 else b"k%d" % rng.randrange(10**9)
        records.append(Record(offset, rng.randrange(10**12, 2 * 10**12), key, value, headers))
    return records


def test_java_reads_our_batches():
    rng = random.Random(3)
    batches = []
    for codec in Compression:
        levels = {
            Compression.GZIP: [1, 9],
            Compression.LZ4: [1, 17],
            Compression.ZSTD: [-131072, 1, 19],
        }.get(codec, [])
        for level in [None, None, None, *levels]:
            records = random_records(rng)
            batches.append(
                build_batch(
                    records,
                    compression=codec,
                    level=level,
                    producer_id=rng.choice([-1, 9]),
                    is_transactional=rng.random() < 0.5,
                    base_sequence=rng.choice([-1, 0, 2**31 - 1]),
                    delete_horizon_ms=rng.choice([None, 10**12 + 77]),
                )
            )
    batches.append(
        build_end_txn_marker(
            commit=True, producer_id=4, producer_epoch=1, coordinator_epoch=3, timestamp=10**12
        )
    )
    batches.append(build_empty_batch(read_header(batches[0])))
    for raw, answer in zip(batches, ask([f"read {raw.hex()}" for raw in batches]), strict=True):
        assert answer == reported(raw)


def test_we_read_javas_batches():
    rng = random.Random(4)
    asked = []
    for codec in Compression:
        for _ in range(4):
            records = random_records(rng)
            asked.append((codec, records))
    lines = [f"write {codec.name.lower()} {' '.join(map(word, records))}" for codec, records in asked]
    for (codec, records), answer in zip(asked, ask(lines), strict=True):
        assert not answer.startswith("!"), answer
        raw = bytes.fromhex(answer)
        header = read_header(raw)
        assert check_crc(raw, 0, header)
        assert header.compression is codec
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 11)
        assert [word(record) for record in iter_records(raw)] == [word(record) for record in records]
        if codec is Compression.NONE:
            ours = build_batch(
                records, producer_id=7, producer_epoch=2, base_sequence=11, partition_leader_epoch=5
            )
            assert ours == raw
