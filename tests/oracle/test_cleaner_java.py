"""Kafka's DumpLogSegments finds nothing wrong with segments that our cleaner wrote."""

from __future__ import annotations

import pytest

from oracle.kafka_tools import dump_log, needs_java
from ottla.log.fs import OsFs
from ottla.records.codecs import Compression
from unit.log.cleaner.cleaner_rig import Rig, topic_config

pytestmark = [pytest.mark.java, pytest.mark.slow, needs_java]


def test_cleaned_segments_and_their_indexes_are_sound(tmp_path):
    rig = Rig(OsFs(), str(tmp_path), topic_config(internal_segment_bytes=4000))
    for index in range(300):
        key = b"k%d" % (index * 7 % 50)
        value = None if index % 11 == 0 else b"value %d" % index
        rig.put((key, value), (b"other", b"x" * 20), compression=Compression(index % 5), producer=index % 3)
        if index % 20 == 5:
            rig.put((b"never", b"aborted"), producer=9, txn=True)
            rig.end_txn(9, commit=False)
    rig.roll()
    before = rig.log.size
    rig.clean()
    rig.clock.advance_ms(5000)
    rig.put((b"k0", b"last"))
    rig.roll()
    rig.clean()
    assert rig.log.size < before / 3
    expected = {record.offset for record in rig.records()}
    rig.log.flush()
    rig.log.close()
    files = sorted((tmp_path / "t-0").glob("*.*"))
    said = dump_log(*(path for path in files if path.suffix == ".log"))
    reported = {
        int(line.split("offset: ")[1].split()[0]) for line in said.splitlines() if line.startswith("|")
    }
    assert reported == expected
    assert "deleteHorizonMs: OptionalLong[" in said
    dump_log(*(path for path in files if path.suffix in (".index", ".timeindex")), index_check=True)
    dump_log(*(path for path in files if path.suffix == ".txnindex"))
