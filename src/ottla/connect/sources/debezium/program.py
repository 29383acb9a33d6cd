"""The jars of Debezium, and the program that runs its engine.

Jars are fetched by their coordinates, as those of Spark are. The program is compiled once, by Eclipse's compiler, which
runs on any Java: a runtime without a compiler is enough.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.connect.failures import TaskFailed
from ottla.pipeline.failures import JarsMissing, JavaMissing, PipelineError
from ottla.pipeline.jars import library_jars
from ottla.pipeline.java import Java, cache_directory, find_java

_SOURCE: Final = Path(__file__).with_name("EngineHost.java")
_MAIN: Final = "EngineHost"
_COMPILER: Final = "org.eclipse.jdt:ecj:3.33.0"
_LOGGER: Final = "org.slf4j:slf4j-simple:1.7.36"
_COMPILE_TIMEOUT_S: Final = 120
_QUIET: Final = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=false",
)


@dataclass(frozen=True, slots=True)
class Product:
    """One of Debezium's connectors: where its jars are, and the driver that its licence keeps out of them."""

    class_name: str
    artifact: str
    version: str
    driver: str | None = None


PRODUCTS: Final = tuple(
    Product(f"io.debezium.connector.{name}", f"debezium-connector-{artifact}", version, driver)
    for name, artifact, version, driver in (
        ("sqlserver.SqlServerConnector", "sqlserver", "3.6.1.Final", None),
        ("oracle.OracleConnector", "oracle", "3.6.1.Final", "com.oracle.database.jdbc:ojdbc11"),
        ("db2.Db2Connector", "db2", "3.6.1.Final", "com.ibm.db2:jcc"),
        ("mongodb.MongoDbConnector", "mongodb", "3.6.1.Final", None),
        ("informix.InformixConnector", "informix", "3.5.0.Final", "com.ibm.informix:jdbc"),
        ("db2as400.As400RpcConnector", "ibmi", "3.5.0.Final", None),
        ("vitess.VitessConnector", "vitess", "3.5.0.Final", None),
        ("spanner.SpannerConnector", "spanner", "3.6.3.Final", None),
        ("postgresql.PostgresConnector", "postgres", "3.6.3.Final", None),
        ("mysql.MySqlConnector", "mysql", "3.6.1.Final", None),
        ("mariadb.MariaDbConnector", "mariadb", "3.5.0.Final", None),
    )
)
"""Each with the newest version that is published for it. Ottla has its own for the last three."""


def product_of(class_name: str) -> Product | None:
    """The connector of that class, by its full or simple name."""
    for one in PRODUCTS:
        simple = one.class_name.rpartition(".")[2]
        if class_name in (one.class_name, simple, simple.removesuffix("Connector")):
            return one
    return None


def command(product: Product, libraries: Sequence[str], options: Sequence[str]) -> list[str]:
    """The command that runs the engine; TaskFailed with what is missing."""
    try:
        java = find_java()
        coordinates = [f"io.debezium:debezium-embedded:{product.version}", _LOGGER]
        if product.artifact:
            coordinates.insert(0, f"io.debezium:{product.artifact}:{product.version}")
        files = [one for one in libraries if one.endswith(".jar")]
        for one in files:
            if not Path(one).is_file():
                raise TaskFailed(f"ottla.debezium.jars: there is no file {one}")
        jars = library_jars(java, [*coordinates, *(one for one in libraries if one not in files)])
        path = os.pathsep.join([*map(str, jars), *files])
        classes = _compiled(java, path)
    except JavaMissing as error:
        raise TaskFailed(
            f"Debezium's engine runs on Java: {str(error).replace('Spark needs', 'it needs')}"
        ) from None
    except (JarsMissing, PipelineError) as error:
        raise TaskFailed(
            f"Debezium's engine is fetched with the libraries of the extra spark: {error}"
        ) from None
    program = str(java.home / "bin" / "java")
    return [program, *options, *_QUIET, "-cp", f"{classes}{os.pathsep}{path}", _MAIN]


def _compiled(java: Java, path: str) -> Path:
    """The folder of the compiled program, for these jars."""
    name = hashlib.sha256(_SOURCE.read_bytes() + path.encode() + str(java.version).encode()).hexdigest()[:16]
    folder = cache_directory() / "debezium" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        (compiler,) = library_jars(java, [_COMPILER])
        work = folder.with_suffix(".work")
        shutil.rmtree(work, ignore_errors=True)
        words = [
            *(str(java.home / "bin" / "java"), "-cp", str(compiler)),
            "org.eclipse.jdt.internal.compiler.batch.Main",
            *(
                "-17",
                "-proc:none",
                "-nowarn",
                "-encoding",
                "UTF-8",
                "-d",
                str(work),
                "-cp",
                path,
                str(_SOURCE),
            ),
        ]
        made = subprocess.run(words, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False)
        if made.returncode:
            raise TaskFailed(
                f"the program around Debezium's engine does not fit these jars:\n{made.stderr[-2000:]}"
            )
        work.rename(folder)
    return folder
