"""Class paths of Java programs by Maven coordinates: resolved once, then cached."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from ottla.pipeline.progress import ProgressReporter

_TIMEOUT_S: Final = 900
_LAST_LINES: Final = 50
_DOWNLOADING: Final = re.compile(r"Downloading from \S+: ")
_DOWNLOADED: Final = re.compile(r"Downloaded from .* \((?P<number>[\d.]+) (?P<unit>[kMG]?B) at ")
_UNITS: Final = {"B": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId><artifactId>classpath</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""


def cache_directory() -> Path:
    """Where resolved class paths and archives of classes are kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ottla"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def classpath(*coordinates: str) -> str:
    """Return the class path of `group:artifact:version[:classifier]` artifacts with all dependencies."""
    cache = cache_directory()
    remembered = cache / f"classpath-{hashlib.sha256(' '.join(coordinates).encode()).hexdigest()[:16]}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if remembered.exists():
            path = remembered.read_text()
            if all(Path(jar).exists() for jar in path.split(os.pathsep)):
                return path
        path = _resolve(coordinates)
        remembered.write_text(path)
        return path


def _resolve(coordinates: tuple[str, ...]) -> str:
    dependencies = "".join(map(_dependency, coordinates))
    with tempfile.TemporaryDirectory() as directory:
        pom, out = Path(directory, "pom.xml"), Path(directory, "classpath")
        pom.write_text(_POM.format(dependencies=dependencies))
        code, printed = _run(
            ["mvn", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={out}"],
            f"Fetching {', '.join(one.split(':')[1] for one in coordinates)}",
        )
        if code != 0:
            raise RuntimeError(f"Maven could not resolve {', '.join(coordinates)}:\n{printed}")
        return out.read_text().strip()


def _dependency(coordinates: str) -> str:
    tags = ("groupId", "artifactId", "version", "classifier")
    words = zip(tags, escape(coordinates).split(":"), strict=False)
    return "<dependency>" + "".join(f"<{tag}>{word}</{tag}>" for tag, word in words) + "</dependency>"


def _run(command: list[str], name: str) -> tuple[int, str]:
    """Maven's exit code and its last lines; its downloads are shown as progress on standard error."""
    reporter = ProgressReporter()
    last: deque[str] = deque(maxlen=_LAST_LINES)
    fetched = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        watchdog = threading.Timer(_TIMEOUT_S, process.kill)
        watchdog.start()
        assert process.stdout is not None
        for line in process.stdout:
            if size := _DOWNLOADED.search(line):
                fetched += int(float(size["number"]) * _UNITS[size["unit"]])
                reporter.update(name, fetched)
            elif not _DOWNLOADING.search(line):
                last.append(line)
        code = process.wait()
        watchdog.cancel()
    reporter.finish(f"{name}: {fetched / _UNITS['MB']:.0f} MB" if fetched else "")
    return code, "".join(last)


def main() -> None:
    """Fetch Apache Kafka for the tests that compare with it, and archive its classes: none of them waits for that."""
    from ottla.testing.apache import java_is_here, kafka_classpath
    from ottla.testing.class_archive import make_kafka_archive

    if java_is_here():
        kafka_classpath()
        try:
            make_kafka_archive()
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            sys.stderr.write(f"The tests start Apache Kafka without an archive of its classes: {error}\n")
    else:
        sys.stderr.write("Java or Maven is missing: tests that compare with Apache Kafka are skipped\n")


if __name__ == "__main__":
    main()
