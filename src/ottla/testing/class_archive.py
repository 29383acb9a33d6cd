"""An archive of Apache Kafka's classes, from which the JVMs of tests start in half of the time.

`make test` makes it once; a JVM with other jars or of another version ignores it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from ottla.testing.maven import cache_directory

_TRAINING: Final = Path(__file__).with_name("Training.java")
_TIMEOUT_S: Final = 300


def archive_flags(name: str) -> list[str]:
    """The flags that make a JVM read the archive of this name, where it was made."""
    archive = _path(name)
    # The JVM would tell on standard output why it ignores an archive.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []


def _path(name: str) -> Path:
    return cache_directory() / f"{name}.jsa"


def make_kafka_archive() -> None:
    """Run a broker and clients of each kind in one JVM, and keep the classes that they loaded."""
    from ottla.testing.apache import ARCHIVE, LEAN_JVM_FLAGS, ApacheKafka, kafka_classpath

    if archive_flags(ARCHIVE):
        return
    with tempfile.TemporaryDirectory(dir=cache_directory()) as directory:
        node = ApacheKafka(Path(directory, "node"))
        node.format()
        made = Path(directory, "classes.jsa")
        flags = [*LEAN_JVM_FLAGS, f"-XX:ArchiveClassesAtExit={made}"]
        program = [str(_TRAINING), str(node.properties), node.bootstrap]
        command = ["java", *flags, "-cp", kafka_classpath(), *program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(program)} ended with {done.returncode}:\n{done.stderr}")
        os.replace(made, _path(ARCHIVE))
