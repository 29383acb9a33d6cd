"""`ottla storage format` writes what kafka-storage writes: the same files with the same records."""

import re

import pytest
from click.testing import CliRunner

from oracle.kafka_tools import dump_log, needs_java, run_tool
from ottla.cli.main import main

pytestmark = [needs_java, pytest.mark.java, pytest.mark.slow]

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY = "JEXY6aqzQY-32P5TStzaFg"
_VARYING = re.compile(r"(CreateTime|lastContainedLogTimestamp\"|crc): ?\d+|Dumping .*|:\d{13}")


def properties(directory, quorum):
    path = directory / "server.properties"
    path.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        f"{quorum}\nlog.dirs={directory}/a,{directory}/b\n"
    )
    return path


def content(directory):
    """Every file below a directory: checkpoints as Kafka's tool prints them, without times and checksums."""
    found = {}
    for path in sorted(p for p in directory.rglob("*") if p.is_file() and p.name != "server.properties"):
        if path.suffix == ".checkpoint":
            text = _VARYING.sub("", dump_log(path, cluster_metadata=True))
        else:
            text = sorted(line for line in path.read_text().splitlines() if not line.startswith("#"))
            text = [line for line in text if not line.startswith("directory.id") or path.parent.name == "a"]
        found[str(path.relative_to(directory))] = text
    return found


@pytest.mark.parametrize(
    ("quorum", "options"),
    [
        ("controller.quorum.bootstrap.servers=localhost:9093", ["-I", f"1@localhost:9093:{DIRECTORY}"]),
        (
            "controller.quorum.bootstrap.servers=localhost:9093",
            ["-I", f"1@localhost:9093:{DIRECTORY}", "-r", "4.0", "-f", "group.version=0"],
        ),
    ],
)
def test_both_write_the_same(tmp_path, quorum, options):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for directory in (theirs, ours):
        directory.mkdir()
    run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", properties(theirs, quorum), *options)
    words = ["storage", "format", "-t", CLUSTER, "-c", str(properties(ours, quorum)), *options]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert content(ours) == content(theirs)
