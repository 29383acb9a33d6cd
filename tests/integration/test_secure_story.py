"""`ottla secure init` followed to the letter: what it prints starts a cluster that is safe, with users and tenants."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.properties_file import read_properties
from ottla.cli.tools.security import jaas_options
from ottla.testing.ports import free_block
from ottla.testing.process import BrokerFailed, BrokerProcess

pytestmark = pytest.mark.slow

_PORTS_OF_A_NODE = 3


class Story:
    """A folder that `ottla secure init` made, and the nodes that its commands start."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        ports = [free_block(_PORTS_OF_A_NODE) for _ in range(nodes)]
        hosts = ",".join(f"localhost:{port}" for port in ports)
        self.printed = self.run(f"ottla secure init {folder} --nodes {nodes} --hosts {hosts}").stdout
        self.commands = [line.strip() for line in self.printed.splitlines() if line.startswith("  ottla ")]
        self.processes = [
            BrokerProcess(folder.parent / f"log-{number}", config=Path(shlex.split(line)[-1]))
            for number, line in enumerate(self._matching(" start "), 1)
        ]

    def _matching(self, word: str) -> list[str]:
        return [line for line in self.commands if word in line]

    @staticmethod
    def run(command: str, *, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(words, capture_output=True, text=True, input=stdin, timeout=120)
        assert not check or done.returncode == 0, (command, done.stdout, done.stderr)
        return done

    def start(self) -> None:
        for line in self._matching(" storage format "):
            self.run(line)
        for process in self.processes:
            process.launch()
        for process in self.processes:
            process.wait_ready()

    def stop(self) -> None:
        for process in self.processes:
            process.kill()

    def logs(self) -> str:
        return "\n".join(process.log for process in self.processes)

    def secure(self, words: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run(f"ottla secure {words} --dir {self.folder}", check=check)

    def client(self, user: str, **more: object) -> dict[str, object]:
        """librdkafka's settings for a login that the commands wrote."""
        properties = read_properties(str(self.folder / f"{user}.properties"))
        login = jaas_options(properties["sasl.jaas.config"])
        return {
            "bootstrap.servers": properties["bootstrap.servers"],
            "security.protocol": properties["security.protocol"],
            "ssl.ca.location": properties["ssl.truststore.location"],
            "sasl.mechanism": properties["sasl.mechanism"],
            "sasl.username": login["username"],
            "sasl.password": login["password"],
            **more,
        }


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    made = Story(tmp_path_factory.mktemp("secure") / "cluster", nodes=3)
    try:
        made.start()
        yield made
        assert "Traceback" not in made.logs(), made.logs()
        for user in ("admin", "team1"):
            password = str(made.client(user)["sasl.password"])
            assert len(password) >= 32
            assert password not in made.logs()
            assert password not in made.printed
    finally:
        made.stop()


def test_the_last_commands_prove_the_cluster(story: Story) -> None:
    identity = story.run(story.commands[-2]).stdout
    cluster_id = shlex.split(story.commands[0])[6]
    assert identity.strip() == f"Cluster ID: {cluster_id}"
    assert story.run(story.commands[-1]).stdout == "Nothing found that is not safe.\n"
    controllers = story.run(
        f"ottla cluster list-endpoints --bootstrap-controller localhost:{story.processes[0].port + 2} "
        f"--command-config {story.folder}/controllers.properties"
    ).stdout
    assert "CONTROLLERS" in controllers or str(story.processes[0].port + 2) in controllers


def test_every_file_is_for_its_owner_only(story: Story) -> None:
    for path in [story.folder, *story.folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_nobody_gets_in_without_a_login_or_certificate(story: Story) -> None:
    port = story.processes[0].port
    anonymous = {"ssl.ca.location": str(story.folder / "ca.pem"), "security.protocol": "SSL"}
    for offset in (0, 1, 2):
        admin = AdminClient({**anonymous, "bootstrap.servers": f"localhost:{port + offset}", "log_level": 0})
        with pytest.raises(KafkaException) as failed:
            admin.list_topics(timeout=1.5)
        assert failed.value.args[0].code() == KafkaError._TRANSPORT


def test_a_tenant_has_its_own_names_and_no_others(story: Story) -> None:
    assert "exists already" in story.secure("user add admin", check=False).stderr
    said = story.secure("tenant add team1 --prefix team1. --produce 10MB --consume 20MB").stdout
    assert "producer_byte_rate=10000000" in said
    assert "team1.properties" in said
    assert (story.folder / "team1.properties").stat().st_mode & 0o777 == 0o600
    tenant = AdminClient(story.client("team1"))
    tenant.create_topics([NewTopic("team1.orders", 3, 3)])["team1.orders"].result(60)
    with pytest.raises(KafkaException) as denied:
        tenant.create_topics([NewTopic("orders", 1, 3)])["orders"].result(60)
    assert denied.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    producer = Producer(story.client("team1", **{"transactional.id": "team1.writer", "acks": "all"}))
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("team1.orders", b"%d" % number)
    producer.commit_transaction(60)
    consumer = Consumer(
        story.client("team1", **{"group.id": "team1.readers", "auto.offset.reset": "earliest"})
    )
    consumer.subscribe(["team1.orders"])
    seen: set[bytes] = set()
    while len(seen) < 30:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        seen.add(message.value())
    consumer.close()

    tool = f"ottla topics --list --command-config {story.folder}/team1.properties"
    assert story.run(tool).stdout.split() == ["team1.orders"]
    quotas = f"ottla configs --describe --entity-type users --command-config {story.folder}/admin.properties"
    assert "consumer_byte_rate=2.0E7" in story.run(quotas).stdout
    assert story.secure("tenant add team1 --prefix x.", check=False).returncode == 1


def test_a_user_may_do_nothing_until_it_gets_a_right(story: Story) -> None:
    story.secure("user add alice")
    assert "alice: SCRAM-SHA-512 (8192 iterations)" in story.secure("user list").stdout
    found = story.secure("check").stdout
    assert "(note) the user alice has no ACL and may do nothing" in found
    story.secure("user remove alice")
    assert not (story.folder / "alice.properties").exists()
    assert "alice" not in story.secure("user list").stdout
    assert "there is no user alice" in story.secure("user remove alice", check=False).stderr


def test_new_certificates_have_the_names_of_the_old_ones(story: Story) -> None:
    before = (story.folder / "node-1.pem").read_bytes()
    assert "node-1.pem: valid until" in story.secure("renew --days 90").stdout
    assert (story.folder / "node-1.pem").read_bytes() != before
    assert story.secure("check --offline").stdout == "Nothing found that is not safe.\n"


def test_a_single_node_and_what_check_finds(tmp_path: Path) -> None:
    alone = Story(tmp_path / "alone", nodes=1)
    try:
        alone.start()
        assert alone.run(alone.commands[-2]).stdout.startswith("Cluster ID: ")
        assert alone.run(alone.commands[-1]).stdout == "Nothing found that is not safe.\n"
        opened = alone.run(
            f"ottla acls --command-config {alone.folder}/admin.properties --add --allow-principal User:* "
            "--operation All --cluster",
            check=False,
        )
        assert "strict refuses an ACL that lets User:* do everything" in opened.stderr
        alone.secure("renew --days 10")
        os.chmod(alone.folder / "node-1.properties", 0o644)
        found = alone.run(alone.commands[-1], check=False)
        assert found.returncode == 1
        assert "chmod 600" in found.stdout
        assert "expires on" in found.stdout
    finally:
        alone.stop()


def test_strict_refuses_a_key_that_others_can_read(tmp_path: Path) -> None:
    alone = Story(tmp_path / "alone", nodes=1)
    os.chmod(alone.folder / "node-1.pem", 0o640)
    with pytest.raises(
        BrokerFailed, match=r"ottla.security.profile=strict refuses this.*ssl.keystore.location"
    ):
        alone.start()
