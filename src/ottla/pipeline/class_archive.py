"""An archive of the classes that Spark's driver loads, from which its JVM starts with a third less CPU.

Java calls this class data sharing. An archive belongs to one Spark and one Java: a JVM that finds other jars, or is of
another build, ignores it. `ottla spark archive` makes it by running a small job and a query with state.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jars import spark_home, spark_version
from ottla.pipeline.java import Java, cache_directory, find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMEOUT_S: Final = 600
_BATCHES: Final = 3


def archive_path(java: Java) -> Path:
    """The file of the archive for the Spark and this Java, whether it exists or not."""
    names = f"{spark_version()} {spark_home().resolve()} {java.home.resolve()}"
    return _directory() / f"{hashlib.sha256(names.encode()).hexdigest()[:16]}.jsa"


def archive_flags(java: Java) -> list[str]:
    """The JVM flags that use the archive, where there is one."""
    archive = archive_path(java)
    # Where the archive does not fit, the JVM would say so on standard output at each start.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"] if archive.exists() else []


def make_archive() -> Path:
    """Make the archive in a process of its own, and return its file. An existing one is replaced."""
    archive = archive_path(find_java())
    archive.parent.mkdir(parents=True, exist_ok=True)
    _remove_orphans()
    # A JVM that starts from an archive cannot make another.
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        made = Path(directory, "classes.jsa")
        command = [sys.executable, "-m", __name__, str(made)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
        if done.returncode != 0 or not made.exists():
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise PipelineError(
                f"no archive of Spark's classes was made: {lines[-1] if lines else 'no reason given'}"
            )
        _home_file(archive).write_text(str(spark_home().resolve()))
        os.replace(made, archive)
    return archive


def _directory() -> Path:
    return cache_directory() / "classes"


def _home_file(archive: Path) -> Path:
    return archive.with_suffix(".home")


def _remove_orphans() -> None:
    """Remove the archives of Sparks that are no longer installed: each has more than 100 MB."""
    for archive in _directory().glob("*.jsa"):
        home = _home_file(archive)
        if not home.exists() or not Path(home.read_text()).is_dir():
            archive.unlink(missing_ok=True)
            home.unlink(missing_ok=True)


def _record(archive: str) -> None:
    """Run what most pipelines run; the JVM writes the classes that it loaded into `archive` when it ends."""
    from ottla.pipeline.session import DRIVER_FLAGS, session_settings, spark_session

    flags = session_settings("local[2]")[DRIVER_FLAGS]
    # The quick compiler is enough for a run of a few seconds.
    flags += f" -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={archive}"
    settings = {"spark.ui.enabled": "false", DRIVER_FLAGS: flags}
    session = spark_session("ottla-archive", master="local[2]", settings=settings)
    _batch_jobs(session)
    with tempfile.TemporaryDirectory() as checkpoint:
        _query_with_state(session, checkpoint)
    gateway = session.sparkContext._gateway
    session.stop()
    if gateway is None:
        raise PipelineError("this Spark runs in no JVM of its own")
    # The JVM ends with its standard input.
    gateway.proc.stdin.close()
    gateway.proc.wait(_TIMEOUT_S)


def _batch_jobs(session: SparkSession) -> None:
    rows = session.range(1000).selectExpr("id", "id % 7 as key", "cast(id as string) as text")
    rows.mapInArrow(lambda batches: batches, rows.schema).groupBy("key").count().orderBy("key").collect()
    rows.join(rows.groupBy("key").agg({"id": "sum"}), "key").where("text like '1%'").toArrow()


def _query_with_state(session: SparkSession, checkpoint: str) -> None:
    written: list[int] = []

    def write(batch: DataFrame, number: int) -> None:
        batch.collect()
        written.append(number)

    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    counts = source.selectExpr("value % 7 as key").groupBy("key").count()
    writer = counts.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
    query = writer.foreachBatch(write).start()
    try:
        while len(written) < _BATCHES and query.isActive:
            query.awaitTermination(1)
    finally:
        query.stop()


if __name__ == "__main__":
    _record(sys.argv[1])
