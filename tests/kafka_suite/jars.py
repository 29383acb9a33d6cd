"""Kafka's published test jars: where they are, which classes in them are cluster tests, and our classes before them."""

from __future__ import annotations

import functools
import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla.testing.apache import VERSION
from ottla.testing.maven import classpath

JAVA: Final = Path(__file__).parent / "java"
SUITES: Final = (
    "kafka-clients-integration-tests",
    "kafka_2.13",
    "kafka-tools",
    "kafka-server",
    "kafka-group-coordinator",
    "kafka-storage",
    "kafka-metadata",
    "kafka-transaction-coordinator",
    "kafka-share-coordinator",
)
"""The artifacts whose test jars hold cluster tests."""
_HELPERS: Final = (
    "kafka-clients",
    "kafka-server-common",
    "kafka-raft",
    "kafka-coordinator-common",
    "kafka-storage-api",
)
"""Artifacts whose test jars only help other tests."""
_MARK: Final = b"Lorg/apache/kafka/common/test/api/ClusterTe"
"""How a class file names the annotations @ClusterTest, @ClusterTests and @ClusterTemplate."""
_SERVICE: Final = "META-INF/services/org.junit.jupiter.api.extension.Extension"


@functools.cache
def suite_classpath() -> str:
    """All of Kafka with its tests, JUnit and Mockito."""
    kafka = [f"org.apache.kafka:{name}:{VERSION}:test" for name in (*SUITES, *_HELPERS)]
    return classpath(
        *kafka,
        f"org.apache.kafka:kafka_2.13:{VERSION}",
        f"org.apache.kafka:kafka-tools:{VERSION}",
        f"org.apache.kafka:kafka-streams:{VERSION}",
        *(
            f"org.apache.kafka:kafka-test-common-{name}:{VERSION}"
            for name in ("runtime", "internal-api", "util")
        ),
        "org.junit.jupiter:junit-jupiter:5.13.1",
        "org.junit.platform:junit-platform-console:1.13.1",
        "org.mockito:mockito-core:5.18.0",
        "org.mockito:mockito-junit-jupiter:5.18.0",
        "org.hamcrest:hamcrest:3.0",
        "junit:junit:4.13.2",
        "org.slf4j:slf4j-simple:1.7.36",
    )


def compiled(build: Path) -> str:
    """Compile our classes into `build` and return the class path on which they come first."""
    path = suite_classpath()
    build.mkdir(parents=True, exist_ok=True)
    sources = sorted(str(source) for source in JAVA.glob("*.java"))
    subprocess.run(["javac", "-nowarn", "-d", str(build), "-cp", path, *sources], check=True)
    service = build / _SERVICE
    service.parent.mkdir(parents=True, exist_ok=True)
    service.write_text("ottla.kafkasuite.ListedTests\n")
    return os.pathsep.join((str(build), path))


def cluster_tests() -> Iterator[str]:
    """The names of all classes in the test jars that are cluster tests."""
    for jar in suite_classpath().split(os.pathsep):
        if not jar.endswith(f"-{VERSION}-test.jar"):
            continue
        with zipfile.ZipFile(jar) as classes:
            for entry in classes.namelist():
                if entry.endswith(".class") and _MARK in classes.read(entry):
                    yield entry.removesuffix(".class").replace("/", ".")
