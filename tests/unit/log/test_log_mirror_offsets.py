"""Topics with `ottla.mirror.offsets=true`: a mirror's batches stay at their offsets, and nobody else writes."""

from __future__ import annotations

import pytest

from ottla.errors import ApiException, ErrorCode
from ottla.records.batch import build_batch, iter_batches
from ottla.records.record import Record
from ottla.records.validation import MIRROR_EPOCH
from unit.log.log_rig import NOW, Rig, batch, idempotent, records_of, stamped


def refused(rig: Rig, raw: bytes) -> str:
    with pytest.raises(ApiException) as caught:
        rig.append_raw(raw)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    return caught.value.message


def test_batches_stay_where_they_were_with_gaps_and_holes() -> None:
    rig = Rig(ottla_mirror_offsets="true")
    assert rig.append_raw(stamped(batch("a", "b"), 10, MIRROR_EPOCH), epoch=4) == 10
    holes = build_batch([Record(at, NOW, b"k", b"%d" % at) for at in (20, 23, 27)])
    assert rig.append_raw(stamped(holes, 20, MIRROR_EPOCH), epoch=4) == 20
    assert rig.log.log_end_offset == 28
    assert records_of(rig.log) == [(10, "a"), (11, "b"), (20, "20"), (23, "23"), (27, "27")]
    headers = [header for _, header in iter_batches(rig.log.read(10, 1000).records)]
    assert {header.partition_leader_epoch for header in headers} == {4}, "the target's own"
    rig.open(clean=False)
    assert rig.log.log_end_offset == 28, "recovery keeps what lies behind a gap"
    rig.log.update_config(Rig().config)
    assert rig.flushes[-1] == 28, "from now on a gap would be a loss"


def test_a_source_that_begins_far_behind_zero() -> None:
    rig = Rig(ottla_mirror_offsets="true")
    far = 5_000_000_000
    assert rig.append_raw(stamped(batch("a"), far, MIRROR_EPOCH)) == far
    assert rig.append_raw(stamped(batch("b"), far + 3, MIRROR_EPOCH)) == far + 3
    assert records_of(rig.log) == [(far, "a"), (far + 3, "b")]
    rig.open(clean=False)
    assert records_of(rig.log) == [(far, "a"), (far + 3, "b")]


def test_a_batch_below_the_end_and_other_writers_are_refused() -> None:
    rig = Rig(ottla_mirror_offsets="true")
    assert "only a mirror writes to it" in refused(rig, batch("mine"))
    rig.append_raw(stamped(batch("a", "b"), 5, MIRROR_EPOCH))
    assert "a batch at offset 6 is there already" in refused(rig, stamped(batch("b"), 6, MIRROR_EPOCH))
    assert records_of(rig.log) == [(5, "a"), (6, "b")]
    plain = Rig()
    assert "begins at offset 0" in refused(plain, stamped(batch("a"), 5, MIRROR_EPOCH))
    with pytest.raises(ApiException):
        plain.append_raw(build_batch([Record(at, NOW, b"k", b"v") for at in (0, 3)]))


def test_a_batch_that_is_sent_again_is_known() -> None:
    rig = Rig(ottla_mirror_offsets="true")
    raw = stamped(idempotent(0, "a", "b"), 7, MIRROR_EPOCH)
    assert [rig.append_raw(raw), rig.append_raw(raw)] == [7, 7]
    assert rig.log.log_end_offset == 9


def test_keys_of_a_compacted_copy_are_checked_and_its_holes_stay() -> None:
    rig = Rig(ottla_mirror_offsets="true", cleanup_policy="compact")
    rig.append_raw(stamped(build_batch([Record(at, NOW, b"k", b"v") for at in (3, 9)]), 3, MIRROR_EPOCH))
    assert [at for at, _ in records_of(rig.log)] == [3, 9]
    refused(rig, stamped(build_batch([Record(0, NOW, None, b"v")]), 30, MIRROR_EPOCH))
