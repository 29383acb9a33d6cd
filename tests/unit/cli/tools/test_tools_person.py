"""What is there for a person: help by area, profiles, completion, doctor, top, following a topic."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import pytest

from ottla.cli.areas import AREAS
from ottla.cli.main import main
from ottla.testing.apache import free_port
from ottla.testing.process import BrokerProcess


def ottla(
    *words: object, stdin: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ottla", *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **(environment or {})},
    )


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with a configuration directory of its own, and no cluster named."""
    return {"XDG_CONFIG_HOME": str(tmp_path), "OTTLA_BOOTSTRAP": "", "OTTLA_PROFILE": ""}


def test_alone_it_shows_what_there_is_by_area() -> None:
    said = ottla()
    assert said.returncode == 0
    names = [name for _, commands in AREAS for name in commands]
    assert len(set(names)) == len(names)
    context = click.Context(main)
    assert sorted(names) == main.list_commands(context)
    for title, _ in AREAS:
        assert f"\n{title}:\n" in said.stdout


def test_a_command_that_is_not_there_has_a_neighbour_that_is() -> None:
    said = ottla("topcis", "--list")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == "ottla: there is no command 'topcis'; did you mean `ottla topics`?\n"


def test_a_profile_stands_for_an_address_and_its_secrets(
    broker: BrokerProcess, topic: str, home: dict[str, str], tmp_path: Path
) -> None:
    made = ottla(
        *("profile", "set", "shop", "--bootstrap-server", broker.bootstrap, "--set", "client.id=me"),
        *("--set", "ssl.key.password=s3cret"),
        environment=home,
    )
    assert made.returncode == 0, made.stderr
    file = tmp_path / "ottla" / "profiles.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ottla("topics", "--create", "--topic", topic, environment=home).returncode == 0
    for words, more in (
        (("--profile", "shop"), {}),
        ((), {"OTTLA_PROFILE": "shop"}),
        ((), {"OTTLA_BOOTSTRAP": broker.bootstrap}),
    ):
        said = ottla("topics", "--list", *words, environment={**home, **more})
        assert topic in said.stdout.splitlines(), said.stderr
    shown = ottla("profile", "show", "shop", environment=home).stdout
    assert "client.id=me" in shown and "s3cret" not in shown
    assert "s3cret" in ottla("profile", "show", "--reveal", environment=home).stdout
    assert ottla("profile", environment=home).stdout == f"* shop  {broker.bootstrap}\n"
    unknown = ottla("topics", "--list", "--profile", "shpo", environment=home)
    assert unknown.returncode == 1 and "there is no profile 'shpo' (shop)" in unknown.stderr
    assert ottla("profile", "remove", "shop", environment=home).returncode == 0
    assert ottla("profile", "list", "--json", environment=home).stdout == "[]\n"


def test_an_address_of_its_own_does_not_get_a_profiles_secrets(
    broker: BrokerProcess, home: dict[str, str]
) -> None:
    ottla(
        *("profile", "set", "far", "--bootstrap-server", "far.example:9092"),
        *("--set", "security.protocol=SASL_PLAINTEXT", "--set", "sasl.mechanism=PLAIN"),
        environment=home,
    )
    said = ottla("topics", "--list", "--bootstrap-server", broker.bootstrap, environment=home)
    assert said.returncode == 0, said.stderr


def complete(words: str, environment: Mapping[str, str]) -> list[str]:
    request = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_OTTLA_COMPLETE": "bash_complete",
    }
    said = ottla(environment={**environment, **request})
    assert said.stderr == ""
    return [line.partition(",")[2] for line in said.stdout.splitlines() if line]


def complete_soon(words: str, environment: Mapping[str, str]) -> list[str]:
    """The same of a cluster that is there: a shell does not wait for one that takes its time to answer."""
    deadline = time.monotonic() + 60
    while not (found := complete(words, environment)):
        assert time.monotonic() < deadline
    return found


@pytest.mark.slow
def test_a_shell_completes_commands_flags_topics_and_groups(
    broker: BrokerProcess, topic: str, home: dict[str, str]
) -> None:
    here = {**home, "OTTLA_BOOTSTRAP": broker.bootstrap}
    ottla("topics", "--create", "--topic", topic, environment=here)
    ottla("produce", "--topic", topic, stdin="x\n", environment=here)
    ottla(
        *("consume", "--topic", topic, "--group", f"{topic}-g", "--from-beginning", "--max-messages", 1),
        environment=here,
    )
    assert complete("ottla consumer-g", here) == ["consumer-groups"]
    assert "--under-replicated-partitions" in complete("ottla topics --und", here)
    assert complete_soon(f"ottla topics --topic {topic[:10]}", here) == [topic]
    assert complete_soon(f"ottla consumer-groups --describe --group {topic[:10]}", here) == [f"{topic}-g"]
    nobody = {**home, "OTTLA_BOOTSTRAP": "127.0.0.1:1"}
    assert complete("ottla topics --topic o", nobody) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    assert "_OTTLA_COMPLETE" in ottla("completion", shell).stdout


def test_the_doctor_finds_a_healthy_broker_well(broker: BrokerProcess) -> None:
    said = ottla("doctor", "--bootstrap-server", broker.bootstrap, "--json")
    findings = {each["check"]: each["state"] for each in json.loads(said.stdout)}
    assert findings[f"broker 1 at {broker.bootstrap}"] == "ok"
    assert findings["clock"] == findings["controllers"] == findings["partitions"] == "ok"
    assert any(check.startswith("disk of broker 1") for check in findings)
    assert "fail" not in findings.values() and said.returncode == 0


def test_the_doctor_says_what_to_do_about_an_address_nobody_can_reach(broker: BrokerProcess) -> None:
    said = ottla("doctor", "--bootstrap-server", "127.0.0.1:1", "--quiet")
    assert said.returncode == 1
    assert "bootstrap 127.0.0.1:1: Connection refused\n    is it running (`ottla start`)" in said.stdout


def test_the_doctor_sees_an_advertised_address_that_leads_nowhere(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    config, port, controller = tmp_path / "server.properties", free_port(), free_port()
    config.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={tmp_path}/lost\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\ncontroller.listener.names=CONTROLLER\n"
        "advertised.listeners=PLAINTEXT://127.0.0.1:1\n"
    )
    start_broker(config=config)
    said = ottla("doctor", "--bootstrap-server", f"127.0.0.1:{port}", "--quiet")
    assert said.returncode == 1
    assert "broker 1 at 127.0.0.1:1: advertised, but Connection refused" in said.stdout
    assert "advertised.listeners must name an address" in said.stdout


@pytest.mark.slow
def test_top_tells_of_topics_and_groups(broker: BrokerProcess, topic: str) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    ottla("produce", *at, "--topic", topic, stdin="1\n2\n3\n")
    ottla("consume", *at, "--topic", topic, "--group", f"{topic}-g", "--from-beginning", "--max-messages", 2)
    said = ottla("top", *at, "--iterations", 1, "--interval", 0.05, "--json")
    document = json.loads(said.stdout)
    (mine,) = [each for each in document["topics"] if each["topic"] == topic]
    assert mine["records"] == 3 and mine["partitions"] == 1
    (group,) = [each for each in document["groups"] if each["group"] == f"{topic}-g"]
    assert group["lag"] == 1
    assert f"\n{topic}" in ottla("top", *at, "--iterations", 1, "--interval", 0.05).stdout


@pytest.mark.slow
def test_a_topic_is_read_from_where_one_likes(broker: BrokerProcess, topic: str) -> None:
    at = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    ottla("topics", "--bootstrap-server", broker.bootstrap, "--create", "--topic", topic, "--partitions", 2)
    values = [json.dumps({"n": number}) for number in range(8)]
    ottla("produce", *at, stdin="\n".join(values) + "\n")

    def read(*words: object) -> list[int]:
        said = ottla("consume", *at, "--until-end", *words)
        assert said.returncode == 0, said.stderr
        return sorted(json.loads(line)["n"] for line in said.stdout.splitlines())

    assert read("--from-beginning") == list(range(8))
    assert read("--since", "10m") == list(range(8))
    assert read("--since", "2099-01-01") == []
    assert len(read("--last", 1)) in (1, 2)
    assert read("--from-beginning", "--filter", "value.n >= 6") == [6, 7]
    assert read("--from-beginning", "--filter", "value.n < 6", "--max-messages", 6) == list(range(6))
    refused = ottla("consume", *at, "--since", "soon")
    assert refused.returncode == 1 and "expected a time ago like 10m" in refused.stderr
    pretty = ottla("consume", *at, "--from-beginning", "--until-end", "--pretty").stdout
    assert len(pretty.splitlines()) == 8 and ":0" in pretty


@pytest.mark.slow
def test_old_spellings_work_with_a_line_of_advice(broker: BrokerProcess) -> None:
    environment = {"OTTLA_BOOTSTRAP": broker.bootstrap}
    said = ottla("topics", "--list", "--zookeeper", "localhost:2181", environment=environment)
    assert said.returncode == 0 and "There is no ZooKeeper any more" in said.stderr
    said = ottla("topics", "--list", "--broker-list", broker.bootstrap)
    assert said.returncode == 0 and "--broker-list is the old name of --bootstrap-server" in said.stderr
