"""Retention by start, size and time, and the delayed removal of what it takes."""

from __future__ import annotations

from unit.log.log_rig import NOW, Rig, records_of

HOUR = 3_600_000


def filled(**overrides: object) -> Rig:
    rig = Rig(segment_bytes=300, **overrides)
    for n in range(20):
        rig.append(f"{n:02d}", timestamp=NOW - 20 * HOUR + n * HOUR)
    return rig


def first_kept(rig: Rig) -> int:
    return records_of(rig.log)[0][0]


def test_by_size_the_oldest_segments_go_until_the_rest_is_needed() -> None:
    rig = filled(retention_bytes=700, retention_ms=-1)
    assert rig.log.delete_old_segments(NOW) > 0
    assert rig.log.log_start_offset == rig.log.segments[0].base_offset == first_kept(rig)
    # One segment more, and it would be less than what is to be kept.
    assert 700 <= rig.log.size < 700 + 300


def test_by_time_segments_go_whose_newest_record_is_too_old() -> None:
    rig = filled(retention_ms=5 * HOUR)
    assert rig.log.delete_old_segments(NOW - 8 * HOUR) > 0
    kept = first_kept(rig)
    newest_of_first = max(o for o, _ in records_of(rig.log) if o < rig.log.segments[1].base_offset)
    assert newest_of_first >= 7
    assert kept <= 7
    assert rig.log.leader_epochs.entries == ((0, kept),)


def test_by_time_even_the_active_segment_goes() -> None:
    rig = filled(retention_ms=HOUR)
    rig.log.delete_old_segments(NOW + 1000 * HOUR)
    assert records_of(rig.log) == []
    assert rig.log.log_start_offset == rig.log.log_end_offset == 20
    assert len(rig.log.segments) == 1
    assert rig.append("next") == 20
    assert records_of(rig.open(clean=False)) == [(20, "next")]


def test_an_empty_log_stays_as_it_is() -> None:
    rig = Rig(retention_ms=1)
    rig.now_ms += HOUR
    assert rig.log.delete_old_segments(rig.now_ms) == 0
    assert rig.names() == ["00000000000000000000.log"]


def test_segments_below_the_start_go_under_every_policy() -> None:
    for policy in ("delete", "compact"):
        rig = filled(cleanup_policy=policy, retention_ms=-1)
        rig.log.advance_log_start(10)
        assert rig.log.delete_old_segments(NOW) == 2
        assert rig.log.segments[0].base_offset <= 10 < rig.log.segments[1].base_offset
        assert first_kept(rig) == 10


def test_a_compacted_log_is_not_cut_by_time_or_size() -> None:
    rig = filled(cleanup_policy="compact", retention_ms=1, retention_bytes=1)
    assert rig.log.delete_old_segments(NOW + 1000 * HOUR) == 0


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    rig = filled(retention_ms=1)
    rig.log._high_watermark = 6  # as on a follower that has not heard of more
    rig.log.delete_old_segments(NOW + 1000 * HOUR)
    assert rig.log.log_start_offset <= 6


def test_files_are_marked_first_and_removed_after_a_delay() -> None:
    rig = filled(retention_bytes=0)
    removals: list[tuple[list[str], int]] = []
    rig.log._context.remove_later = lambda paths, delay_ms: removals.append((list(paths), delay_ms))
    rig.log.delete_old_segments(NOW)
    marked = [name for name in rig.names() if name.endswith(".deleted")]
    assert "00000000000000000000.log.deleted" in marked
    assert "00000000000000000000.index.deleted" in marked
    assert removals[0][1] == 60_000
    assert {f"{rig.path}/{name}" for name in marked} <= {p for paths, _ in removals for p in paths}
