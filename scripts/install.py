"""`pip install` with little noise: a progress bar for what takes long, errors, and one line at the end.

On a terminal a bar shows size and time left; elsewhere a line comes now and then. Usage: `install.py PIP-ARGUMENTS`.
"""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from ottla.pipeline.progress import ProgressReporter

_TICK_S: Final = 0.2
_RAW_SINCE: Final = (24, 1)
"""The first version of pip whose `raw` progress can be read by a program."""

_DOWNLOADING: Final = re.compile(r"^\s*Downloading (?P<file>\S+)")
_PROGRESS: Final = re.compile(r"^Progress (?P<done>\d+) of (?P<total>\d+)")
_COLLECTING: Final = re.compile(r"^\s*Collecting (?P<package>[^\s=<>~!;]+)")
_BUILDING: Final = re.compile(r"^\s*Building wheel for (?P<package>\S+)")
_INSTALLING: Final = re.compile(r"^Installing collected packages: (?P<packages>.+)")
_INSTALLED: Final = re.compile(r"^Successfully installed (?P<packages>.+)")
_IMPORTANT: Final = re.compile(r"^\s*(ERROR|WARNING|error|note):?")
_MIN_BYTES: Final = 5_000_000
"""Smaller files are there before anyone could read their names."""


def pip_command(arguments: Iterable[str], pip: str) -> list[str]:
    numbers = tuple(int(part) for part in re.findall(r"\d+", pip)[:2])
    progress = "raw" if numbers >= _RAW_SINCE else "off"
    return [
        *(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-color"),
        *("--progress-bar", progress, *arguments),
    ]


class Narrator:
    """Turns pip's lines into progress; `tick` keeps the time on the screen up to date."""

    def __init__(self, reporter: ProgressReporter) -> None:
        self._reporter = reporter
        self._doing = "Looking for packages"
        self._file = ""
        self._started_s = 0.0
        self._error_follows = False
        self.installed = 0

    def line(self, line: str) -> None:
        if match := _PROGRESS.match(line):
            self._progress(int(match["done"]), int(match["total"]))
        elif match := _DOWNLOADING.match(line):
            self._file = _short_name(match["file"])
            self._started_s = time.monotonic()
            self._doing = f"Downloading {self._file}"
        elif match := _COLLECTING.match(line):
            self._doing = f"Looking for {match['package']}"
        elif match := _BUILDING.match(line):
            self._doing = f"Building {match['package']}"
        elif match := _INSTALLING.match(line):
            self._doing = f"Installing {_packages(match['packages'].count(',') + 1)}"
        elif match := _INSTALLED.match(line):
            self.installed = len(match["packages"].split())
        elif _IMPORTANT.match(line) or (self._error_follows and line.startswith(" ")):
            self._error_follows = True
            self._reporter.finish(line.rstrip())
            return
        self._error_follows = False

    def tick(self) -> None:
        """Nothing was printed for a moment: show what goes on."""
        if not self._doing.startswith("Downloading"):
            self._reporter.update(self._doing)

    def _progress(self, done: int, total: int) -> None:
        if done >= total:
            self._doing = f"Unpacking {self._file}"
        if total < _MIN_BYTES:
            return
        self._reporter.update(self._file, done, total)
        if done >= total:
            took_s = time.monotonic() - self._started_s
            self._reporter.finish(f"{self._file}: {total / 1e6:.0f} MB in {took_s:.0f} s")


def _packages(count: int) -> str:
    return f"{count} package{'s' * (count != 1)}"


def _short_name(file: str) -> str:
    """Package and version of a file, without what says for which machine it is."""
    name = file.rpartition("/")[2].removesuffix(".metadata")
    return "-".join(name.split("-")[:2]) if name.endswith(".whl") else name.removesuffix(".tar.gz")


def _lines(process: subprocess.Popen[str]) -> Iterator[str | None]:
    """Its lines as they come, and None when there was none for a moment."""
    assert process.stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read(stream: Iterable[str]) -> None:
        for line in stream:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, args=(process.stdout,), daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=_TICK_S)
        except queue.Empty:
            yield None
            continue
        if not line:
            return
        yield line


def main(arguments: list[str]) -> int:
    reporter = ProgressReporter(sys.stdout)
    narrator = Narrator(reporter)
    started_s = time.monotonic()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        pip_command(arguments, version("pip")),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        for line in _lines(process):
            if line is None:
                narrator.tick()
            else:
                narrator.line(line)
        code = process.wait()
    except KeyboardInterrupt:
        code = process.wait()
    took_s = time.monotonic() - started_s
    reporter.finish(
        f"Installed {_packages(narrator.installed)} in {took_s:.0f} s" if narrator.installed else ""
    )
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
