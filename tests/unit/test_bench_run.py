"""`make bench`: a row that fails ends the run, but what was measured before it is shown."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from bench import __main__ as command
from bench.context import Bench
from bench.sheet import OTTLA
from bench.stalls import WATCHDOG


def test_a_run_that_fails_shows_the_rows_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(bench: Bench) -> None:
        bench.sheet.add(OTTLA, "first", "a figure", "ms", 12.5)

    def failing(bench: Bench) -> None:
        raise ConnectionError("the broker is gone")

    first, second = [name for name in command.OWN_ROWS if name in command.ROWS][:2]
    monkeypatch.setattr(command, "ROWS", {**command.ROWS, first: measured, second: failing})
    monkeypatch.setattr(
        sys, "argv", ["bench", "--rows", f"{first},{second}", "--json", str(tmp_path / "result.json")]
    )
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 1
    shown = capsys.readouterr().out
    assert "a figure" in shown and "12.5" in shown
    assert "ended early, after 1 rows" in shown and "the broker is gone" in shown
    assert not (tmp_path / "result.json").exists()
    assert WATCHDOG not in os.environ, "brokers of later tests would write into the directory that is gone"
