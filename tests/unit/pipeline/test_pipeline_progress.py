"""What someone sees while Spark and its jars are fetched."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from types import ModuleType

import pytest

from ottla.pipeline.progress import INTERVAL_VARIABLE, ProgressReporter, describe

INSTALL = Path(__file__).parents[3] / "scripts" / "install.py"

PIP = """\
Collecting pyspark==4.2.0 (from -r requirements/spark.txt (line 7))
  Downloading pyspark-4.2.0.tar.gz (450.2 MB)
Progress 0 of 450000000
Progress 90000000 of 450000000
Progress 450000000 of 450000000
  Downloading small-1.0-py3-none-any.whl (1.2 MB)
Progress 1200000 of 1200000
Building wheel for pyspark (pyproject.toml): started
Installing collected packages: pyspark, small
Successfully installed pyspark-4.2.0 small-1.0
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", INSTALL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_bar_with_size_rate_and_time_left() -> None:
    shown = describe("pyspark-4.2.0", 90_000_000, 450_000_000, 10.0)
    assert shown == "pyspark-4.2.0  [#####-------------------]  20%  90 of 450 MB, 9.0 MB/s, 40 s left"


def test_without_a_total_there_is_no_bar() -> None:
    assert describe("derby", 2_500_000, None, 5.0) == "derby  2.5 MB, 0.5 MB/s, 5 s"


def test_minutes_are_shown_as_minutes() -> None:
    assert describe("x", 1_000_000, 101_000_000, 1.0).endswith("1 min 40 s left")


def test_a_terminal_has_one_line_that_changes() -> None:
    out, now = Terminal(), [0.0]
    reporter = ProgressReporter(out, clock=lambda: now[0])
    for done in (0, 50_000_000, 100_000_000):
        now[0] += 1.0
        reporter.update("spark", done, 100_000_000)
    reporter.finish("spark: fetched")
    assert out.getvalue().count("\r\x1b[2K") == 4
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().endswith("spark: fetched\n")


def test_elsewhere_a_line_comes_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INTERVAL_VARIABLE, raising=False)
    out, now = io.StringIO(), [0.0]
    reporter = ProgressReporter(out, clock=lambda: now[0])
    for second in range(25):
        now[0] = float(second)
        reporter.update("spark", second * 4_000_000, 100_000_000)
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[1] == "spark  [##########--------------]  40%  40 of 100 MB, 4.0 MB/s, 15 s left"


def test_a_program_that_shows_the_lines_gets_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INTERVAL_VARIABLE, "0.5")
    out, now = io.StringIO(), [0.0]
    reporter = ProgressReporter(out, clock=lambda: now[0])
    for _ in range(8):
        now[0] += 0.25
        reporter.update("spark", 1, 2)
    assert len(out.getvalue().splitlines()) == 4


def test_pip_becomes_a_few_lines(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INTERVAL_VARIABLE, "0")
    out = io.StringIO()
    narrator = install.Narrator(ProgressReporter(out))
    for line in PIP.splitlines(keepends=True):
        narrator.line(line)
        narrator.tick()
    lines = out.getvalue().splitlines()
    assert lines[0] == "Looking for pyspark"
    assert [line for line in lines if "of 450 MB" in line][1].startswith("pyspark-4.2.0  [#####---")
    assert "pyspark-4.2.0: 450 MB in 0 s" in lines
    assert "Building pyspark" in lines
    assert "Installing 2 packages" in lines
    assert not [line for line in lines if line.startswith("small")]
    assert narrator.installed == 2


def test_an_error_of_pip_is_shown(install: ModuleType) -> None:
    out = io.StringIO()
    narrator = install.Narrator(ProgressReporter(out))
    narrator.line("ERROR: No matching distribution found for pyspark==4.2.0\n")
    assert out.getvalue() == "ERROR: No matching distribution found for pyspark==4.2.0\n"


def test_an_old_pip_is_asked_for_no_bar(install: ModuleType) -> None:
    assert "off" in install.pip_command([], "23.2.1")
    assert "raw" in install.pip_command(["-r", "x.txt"], "24.1")
