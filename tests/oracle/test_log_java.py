"""Kafka's DumpLogSegments finds nothing wrong with the files of a log, as closed, as killed and as recovered."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.kafka_tools import dump_log, needs_java
from ottla.log.fs import OsFs
from unit.log.log_rig import NOW, Rig, idempotent, marker, records_of

pytestmark = [pytest.mark.java, pytest.mark.slow, needs_java]


def _files(rig: Rig, *suffixes: str) -> list[Path]:
    return [path for path in sorted(Path(rig.path).iterdir()) if path.suffix in suffixes]


def _judge(rig: Rig) -> None:
    said = dump_log(*_files(rig, ".log"))
    reported = [
        int(line.split("offset: ")[1].split()[0])
        for line in said.splitlines()
        if line.startswith("|") and "endTxnMarker" not in line
    ]
    assert reported == [offset for offset, _ in records_of(rig.log)]
    indexes = _files(rig, ".index", ".timeindex")
    assert indexes
    dump_log(*indexes, index_check=True)
    # Without the sanity check only, every entry is held against the batch it points to.
    dump_log(*indexes)
    for suffix in (".txnindex", ".snapshot"):
        if files := _files(rig, suffix):
            dump_log(*files)


def test_the_files_of_a_log_are_kafkas(tmp_path: Path) -> None:
    rig = Rig(OsFs(), path=f"{tmp_path}/t-0", segment_bytes=20_000, index_interval_bytes=500)
    for n in range(600):
        rig.append(
            *(f"{n}-{i}" for i in range(n % 4 + 1)), timestamp=NOW - 1000 + n * 3 % 700, epoch=n // 200
        )
        if n % 50 == 0:
            rig.replicate(idempotent(0, f"txn {n}", pid=n + 1, is_transactional=True), epoch=n // 200)
            rig.replicate(marker(n + 1, commit=n % 100 == 0), epoch=n // 200)
        rig.append_raw(idempotent(n, f"idempotent {n}"), epoch=n // 200)
    rig.log.truncate_to(rig.log.log_end_offset - 20)
    for n in range(30):
        rig.append(f"after the cut {n}", epoch=3)
    assert _files(rig, ".txnindex")
    rig.log.close()
    _judge(rig)
    producers = dump_log(*_files(rig, ".snapshot")[-1:])
    assert "producerId: 7" in producers

    rig.open(clean=True)
    for n in range(50):
        rig.append(f"after the restart {n}", epoch=4)
    rig.log.flush()
    rig.open(clean=False)  # as after a kill: nothing was closed
    rig.log.close()
    assert rig.report.recovered_segments == len(rig.log.segments)
    _judge(rig)
