"""`make test-connect-suite`: Apache Kafka's own published tests of Connect, on Ottla brokers and `ottla connect`.

Two of Kafka's helper classes are shadowed: KafkaClusterTestKit (brokers) and WorkerHandle (workers). Its
EmbeddedConnectCluster and EmbeddedKafkaCluster run unchanged on top of them, so any test that uses these can run here:
`compiled_for_connect` gives the class path. Twins of Kafka's test connectors are in `connect_plugins`.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

from kafka_suite import jars, run
from kafka_suite.jvm import TestJvm
from kafka_suite.report import summary
from ottla.testing.apache import VERSION
from ottla.testing.maven import classpath

JAVA: Final = Path(__file__).parent / "connect_java"
PLUGINS: Final = Path(__file__).parent / "connect_plugins"
LISTED: Final = Path(__file__).with_name("connect_cannot_run.tsv")
_TESTS: Final = ("connect-runtime", "connect-file", "connect-mirror", "kafka-clients", "kafka-server-common")
_ARTIFACTS: Final = (
    *("connect-runtime", "connect-file", "connect-mirror", "connect-json", "connect-transforms"),
    *("connect-basic-auth-extension", "kafka_2.13", "kafka-tools", "kafka-streams"),
    *("kafka-test-common-runtime", "kafka-test-common-internal-api", "kafka-test-common-util"),
)
CLASSES: Final = (
    "org.apache.kafka.connect.file.integration.FileStreamSourceConnectorIntegrationTest",
    "org.apache.kafka.connect.file.integration.FileStreamSinkConnectorIntegrationTest",
    "org.apache.kafka.connect.integration.OffsetsApiIntegrationTest",
    "org.apache.kafka.connect.integration.ConnectorValidationIntegrationTest",
    "org.apache.kafka.connect.mirror.integration.MirrorConnectorsIntegrationBaseTest",
    "org.apache.kafka.connect.mirror.integration.IdentityReplicationIntegrationTest",
    "org.apache.kafka.connect.mirror.integration.MirrorConnectorsIntegrationTransactionsTest",
)
_SERVICE: Final = "META-INF/services/org.junit.jupiter.api.extension.Extension"


@functools.cache
def connect_classpath() -> str:
    """Kafka Connect and Mirror with their tests, JUnit and Mockito."""
    return classpath(
        *(f"org.apache.kafka:{name}:{VERSION}:test" for name in _TESTS),
        *(f"org.apache.kafka:{name}:{VERSION}" for name in _ARTIFACTS),
        "org.junit.jupiter:junit-jupiter:5.13.1",
        "org.junit.platform:junit-platform-console:1.13.1",
        "org.mockito:mockito-core:5.18.0",
        "org.mockito:mockito-junit-jupiter:5.18.0",
        "org.hamcrest:hamcrest:3.0",
        "org.slf4j:slf4j-simple:1.7.36",
    )


def compiled_for_connect(build: Path) -> str:
    """Compile our classes into `build` and return the class path on which they come first."""
    path = connect_classpath()
    build.mkdir(parents=True, exist_ok=True)
    sources = sorted(str(source) for folder in (jars.JAVA, JAVA) for source in folder.glob("*.java"))
    subprocess.run(["javac", "-nowarn", "-d", str(build), "-cp", path, *sources], check=True)
    # Kafka's TestPlugins compiles the sources of its plugins, which must be files and not entries of a jar.
    [jar] = [one for one in path.split(os.pathsep) if one.endswith(f"connect-runtime-{VERSION}-test.jar")]
    with zipfile.ZipFile(jar) as packed:
        packed.extractall(build, [one for one in packed.namelist() if one.startswith("test-plugins/")])
    service = build / _SERVICE
    service.parent.mkdir(parents=True, exist_ok=True)
    service.write_text("ottla.kafkasuite.ListedTests\n")
    return os.pathsep.join((str(build), path))


def main() -> None:
    """Run what the arguments select, print the summary, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression; the class names to run")
    parser.add_argument("--method", default="", help="only this method of the classes")
    parser.add_argument("--all", action="store_true", help="run the listed tests as well")
    parser.add_argument("--class-limit", type=float, default=900, metavar="SECONDS", help="for one class")
    parser.add_argument("--out", type=Path, default=run.ROOT / "build" / "connect-suite")
    options = parser.parse_args()
    # As an exception it also ends the JVM of the class that runs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    reports = options.out / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    # The JVM's own variable: `run_class` is shared with the suite of the brokers, which has no plugins.
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Dottla.plugins={PLUGINS}"
    jvm = TestJvm(
        compiled_for_connect(options.out / "classes"), None if options.all else LISTED, options.method
    )
    classes = run.by_outer_class(name for name in CLASSES if re.search(options.only, name, re.IGNORECASE))
    outcomes = run.run_all(classes, jvm, reports, run.Limits(options.class_limit, 3600))
    sys.stdout.write(summary(outcomes))
    sys.exit(any(outcome.state == "failed" for outcome in outcomes) or not outcomes)


if __name__ == "__main__":
    main()
