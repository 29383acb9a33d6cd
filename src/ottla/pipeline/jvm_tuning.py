"""What a session changes in Spark's JVM that no setting changes: work and memory that each micro-batch would cost.

The two classes are compiled by the compiler that Spark compiles queries with, since Ottla has no jar of its own. They
serve the driver's JVM, which with a local master is the only one. Where a change fails, the JVM works as before.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from ottla.pipeline.jvm import java_context, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipeline.jvm import JavaObject

_logger = logging.getLogger(__name__)

DAEMON_MODULE: Final = "ottla.pipeline.python_daemon"

_SWEEP_MS: Final = 60_000
_LOCAL_FILES: Final = "fs.file.impl"


def tune_jvm(session: SparkSession, *, local: bool, sockets: bool) -> None:
    """Change the JVM of a new session. `local`: all tasks run in it; `sockets`: over Unix sockets."""
    changes = [forget_origins]
    if local:
        changes.append(use_local_files)
    if sockets:
        changes += [sweep_sockets, use_one_daemon]
    for change in changes:
        try:
            change(session)
        except Py4JError as error:
            _logger.debug("%s: %s", change.__name__, error)


def forget_origins(session: SparkSession) -> None:
    """Forget which file each of Hadoop's 500 settings is from: nothing asks.

    Each batch broadcasts the settings several times, and compresses the origin of each one by itself: five sixths of
    the time that a broadcast takes.
    """
    hadoop = java_context(session.sparkContext).hadoopConfiguration()
    # They are there after the first look at the settings.
    hadoop.size()
    origins = hadoop.getClass().getDeclaredField("updatingResource")
    origins.setAccessible(True)
    origins.get(hadoop).clear()


def use_local_files(session: SparkSession) -> None:
    """Let the JVM set the permissions of local files. Hadoop starts `chmod` for each of them: 4 ms, seven a batch."""
    jvm, hadoop = jvm_of(session), java_context(session.sparkContext).hadoopConfiguration()
    if hadoop.get(_LOCAL_FILES):
        # The user has chosen a class.
        return
    made = _compiled(session, "LocalFiles")
    ours = jvm.org.apache.hadoop.conf.Configuration(hadoop)
    ours.setClassLoader(made.getClassLoader())
    ours.set(_LOCAL_FILES, made.getName())
    file_systems, root = jvm.org.apache.hadoop.fs.FileSystem, jvm.java.net.URI.create("file:///")
    # One object serves all local files. It leaves Hadoop's cache when it closes, and the next one takes its place.
    file_systems.get(root, hadoop).close()
    file_systems.get(root, ours)


def sweep_sockets(session: SparkSession) -> None:
    """Once a minute forget the sockets of finished tasks: the JVM would keep all their paths until it ends."""
    _compiled(session, "ClosedSockets").newInstance().sweepEvery(_SWEEP_MS)


def use_one_daemon(session: SparkSession) -> None:
    """Let Ottla's daemon serve the workers that plan reads of Python data sources, too: no setting names theirs.

    Spark closes the sockets of idle ones after a minute, and its own daemon prints a trace for each of them.
    """
    classes = jvm_of(session).java.lang.Class
    the_only = classes.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe")
    the_only.setAccessible(True)
    unsafe = the_only.get(None)
    module = classes.forName("org.apache.spark.api.python.PythonWorkerFactory$").getDeclaredField(
        "defaultDaemonModule"
    )
    unsafe.putObject(unsafe.staticFieldBase(module), unsafe.staticFieldOffset(module), DAEMON_MODULE)


def _compiled(session: SparkSession, name: str) -> JavaObject:
    """One of our classes, from its source."""
    jvm = jvm_of(session)
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(Path(__file__).with_name(f"{name}.java").read_text())
    return compiler.getClassLoader().loadClass(f"ottla.{name}")
