"""One place that makes Spark sessions: Java, the connector's jars, and the settings that a pipeline wants."""

from __future__ import annotations

import os
import socket
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.pipeline.class_archive import archive_flags
from ottla.pipeline.failures import PipelineError
from ottla.pipeline.jars import Progress, connector_jars, library_jars, spark_version
from ottla.pipeline.java import Java, find_java
from ottla.pipeline.jvm import java_context, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKPOINTS: Final = "org.apache.spark.sql.execution.streaming.checkpointing"
_MASTER_ANSWERS_S: Final = 5.0
_STATE: Final = "org.apache.spark.sql.execution.streaming.state"

COMMIT_VALIDATION: Final = "spark.sql.streaming.stateStore.commitValidation.enabled"

PIPELINE_SETTINGS: Final[Mapping[str, str]] = {
    # A rename per file instead of a checked one: the two log writes of a micro-batch take 20 ms, not 105.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A driver that dies between a batch's transaction and Spark's log of it: the next one skips the batch, so that no
    # task commits its state again. The state is there, since tasks commit it before the transaction ends. If it were
    # not, the next batch would fail when it loads it.
    COMMIT_VALIDATION: "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    # A worker may take long to start on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
    # A micro-batch broadcasts eight small objects. Each takes a whole block of memory: 4 MB, which is a large object
    # for the collector, so that it marked the heap in every fourth batch.
    "spark.broadcast.blockSize": "128k",
    # A second attempt of a sink's task must not write beside the first.
    "spark.speculation": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""The settings of every session; the reasons are measurements, or comments beside the line."""

JVM_FLAGS: Final = (
    # Planning a micro-batch is much code that runs a few times each: a third of a short run's CPU was the optimizing
    # compiler's. It waits five times longer now. What runs for every record reaches it at once all the same.
    "-XX:Tier4InvocationThreshold=25000",
    "-XX:Tier4MinInvocationThreshold=3000",
    "-XX:Tier4CompileThreshold=75000",
    "-XX:Tier4BackEdgeThreshold=200000",
    # Spark's classes need this much: without it the JVM would collect garbage several times until it is reached.
    "-XX:MetaspaceSize=256m",
    # The results of tasks are kept in blocks of 1 MB: with regions of that size these would be large objects as well.
    "-XX:G1HeapRegionSize=4m",
)
"""Flags of the JVM of Spark's driver; with a local master all tasks run in it too."""

LOW_LATENCY_FLAGS: Final = (
    "-XX:TieredStopAtLevel=1",
    # For processes that Hadoop's local file system still starts, with other masters than a local one.
    "-Djdk.lang.Process.launchMechanism=VFORK",
)
"""Flags for small batches: code that is compiled quickly and not well, processes that start without a helper."""
DRIVER_FLAGS: Final = "spark.driver.extraJavaOptions"
"""Spark's setting for the flags of the driver's JVM."""
SOCKETS: Final = "spark.python.unix.domain.socket"
"""The beginning of Spark's settings for the sockets between its JVM and Python workers."""
_LONGEST_SOCKET_DIRECTORY: Final = 60
"""Spark adds 42 bytes, and a Unix socket's path may have some 100."""
EXECUTOR_FLAGS: Final = "spark.executor.extraJavaOptions"
"""Spark's setting for the flags of the executors' JVMs."""


def spark_session(
    app_name: str,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    packages: Sequence[str] = (),
    low_latency: bool = False,
) -> SparkSession:
    """The Spark session of this process; the first call makes it, and one session serves many queries.

    `master` is Spark's (default: $SPARK_MASTER, else local on all cores). `settings` are Spark's and override Ottla's.
    `packages` are further jars by `group:artifact:version`. `low_latency` is for small batches: the JVM compiles its
    code quickly and not well, so that batches are fast at once and long runs take up to twice as long. With a local
    master, files that Spark writes to this machine get no checksum files beside them::

        spark = spark_session("word-count", master="local[2]", settings={"spark.ui.enabled": "false"})
        spark.range(3).count()
    """
    spark_version()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return _reused(running, master, settings or {})
    master = master or os.environ.get("SPARK_MASTER") or "local[*]"
    check_master(master)
    ours = session_settings(master, packages)
    if low_latency:
        ours[DRIVER_FLAGS] = " ".join((ours[DRIVER_FLAGS], *LOW_LATENCY_FLAGS))
    wanted = {**ours, **(settings or {})}
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise PipelineError(_did_not_start(master, error)) from error
    if "spark.sql.shuffle.partitions" not in wanted:
        # One for each core: Spark's 200 are for large clusters.
        session.conf.set("spark.sql.shuffle.partitions", str(session.sparkContext.defaultParallelism))
    from ottla.pipeline.jvm_tuning import tune_jvm
    from ottla.pipeline.reader import register_reader

    sockets = wanted.get(f"{SOCKETS}.enabled") == "true"
    tune_jvm(session, local=master.startswith("local"), sockets=sockets)
    register_reader(session)
    if low_latency and is_local(master):
        _write_without_checksum_files(session)
    return session


def _write_without_checksum_files(session: SparkSession) -> None:
    """Half as many files for a checkpoint: Hadoop would write a `.crc` file beside each, and start a process for it."""
    hadoop = java_context(session.sparkContext).hadoopConfiguration()
    # One object serves all local files of the process.
    jvm_of(session).org.apache.hadoop.fs.FileSystem.getLocal(hadoop).setWriteChecksum(False)


def session_settings(
    master: str, packages: Sequence[str] = (), progress: Progress | None = None
) -> dict[str, str]:
    """Prepare this process for Spark (Java, Python, address) and give the settings of a session.

    `progress` hears of the connector's jars while they are fetched.
    """
    java = prepare_process(master)
    jars = [*connector_jars(java, progress), *library_jars(java, packages)]
    quiet = Path(__file__).with_name("log4j2.properties").as_uri()
    archive = archive_flags(java)
    return {
        **PIPELINE_SETTINGS,
        DRIVER_FLAGS: " ".join((f"-Dlog4j2.configurationFile={quiet}", *JVM_FLAGS, *archive)),
        **(_unix_sockets() if master.startswith("local") else {}),
        # Executors of another machine do not have the file.
        **({EXECUTOR_FLAGS: " ".join(archive)} if archive and is_local(master) else {}),
        "spark.jars": ",".join(path.as_uri() for path in map(Path, jars)),
    }


def _unix_sockets() -> dict[str, str]:
    """Settings by which the JVM and Python workers talk over Unix sockets; none where those would not be private.

    Over TCP a small task waits 40 ms for an acknowledgement that the other side delays.
    """
    if not hasattr(os, "getuid"):
        return {}
    directory = Path(tempfile.gettempdir(), f"ottla-spark-{os.getuid()}")
    if len(os.fsencode(directory)) > _LONGEST_SOCKET_DIRECTORY:
        return {}
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError:
        return {}
    # Spark has no password on these sockets.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        return {}
    return {
        f"{SOCKETS}.enabled": "true",
        f"{SOCKETS}.dir": str(directory),
        "spark.python.daemon.module": "ottla.pipeline.python_daemon",
    }


def prepare_process(master: str) -> Java:
    """Set the environment in which this process finds Java, Python and its own address; returns the Java."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Also for an application that goes on from a checkpoint, which has the directory in its settings.
    _unix_sockets()
    return java


def check_master(master: str) -> None:
    """Raises at once if a standalone master does not respond; Spark itself would try for a minute first."""
    if not master.startswith("spark://"):
        return
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), _MASTER_ANSWERS_S):
                return
        except (OSError, ValueError) as error:
            reason = error
    raise PipelineError(
        f"no Spark master answers at {master} ({reason}): is it running there? (`ottla spark start-cluster`)"
    )


def is_local(master: str) -> bool:
    """Whether all of Spark is on this machine: local[...], or a standalone master at its own address."""
    return master.startswith("local") or "//127.0.0.1" in master or "//localhost" in master


def _reused(session: SparkSession, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    held = session.sparkContext.master
    if master is not None and master != held:
        raise PipelineError(
            f"this process has a Spark session on {held} already, and there can be one only; it cannot be on {master}"
        )
    for key, value in settings.items():
        if key.startswith("spark.sql.") and session.conf.get(key, None) != value:
            session.conf.set(key, value)
    return session


def _did_not_start(master: str, error: Exception) -> str:
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    return f"no Spark session on {master}: {reason}. `ottla spark doctor --start` looks for the cause"
