"""Class paths of Java programs by Maven coordinates: resolved once, then cached."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ottla</groupId><artifactId>classpath</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""


def classpath(*coordinates: str) -> str:
    """Return the class path of `group:artifact:version` artifacts with all dependencies."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ottla"
    cache.mkdir(parents=True, exist_ok=True)
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
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in (escape(one).split(":") for one in coordinates)
    )
    with tempfile.TemporaryDirectory() as directory:
        pom, out = Path(directory, "pom.xml"), Path(directory, "classpath")
        pom.write_text(_POM.format(dependencies=dependencies))
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={out}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )
        if done.returncode != 0:
            raise RuntimeError(f"Maven could not resolve {', '.join(coordinates)}:\n{done.stdout}")
        return out.read_text().strip()
