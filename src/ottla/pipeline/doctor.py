"""Checks what a pipeline needs on a machine, piece by piece."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from ottla.pipeline.class_archive import archive_path
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jars import cached_connector_jars, connector_jars, spark_home, spark_version
from ottla.pipeline.java import find_java
from ottla.pipeline.session import spark_session

_LIBRARIES = ("pyarrow", "pandas", "protobuf")


@dataclass(frozen=True, slots=True)
class Finding:
    """The check of one piece: its name, whether it is good, and a sentence about it."""

    what: str
    good: bool
    text: str


def examine(*, start: bool = False) -> Iterator[Finding]:
    """Checks each piece, and fetches the jars if they are missing; with `start`, also runs a job in a session."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("Python", platform.python_version),
        ("Spark", lambda: f"{spark_version()} at {spark_home()}"),
        ("libraries", _libraries),
        ("Java", _java),
        ("connector", _connector),
        ("archive", _archive),
    ]
    if start:
        checks.append(("session", _session))
    for what, check in checks:
        try:
            yield Finding(what, True, check())
        except PipelineError as error:
            yield Finding(what, False, str(error))


def _libraries() -> str:
    found = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            raise PipelineError(f"{name} is not installed: `pip install 'ottla[spark]'`") from None
    return ", ".join(found)


def _java() -> str:
    java = find_java()
    return f"{java.version} from {java.source} ({java.home})"


def _connector() -> str:
    how = "in the cache" if cached_connector_jars() is not None else "fetched now"
    jars = connector_jars(find_java())
    return f"{how}: {', '.join(jar.name for jar in jars)}"


def _archive() -> str:
    archive = archive_path(find_java())
    if archive.exists():
        return f"Spark starts from the archive of its classes {archive}"
    return "none: `ottla spark archive` makes one, and Spark then starts with a third less CPU"


def _session() -> str:
    session = spark_session("ottla-doctor", settings={"spark.ui.enabled": "false"})
    try:
        counted = session.range(1000).repartition(2).mapInArrow(lambda batches: batches, "id long").count()
        if counted != 1000:
            raise PipelineError(f"a job that counts 1,000 rows counted {counted}")
        return f"a job on {session.sparkContext.master} ran, with Python in it"
    finally:
        session.stop()
