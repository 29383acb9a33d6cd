"""The machine's own pauses beside the stalls of the event loop."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import __main__ as command
from bench import pauses
from bench.context import Bench
from bench.pauses import Pause, Pauses
from bench.scale import SCALES
from bench.sheet import MACHINE, OTTLA, Sheet, Span
from bench.systems import Ottla, Stall


def test_pauses_of_two_cores_count_once_and_only_within_the_time() -> None:
    found = Pauses([Pause(1.0, 1.2), Pause(1.1, 1.3), Pause(2.0, 2.5)])
    assert found.within(0.0, 3.0) == pytest.approx(0.8)
    assert found.within(1.15, 2.1) == pytest.approx(0.25)
    assert found.within(1.3, 2.0) == 0
    assert found.longest(0.0, 2.0) == pytest.approx(0.2)


def test_the_process_that_measures_writes_what_it_found(tmp_path: Path) -> None:
    with pauses.measured(tmp_path / "pauses.json") as found:
        assert not found.found
    assert all(each.end > each.begin for each in found.found)


def test_a_stall_is_shown_with_its_place_and_the_machines_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalls = [Stall(10.06, 0.06, "log/segment.py:1 append"), Stall(10.5, 0.03), Stall(30.0, 0.9)]
    monkeypatch.setattr(Ottla, "stalls", lambda self: stalls)
    sheet = Sheet()
    sheet.spans.append(Span("commits", 9.0, 11.0))
    bench = Bench([], SCALES["tiny"], sheet, tmp_path)
    command._add_stalls(bench, Ottla(tmp_path / "ottla"), Pauses([Pause(10.02, 10.06)]))
    assert sheet.metrics["event loop", "longest stall in commits"].samples == {OTTLA: [pytest.approx(60)]}
    paused = sheet.metrics["event loop", "longest stall in commits, a core paused"].samples
    assert paused == {MACHINE: [pytest.approx(40)]}
    (note,) = sheet.notes
    assert "log/segment.py:1 append" in note and "60 ms" in note and "40 ms" in note
