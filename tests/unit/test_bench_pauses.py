"""The machine's own pauses beside the stalls of the event loop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench import __main__ as command
from bench import pauses
from bench.context import Bench
from bench.pauses import Pause, Pauses
from bench.scale import SCALES
from bench.sheet import MACHINE, OTTLA, Sheet, Span
from bench.stalls import Holding, Stall, found


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
    stalls = [Stall(10.06, 0.06, "log/segment.py:1 append", 0.015), Stall(10.5, 0.03), Stall(30.0, 0.9)]
    monkeypatch.setattr(command.stalls, "found", lambda directory: stalls)
    sheet = Sheet()
    sheet.spans.append(Span("commits", 9.0, 11.0, watched=True))
    sheet.spans.append(Span("micro", 29.0, 31.0))
    bench = Bench([], SCALES["tiny"], sheet, tmp_path)
    command._add_stalls(bench, Pauses([Pause(10.02, 10.06)]))
    assert not [name for _, name in sheet.metrics if "micro" in name]
    assert sheet.metrics["event loop", "longest stall in commits"].samples == {OTTLA: [pytest.approx(60)]}
    paused = sheet.metrics["event loop", "longest stall in commits, a core paused"].samples
    assert paused == {MACHINE: [pytest.approx(40)]}
    (note,) = sheet.notes
    assert (
        "log/segment.py:1 append" in note and "60 ms" in note and "ran for 15 ms" in note and "40 ms" in note
    )


def findings(*stalls: tuple[float, float], stack: tuple[float, str] | None = None) -> str:
    stacks = [] if stack is None else [{"at": stack[0], "frames": ["outer", stack[1]]}]
    found = [{"at": at, "seconds": seconds, "ran_s": 0.01} for at, seconds in stalls]
    return json.dumps({"longest_s": 1.0, "stalls": found, "stacks": stacks})


def test_what_all_processes_of_a_row_found_is_put_together(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(findings((10.0, 0.05), stack=(9.99, "segment.py:1 append")))
    (tmp_path / "2.json").write_text(findings((11.0, 0.03), stack=(10.5, "elsewhere")))
    assert found(tmp_path, Holding()) == [
        Stall(10.0, 0.05, "segment.py:1 append", 0.01),
        Stall(11.0, 0.03, "", 0.01),
    ]


def test_a_loop_that_runs_no_callback_is_said_to_wait(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(findings((10.0, 0.05), stack=(9.99, "/lib/asyncio/runners.py:118 run")))
    (stall,) = found(tmp_path, Holding())
    assert "no callback" in stall.place


def test_a_process_that_the_bench_paused_did_not_stall(tmp_path: Path) -> None:
    holding = Holding()
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as held:
        holding.hold(held.pid)
        holding.hold(held.pid)
        holding.release(held.pid)
        holding.release(held.pid)
        held.send_signal(signal.SIGKILL)
    ((begin, end),) = holding._times[held.pid]
    (tmp_path / f"{held.pid}.json").write_text(findings((end + 0.01, end - begin + 0.02), (end + 5, 0.1)))
    (tmp_path / "1.json").write_text(findings((end + 0.01, end - begin + 0.02)))
    stalls = found(tmp_path, holding)
    assert [stall.at for stall in stalls] == [end + 0.01, end + 5], (
        "the other process stood, this one was paused"
    )
