"""A JVM that runs one of Kafka's test classes with JUnit's console launcher, for a bounded time."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TESTS: Final = Path(__file__).parents[1]
_FLAGS: Final = (
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-XX:+EnableDynamicAgentLoading",
)
_CONFIGURATION: Final = {
    "junit.jupiter.extensions.autodetection.enabled": "true",
    "junit.jupiter.execution.timeout.testtemplate.method.default": "180 s",
    "junit.jupiter.execution.timeout.beforeeach.method.default": "120 s",
}
_running: Final[set[subprocess.Popen[bytes]]] = set()


@dataclass(frozen=True, slots=True)
class TestJvm:
    """What the JVMs of one run have in common."""

    __test__ = False

    classpath: str
    listed: Path | None
    """The list of tests to leave out; None to run them all."""
    method: str = ""
    """Run only this method of a class."""


def run_class(jvm: TestJvm, names: list[str], directory: Path, limit_s: float) -> bool:
    """Run test classes, or tests as `class#method`, in one JVM, with JUnit's reports in `directory`.

    False when it was ended at the limit.
    """
    properties = {
        "ottla.python": sys.executable,
        "org.slf4j.simpleLogger.defaultLogLevel": "error",
        "java.io.tmpdir": str(directory),
        **({} if jvm.listed is None else {"ottla.listed": str(jvm.listed)}),
    }
    command = [
        "java",
        *_FLAGS,
        *(f"-D{key}={value}" for key, value in properties.items()),
        *("-cp", jvm.classpath, "org.junit.platform.console.ConsoleLauncher", "execute"),
        *(f"--config={key}={value}" for key, value in _CONFIGURATION.items()),
        *("--reports-dir", str(directory), "--details=testfeed"),
        *("--disable-banner", "--disable-ansi-colors"),
        *(_selector(name, jvm.method) for name in names),
    ]
    path = os.pathsep.join((str(_TESTS), os.environ.get("PYTHONPATH", ""))).strip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}
    with (
        (directory / "console.txt").open("w") as console,
        subprocess.Popen(command, env=environment, stdout=console, stderr=subprocess.STDOUT) as process,
    ):
        _running.add(process)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        finally:
            # The nodes end with the JVM, because it holds their standard input.
            process.kill()
            _running.discard(process)
    return True


def _selector(name: str, method: str) -> str:
    if "#" in name:
        return f"--select-method={name}"
    return f"--select-method={name}#{method}" if method else f"--select-class={name}"


def end_all() -> None:
    """End the JVMs that run: the run itself is being ended."""
    for process in list(_running):
        process.kill()
