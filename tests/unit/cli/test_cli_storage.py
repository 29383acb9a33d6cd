"""`ottla storage`: kafka-storage's commands on real directories."""

import base64
import hashlib
import hmac
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.broker.storage_format import read_bootstrap_records
from ottla.cli.main import main
from ottla.cli.scram import parse_scram
from ottla.config.properties import parse_properties
from ottla.errors import ApiException
from ottla.log.fs import OsFs
from ottla.wire.uuid import uuid_from_str

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
VOTERS_FILE = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def run(*words):
    return CliRunner().invoke(main, ["storage", *map(str, words)])


@pytest.fixture
def properties(tmp_path):
    """A properties file for two directories; `change` adds or replaces keys."""

    def write(**changes):
        keys = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
            **{key.replace("_", "."): value for key, value in changes.items()},
        }
        path = tmp_path / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        return path

    return write


def levels(directory):
    records: Any = read_bootstrap_records(OsFs(), str(directory))
    return {r.name: r.feature_level for r in records}


def test_standalone_format(tmp_path, properties):
    result = run("format", "-t", CLUSTER, "-c", properties(), "--standalone")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"Formatting dynamic metadata voter directory {tmp_path}/a with metadata.version 4.3-IV0.",
        f"Formatting data directory {tmp_path}/b with metadata.version 4.3-IV0.",
    ]
    ids = set()
    for name in ("a", "b"):
        meta = parse_properties((tmp_path / name / "meta.properties").read_text())
        ids.add(meta.pop("directory.id"))
        assert meta == {"cluster.id": CLUSTER, "node.id": "1", "version": "1"}
        assert levels(tmp_path / name) == {
            "metadata.version": 30,
            "eligible.leader.replicas.version": 1,
            "group.version": 1,
            "share.version": 1,
            "streams.version": 1,
            "transaction.version": 2,
        }
    assert len(ids) == 2
    assert (tmp_path / "a" / VOTERS_FILE).exists()
    assert not (tmp_path / "b" / VOTERS_FILE).exists()


def test_static_format(tmp_path, properties):
    file = properties(controller_quorum_voters="1@localhost:9093", controller_quorum_bootstrap_servers="")
    result = run("format", "-t", CLUSTER, "-c", file)
    assert f"Formatting metadata directory {tmp_path}/a " in result.stdout
    assert not (tmp_path / "a" / VOTERS_FILE).exists()


def test_a_formatted_directory_is_refused_or_skipped(tmp_path, properties):
    file = properties(log_dirs=str(tmp_path / "a"))
    assert run("format", "-t", CLUSTER, "-c", file, "-s").exit_code == 0
    file = properties()
    again = run("format", "-t", CLUSTER, "-c", file, "-s")
    assert again.exit_code == 1
    assert again.stderr == (
        f"ottla: Log directory {tmp_path}/a is already formatted. Use --ignore-formatted to ignore this "
        "directory and format the others.\n"
    )
    assert not (tmp_path / "b").exists()
    assert run("format", "-t", CLUSTER, "-c", file, "-s", "-g").stdout == (
        f"Formatting data directory {tmp_path}/b with metadata.version 4.3-IV0.\n"
    )
    assert run("format", "-t", CLUSTER, "-c", file, "-s", "-g").stdout == (
        "All of the log directories are already formatted.\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give one of --standalone, --initial-controllers and --no-initial-controllers"),
        (["-s", "-N"], "not more"),
        (["-s", "-r", "9.9"], "9.9"),
        (["-s", "-f", "metadata.version=20", "-r", "4.3"], "not both"),
        (["-s", "-f", "kraft.version=0"], "does not go with a dynamic quorum"),
        (["-s", "-f", "group.version=9"], "Feature level 9 is not supported"),
        (["-s", "-f", "nonsense=1"], "Unknown feature: nonsense"),
        (["-s", "-r", "3.9", "-f", "eligible.leader.replicas.version=1"], "requires metadata.version=23"),
        (["-s", "-S", "nonsense"], "--add-scram"),
        (["-s", "-r", "3.4", "-S", "SCRAM-SHA-256=[name=a,password=b]"], "3.5-IV2 or newer"),
        (["-I", "1@localhost:9093"], "ID@HOST:PORT:DIRECTORY_ID"),
    ],
)
def test_what_cannot_be_formatted_leaves_nothing_behind(tmp_path, properties, words, message):
    result = run("format", "-t", CLUSTER, "-c", properties(), *words)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "a").exists()


def test_a_directory_of_another_cluster_is_refused(tmp_path, properties):
    file = properties()
    run("format", "-t", CLUSTER, "-c", file, "-s")
    result = run("format", "-t", "another", "-c", file, "-s", "-g")
    assert result.exit_code == 1
    assert f"{tmp_path}/a/meta.properties is of another cluster.id" in result.stderr


def test_older_release_and_own_levels(tmp_path, properties):
    run("format", "-t", CLUSTER, "-c", properties(), "-s", "-r", "4.0", "-f", "group.version=0")
    assert levels(tmp_path / "a") == {"metadata.version": 25, "transaction.version": 2}


def test_initial_controllers_give_the_directory_its_id(tmp_path, properties):
    directory = "JEXY6aqzQY-32P5TStzaFg"
    result = run("format", "-t", CLUSTER, "-c", properties(), "-I", f"1@localhost:9093:{directory}")
    assert result.exit_code == 0, result.output
    meta = parse_properties((tmp_path / "a" / "meta.properties").read_text())
    assert meta["directory.id"] == directory
    assert uuid_from_str(directory) in (tmp_path / "a" / VOTERS_FILE).read_bytes()


def test_info_before_and_after(tmp_path, properties):
    file = properties()
    before = run("info", "-c", file)
    assert before.exit_code == 1
    assert (
        before.stdout == f"Found problems:\n  {tmp_path}/a does not exist\n  {tmp_path}/b does not exist\n\n"
    )
    run("format", "-t", CLUSTER, "-c", file, "-s")
    after = run("info", "-c", file)
    assert after.exit_code == 0
    assert after.stdout.startswith(f"Found log directories:\n  {tmp_path}/a\n  {tmp_path}/b\n\n")
    assert f"Found metadata: {{cluster.id={CLUSTER}, directory.id=" in after.stdout


def test_version_mapping():
    assert run("version-mapping").stdout.splitlines() == [
        "metadata.version=30 (4.3-IV0)",
        "kraft.version=1",
        "transaction.version=2",
        "group.version=1",
        "eligible.leader.replicas.version=1",
        "share.version=1",
        "streams.version=1",
    ]
    older = run("version-mapping", "-r", "3.8").stdout.splitlines()
    assert older[:2] == ["metadata.version=20 (3.8)", "kraft.version=0"]


def test_feature_dependencies():
    words = ["-f", "metadata.version=25", "-f", "eligible.leader.replicas.version=1", "-f", "group.version=1"]
    assert run("feature-dependencies", *words).stdout.splitlines() == [
        "metadata.version=25 (4.0-IV3) has no dependencies.",
        "eligible.leader.replicas.version=1 requires:",
        "    metadata.version=23 (4.0-IV1)",
        "group.version=1 has no dependencies.",
    ]


def test_random_uuid():
    assert len(uuid_from_str(run("random-uuid").stdout.strip())) == 16


def test_scram_credentials_prove_the_password():
    record = parse_scram('SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",password="a,b"]')
    salted = hashlib.pbkdf2_hmac("sha512", b"a,b", base64.b64decode("N3E="), 8192)
    assert (record.name, record.mechanism, record.iterations) == ("alice", 2, 8192)
    assert record.server_key == hmac.digest(salted, b"Server Key", "sha512")
    assert record.stored_key == hashlib.sha512(hmac.digest(salted, b"Client Key", "sha512")).digest()


@pytest.mark.parametrize(
    "fields",
    [
        "password=a",
        "name=a",
        "name=a,password=b,saltedpassword=Yg==",
        "name=a,password=b,iterations=1",
        "name=a,x=b",
    ],
)
def test_bad_scram_credentials_are_refused_without_repeating_them(fields):
    with pytest.raises(ApiException) as caught:
        parse_scram(f"SCRAM-SHA-256=[{fields}]")
    assert fields not in caught.value.message
