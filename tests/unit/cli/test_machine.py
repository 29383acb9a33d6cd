"""The rule of `ottla.processes`: what each process of a machine takes from one file, and what is refused."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ottla.cli import machine
from ottla.cli.machine import plan_processes, process_count
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError


def broker(**more: str) -> BrokerConfig:
    return BrokerConfig(
        {
            "process.roles": "broker",
            "node.id": "5",
            "listeners": "PLAINTEXT://:9092,SSL://10.0.0.7:9494",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@c1:9093",
            "log.dirs": "/var/lib/ottla/a,/var/lib/ottla/b",
            **{key.replace("_", "."): value for key, value in more.items()},
        }
    )


def test_ids_ports_and_directories_follow_from_the_file() -> None:
    first, second, third = plan_processes(broker(), 3)
    assert [plan.node_id for plan in (first, second, third)] == [5, 1005, 2005]
    assert first.settings["listeners"] == "PLAINTEXT://:9192,SSL://10.0.0.7:9594"
    assert third.settings["listeners"] == "PLAINTEXT://:9392,SSL://10.0.0.7:9794"
    assert {plan.settings["ottla.bootstrap.listeners"] for plan in (first, second, third)} == {
        "PLAINTEXT://:9092,SSL://10.0.0.7:9494"
    }
    assert "log.dirs" not in first.settings
    assert second.settings["log.dirs"] == "/var/lib/ottla/a-1005,/var/lib/ottla/b-1005"
    assert all(plan.settings["ottla.processes"] == "1" for plan in (first, second, third))


def test_steps_directories_and_metadata_of_ones_own() -> None:
    config = broker(
        ottla_processes_node_id_step="7",
        ottla_processes_port_step="10",
        ottla_processes_log_dirs="/disk1/{process},/disk2/{process}",
        metadata_log_dir="/meta",
        ottla_http_listen="0.0.0.0:9404",
    )
    second = plan_processes(config, 2)[1]
    assert second.node_id == 12
    assert second.settings["listeners"] == "PLAINTEXT://:9112,SSL://10.0.0.7:9514"
    assert second.settings["log.dirs"] == "/disk1/1,/disk2/1"
    assert second.settings["metadata.log.dir"] == "/meta-12"
    assert second.settings["ottla.http.listen"] == "0.0.0.0:9405"


def test_advertised_ports_move_by_the_same_step() -> None:
    config = broker(advertised_listeners="PLAINTEXT://kafka.example:19092,SSL://kafka.example:19494")
    first = plan_processes(config, 2)[0]
    assert (
        first.settings["advertised.listeners"] == "PLAINTEXT://kafka.example:19192,SSL://kafka.example:19594"
    )


def test_the_rack_is_the_machine_unless_the_file_has_one() -> None:
    assert {plan.settings["broker.rack"] for plan in plan_processes(broker(), 2)} == {socket.gethostname()}
    named = plan_processes(broker(broker_rack="zone-a"), 2)
    assert {plan.settings["broker.rack"] for plan in named} == {"zone-a"}


def test_the_first_process_alone_keeps_the_controller() -> None:
    config = broker(
        process_roles="broker,controller",
        node_id="1",
        listeners="PLAINTEXT://:9092,CONTROLLER://:9093",
        controller_quorum_voters="1@localhost:9093",
    )
    first, second = plan_processes(config, 2)
    assert first.settings["listeners"] == "PLAINTEXT://:9192,CONTROLLER://:9093"
    assert "process.roles" not in first.settings and first.votes
    assert second.settings["listeners"] == "PLAINTEXT://:9292"
    assert second.settings["process.roles"] == "broker" and not second.votes


def test_each_process_has_a_core_if_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_cores", lambda: [2, 5])
    assert [plan.core for plan in plan_processes(broker(), 2)] == [2, 5]
    assert [plan.core for plan in plan_processes(broker(), 3)] == [None, None, None]
    assert [plan.core for plan in plan_processes(broker(ottla_processes_pinned="false"), 2)] == [None, None]
    assert process_count(broker(ottla_processes="auto")) == 2


@pytest.mark.parametrize(
    ("more", "count", "sentence"),
    [
        ({"ottla_processes": "many"}, 0, "expected auto, or a number from 1 to 64"),
        ({"ottla_processes": "65"}, 0, "expected auto, or a number from 1 to 64"),
        ({"ottla_processes_port_step": "402"}, 2, "would both have port 9494"),
        ({"ottla_processes_port_step": "30000"}, 2, "would have port 69092"),
        ({"ottla_processes_log_dirs": "/disk1"}, 2, "with {process} in each name"),
        ({"log_dirs": "/"}, 2, "ottla.processes.log.dirs="),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(more: dict[str, str], count: int, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        plan_processes(broker(**more), count or process_count(broker(**more)))
    assert sentence in refused.value.message


def test_controllers_are_not_multiplied(tmp_path: Path) -> None:
    config = BrokerConfig(
        {
            "process.roles": "controller",
            "node.id": "1",
            "listeners": "CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
            "log.dirs": os.fspath(tmp_path),
        }
    )
    with pytest.raises(ConfigError, match="controllers run as one process each"):
        plan_processes(config, 2)


def test_a_node_without_a_controller_listener_cannot_have_helpers() -> None:
    with pytest.raises(ConfigError, match="needs a controller that all processes reach"):
        plan_processes(BrokerConfig.single_node({"listeners": "PLAINTEXT://:9092", "log.dirs": "/d"}), 2)
