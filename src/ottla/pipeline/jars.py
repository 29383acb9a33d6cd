"""The jars of Spark's Kafka connector: fetched once by their coordinates and kept, so that later runs work offline.

Ivy comes with PySpark. The connector has the version of the installed Spark. Its token provider is not published for
every version; an older one works too.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from ottla.pipeline.failures import JarsMissing, PipelineError
from ottla.pipeline.java import Java, cache_directory
from ottla.pipeline.progress import ProgressReporter

SCALA: Final = "2.13"
_GROUP: Final = "org.apache.spark"
_CONNECTOR: Final = f"spark-sql-kafka-0-10_{SCALA}"
_TOKEN_PROVIDER: Final = f"spark-token-provider-kafka-0-10_{SCALA}"
_OLDER_TOKEN_PROVIDERS: Final = ("4.0.0", "4.1.0-preview1")
_NEEDED: Final = (_CONNECTOR, _TOKEN_PROVIDER, "kafka-clients", "commons-pool2")
_FETCH_TIMEOUT_S: Final = 600
_POLL_S: Final = 0.25
_CONNECTOR_BYTES: Final = 11_200_000
"""The bytes that Ivy fetches for the connector of Spark 4.2, for the estimate of the time left."""

Progress = Callable[[str, int, int | None], None]
"""Takes what is fetched, the bytes so far, and those that are expected if that is known."""

SPARK_AVRO: Final = f"{_GROUP}:spark-avro_{SCALA}:4.1.1"
"""Spark's reader of Avro. It is not published for Spark 4.2; this one is for 4.1, and tests run it with 4.2."""

_SPARK_HAS: Final = (
    (_GROUP, f"spark-tags_{SCALA}"),
    ("org.scala-lang", "*"),
    ("org.scala-lang.modules", "*"),
)
# Spark has these itself, or does not use them here.
_LEFT_OUT: Final = (
    *_SPARK_HAS,
    (_GROUP, _TOKEN_PROVIDER),
    ("org.apache.hadoop", "*"),
    ("org.slf4j", "*"),
    ("org.lz4", "*"),
    ("at.yawk.lz4", "*"),
    ("org.xerial.snappy", "*"),
    ("com.github.luben", "*"),
    ("com.google.code.findbugs", "*"),
)

SETTINGS_VARIABLE: Final = "OTTLA_IVY_SETTINGS"
"""The environment variable that names an Ivy settings file, for a repository of your own."""


def spark_version() -> str:
    """The version of the PySpark that is installed."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise PipelineError("Spark is not installed: `pip install 'ottla[spark]'`") from None


def spark_home() -> Path:
    """The folder of the Spark to use: SPARK_HOME's, or the one that PySpark carries."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PipelineError("Spark is not installed: `pip install 'ottla[spark]'`")
    return Path(spec.origin).parent


def connector_directory() -> Path:
    """The directory of the connector's jars of this Spark."""
    return cache_directory() / f"connector-{spark_version()}"


def connector_jars(java: Java, progress: Progress | None = None) -> list[Path]:
    """The jars, from the cache or else from Maven's repository."""
    if (jars := cached_connector_jars()) is not None:
        return jars
    spark, directory = spark_version(), connector_directory()
    with _locked(directory):
        if (jars := cached_connector_jars()) is not None:
            return jars
        output = ""
        fetch = _Fetch("the Kafka connector", _CONNECTOR_BYTES, progress)
        for token_provider in (spark, *_OLDER_TOKEN_PROVIDERS):
            module = [
                _dependency(_GROUP, _CONNECTOR, spark, excluded=_LEFT_OUT),
                _dependency(_GROUP, _TOKEN_PROVIDER, token_provider, transitive=False),
            ]
            output = _retrieve(java, module, directory, fetch)
            if (jars := cached_connector_jars()) is not None:
                return jars
        raise JarsMissing(_why(output, f"{_GROUP}:{_CONNECTOR}:{spark}"))


def cached_connector_jars() -> list[Path] | None:
    """The jars if all of them are here."""
    found = sorted(connector_directory().glob("*.jar"))
    complete = all(any(jar.name.startswith(f"{name}-") for jar in found) for name in _NEEDED)
    return found if complete else None


def library_jars(java: Java, coordinates: Sequence[str]) -> list[Path]:
    """Other jars by `group:artifact:version`, with what they depend on: a JDBC driver, for one."""
    jars: list[Path] = []
    for one in coordinates:
        group, artifact, revision = one.split(":")
        directory = cache_directory() / "libraries" / one.replace(":", "-")
        with _locked(directory):
            output = ""
            if not any(directory.glob(f"{artifact}-*.jar")):
                wanted = _dependency(group, artifact, revision, excluded=_SPARK_HAS)
                output = _retrieve(java, [wanted], directory, _Fetch(artifact))
            found = sorted(directory.glob("*.jar"))
        if not found:
            raise JarsMissing(_why(output, one))
        jars += found
    return jars


def _dependency(
    group: str,
    artifact: str,
    revision: str,
    *,
    transitive: bool = True,
    excluded: Sequence[tuple[str, str]] = (),
) -> str:
    excludes = "".join(f"<exclude org={quoteattr(org)} module={quoteattr(name)}/>" for org, name in excluded)
    return (
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(revision)}"
        f' conf="default->{"default" if transitive else "master"}">{excludes}</dependency>'
    )


class _Fetch:
    """Ivy at work, with its progress by the size of its cache; on standard error unless a caller wants it."""

    def __init__(self, what: str, expected: int | None = None, progress: Progress | None = None) -> None:
        self._name = f"Fetching {what}"
        self._expected = expected
        self._progress = progress
        self._cache = cache_directory() / "ivy"
        self._size_before = _size(self._cache)

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        """Ivy's exit code and output."""
        reporter = ProgressReporter()
        progress = self._progress or reporter.update
        deadline = time.monotonic() + _FETCH_TIMEOUT_S
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while True:
            try:
                output, _ = process.communicate(timeout=_POLL_S)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    process.kill()
                    process.communicate()
                    return 1, "the repository did not answer in time"
                progress(self._name, _size(self._cache) - self._size_before, self._expected)
        reporter.finish()
        return process.returncode, output


def _size(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        # Ivy renames what it has fetched completely.
        with suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _retrieve(java: Java, dependencies: Sequence[str], directory: Path, fetch: _Fetch) -> str:
    """Have Ivy fetch them; all or nothing comes to stand in the directory. What Ivy said comes back."""
    work = directory.with_name(f"{directory.name}.{os.getpid()}")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    module = work / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="ottla" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>"
    )
    command = [
        *(str(java.home / "bin" / "java"), "-jar", str(_ivy()), "-warn"),
        *("-cache", str(cache_directory() / "ivy"), "-ivy", str(module), "-confs", "default"),
        *("-types", "jar", "bundle", "-retrieve", str(work / "[artifact]-[revision].[ext]")),
    ]
    if settings := os.environ.get(SETTINGS_VARIABLE):
        command += ["-settings", settings]
    try:
        code, output = fetch.run(command)
        if code == 0 and "UNRESOLVED" not in output:
            module.unlink()
            shutil.rmtree(directory, ignore_errors=True)
            work.rename(directory)
        return output
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _ivy() -> Path:
    found = sorted((spark_home() / "jars").glob("ivy-*.jar"))
    if not found:
        raise JarsMissing(f"the Spark at {spark_home()} has no Ivy to fetch the Kafka connector with")
    return found[-1]


def _why(output: str, what: str) -> str:
    missing = re.findall(r"::\s+(\S+#\S+;\S+): not found", output)
    if (
        "UnknownHost" in output
        or "ConnectException" in output
        or "timed out" in output
        or "in time" in output
    ):
        reason = "there is no network to fetch them from"
    elif missing:
        reason = f"the repository has no {', '.join(dict.fromkeys(missing))}"
    else:
        reason = output.strip().splitlines()[-1] if output.strip() else "Ivy gave no reason"
    return (
        f"the jars of {what} are not here, and {reason}. Run `ottla spark doctor` once with network (or set "
        f"{SETTINGS_VARIABLE} to an Ivy settings file of a repository that has them); after that it works offline"
    )


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
