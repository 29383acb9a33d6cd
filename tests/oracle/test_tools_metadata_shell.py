"""Our metadata shell beside Kafka's, on the metadata of both systems."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oracle.kafka_tools import needs_java
from oracle.tools_oracle import run_ottla
from oracle.tools_systems import ApachePair
from ottla.testing.apache import LEAN_JVM_FLAGS, VERSION
from ottla.testing.maven import classpath
from ottla.testing.process import BrokerProcess

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

_LOG = "__cluster_metadata-0/00000000000000000000.log"
_LINE = "metadata-shell --snapshot {file}"
_COMMANDS = """
pwd
ls
ls / /image /image/provenance
ls image/topics/byName/*
ls /nothing
cd image
pwd
cd ../image/./topics
pwd
cd name
cd /image/provenance
cd /image
cat provenance
cat /image
cat features/{metadataVersion,finalized_group.version}
cat topics/byName/shell-?/*
find topics/byName
find /nothing
tree /image
tree /nothing
man bogus
bogus
"""


def talk(program: list[str], file: Path) -> list[str]:
    """The output of a shell for all commands."""
    done = subprocess.run(
        [*program, *_LINE.format(file=file).split()[1:]],
        input=_COMMANDS + "exit\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0
    return done.stdout.splitlines()


def fill(bootstrap: str) -> None:
    at = ("--bootstrap-server", bootstrap)
    for name in ("shell-a", "shell-b"):
        run_ottla("topics", *at, "--create", "--topic", name, "--partitions", 2)
    run_ottla("configs", *at, "--alter", "--topic", "shell-a", "--add-config", "retention.ms=5")
    run_ottla("configs", *at, "--alter", "--user", "a(b)", "--add-config", "producer_byte_rate=1024")
    run_ottla("topics", *at, "--create", "--topic", "shell-gone")
    run_ottla("topics", *at, "--delete", "--topic", "shell-gone")


def compare(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "metadata" / log.name
    file.parent.mkdir()
    shutil.copy(log, file)
    jars = classpath(
        f"org.apache.kafka:kafka_2.13:{VERSION}",
        f"org.apache.kafka:kafka-tools:{VERSION}",
        f"org.apache.kafka:kafka-shell:{VERSION}",
    )
    java = ["java", *LEAN_JVM_FLAGS, "-cp", jars, "org.apache.kafka.shell.MetadataShell"]
    ours = talk([sys.executable, "-m", "ottla", "metadata-shell"], file)
    theirs = [line.replace("cordonedDirectories=null", "cordonedDirectories=[]") for line in talk(java, file)]
    assert ours == theirs
    assert any("shell-a" in line for line in ours)
    one_shot = run_ottla("metadata-shell", "--snapshot", file, "cat", "/image/provenance").out.strip()
    assert one_shot in "\n".join(ours)


def test_the_metadata_of_ottla_is_shown_alike(broker: BrokerProcess, tmp_path: Path) -> None:
    fill(broker.bootstrap)
    compare(broker.data / _LOG, tmp_path)


def test_the_metadata_of_apache_kafka_is_shown_alike(apache_pair: ApachePair, tmp_path: Path) -> None:
    fill(apache_pair.bootstrap)
    at = ("--bootstrap-server", apache_pair.bootstrap)
    run_ottla(
        "acls", *at, "--add", "--allow-principal", "User:x", "--topic", "shell-a", "--operation", "Read"
    )
    compare(apache_pair.directory / "one" / "a" / _LOG, tmp_path)


def test_what_is_no_metadata_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "some.log"
    file.write_bytes(b"nothing of the kind" * 10)
    said = run_ottla("metadata-shell", "--snapshot", file, "ls")
    assert said.code == 1 and len(said.err.splitlines()) == 1
    assert run_ottla("metadata-shell", "ls").code == 1
    assert run_ottla("metadata-shell", "--snapshot", tmp_path / "missing", "ls").code == 1
