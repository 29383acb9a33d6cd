"""`ottla.processes=N`: one `server.properties` for N broker processes, so that all cores of a machine serve.

Each process is an ordinary broker of the cluster. The first one is the node of the file, with its id and directories;
ids, ports and directories of the others follow from the file by the rule that `plan_processes` states.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla import __version__
from ottla.cli.child_node import ChildNode
from ottla.cli.formatting import FormatRequest, format_node
from ottla.cli.refuse import describe_os_error, refuse
from ottla.cli.settings import node_config
from ottla.cli.supervisor import supervise
from ottla.config.broker import BrokerConfig
from ottla.config.errors import ConfigError
from ottla.config.listeners import Listener, format_address
from ottla.errors import ApiException
from ottla.log.checkpoints import read_meta_properties
from ottla.log.fs import OsFs

PROCESSES: Final = "ottla.processes"
MAX_PROCESSES: Final = 64

_LOG_DIRS: Final = "ottla.processes.log.dirs"
_NUMBER: Final = "{process}"
_MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """One process: the node's id, what it has in place of the file's settings, and its core."""

    node_id: int
    settings: Mapping[str, str]
    core: int | None
    addresses: tuple[str, ...]
    """Where its clients reach it."""
    votes: bool


def process_count(config: BrokerConfig) -> int:
    """How many processes the file asks for."""
    text = config.str(PROCESSES)
    if text == "auto":
        return min(len(_cores()), MAX_PROCESSES)
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PROCESSES:
        raise ConfigError.bad_value(PROCESSES, text, f"auto, or a number from 1 to {MAX_PROCESSES}")
    return int(text)


def plan_processes(config: BrokerConfig, count: int) -> list[ProcessPlan]:
    """What each process has of its own.

    Process k, counted from 0, has the node id of the file plus k times `ottla.processes.node.id.step`. Its listeners
    have the file's ports plus k + 1 times `ottla.processes.port.step`; the file's own ports are shared by all, for
    clients that begin. Process 0 has the directories of the file and the controller role, if the file has it; the
    directories of the others end in their node id, unless `ottla.processes.log.dirs` names them.
    """
    if not config.is_broker:
        raise ConfigError(f"{PROCESSES} is for brokers: controllers run as one process each")
    if "controller" in config.roles and not config.controller_listeners:
        raise ConfigError(
            f"{PROCESSES}={count} needs a controller that all processes reach: set controller.listener.names, its"
            " listener and controller.quorum.voters (or controller.quorum.bootstrap.servers)"
        )
    _check_ports(config, count)
    return [_process(config, number, count) for number in range(count)]


def prepare_processes(plans: list[ProcessPlan], file: str, config: BrokerConfig) -> str:
    """Format the directories of new processes for the cluster of the first one; gives the cluster's id."""
    first = read_meta_properties(OsFs(), config.log_dirs[0])
    if first is None:
        raise ConfigError(
            f"{config.log_dirs[0]} is not formatted: run `ottla storage format --config {file} --cluster-id ID` first"
        )
    cluster_id = first["cluster.id"]
    for plan in plans[1:]:
        own = node_config(file, plan.settings)
        format_node(FormatRequest(own, cluster_id, ignore_formatted=True), lambda line: None)
    return cluster_id


def run_processes(
    config: BrokerConfig,
    file: str | None,
    settings: Mapping[str, str],
    log_level: str,
    log_format: str,
    console: str | None,
) -> None:
    """Run all processes of this machine until a stop signal; exit code 0 after a clean stop."""
    try:
        if file is None:
            raise ConfigError(
                f"{PROCESSES} needs a file: `ottla start --config server.properties --processes N`"
            )
        plans = plan_processes(config, process_count(config))
        cluster_id = prepare_processes(plans, file, config)
    except ApiException as error:
        refuse(error.message)
    except OSError as error:
        refuse(describe_os_error(error))

    def children() -> list[ChildNode]:
        return [_child(plan, file, settings, log_level, log_format) for plan in plans]

    shared = ",".join(listener.address for listener in config.broker_listeners if listener.port)
    ids = ", ".join(str(plan.node_id) for plan in plans)
    supervise(
        children,
        f"Ottla {__version__} is ready on {shared} (nodes {ids}, cluster {cluster_id})",
        ",".join(address for plan in plans for address in plan.addresses[:1]),
        console,
    )


def _child(
    plan: ProcessPlan, file: str, settings: Mapping[str, str], log_level: str, log_format: str
) -> ChildNode:
    own = {**settings, **plan.settings}
    words = [word for key, value in own.items() for word in ("--set", f"{key}={value}")]
    return ChildNode(
        plan.node_id,
        ["--config", file, *words, "--log-level", log_level, "--log-format", log_format],
        votes=plan.votes,
        core=plan.core,
    )


def _process(config: BrokerConfig, number: int, count: int) -> ProcessPlan:
    node_id = config.node_id + number * config.int("ottla.processes.node.id.step")
    shift = (number + 1) * config.int("ottla.processes.port.step")
    votes = number == 0 and "controller" in config.roles
    own = [_moved(listener, shift) for listener in config.broker_listeners]
    kept = config.controller_listeners if votes else ()
    settings = {
        PROCESSES: "1",
        "node.id": str(node_id),
        "listeners": _entries([*own, *kept]),
        "ottla.bootstrap.listeners": _entries(each for each in config.broker_listeners if each.port),
        "broker.rack": config.opt_str("broker.rack") or socket.gethostname(),
    }
    if config.advertised_listeners:
        names = {listener.name for listener in config.broker_listeners}
        advertised = [
            _moved(listener, shift) if listener.name in names else listener
            for listener in config.advertised_listeners
            if votes or listener.name in names
        ]
        settings["advertised.listeners"] = _entries(advertised)
    if number:
        settings |= {"process.roles": "broker", **_directories(config, number, node_id)}
    http = config.opt_str("ottla.http.listen")
    if http is not None:
        host, _, port = http.rpartition(":")
        settings["ottla.http.listen"] = f"{host}:{int(port) + number if int(port) else 0}"
    cores = _cores()
    pinned = config.bool("ottla.processes.pinned") and count <= len(cores)
    return ProcessPlan(
        node_id, settings, cores[number] if pinned else None, tuple(each.address for each in own), votes
    )


def _directories(config: BrokerConfig, number: int, node_id: int) -> dict[str, str]:
    named = config.opt_str(_LOG_DIRS)
    if named is not None:
        if _NUMBER not in named:
            raise ConfigError.bad_value(_LOG_DIRS, named, f"directories with {_NUMBER} in each name")
        found = {"log.dirs": named.replace(_NUMBER, str(number))}
    else:
        found = {"log.dirs": ",".join(_beside(path, node_id) for path in config.log_dirs)}
    metadata = config.opt_str("metadata.log.dir")
    if metadata is not None:
        found["metadata.log.dir"] = _beside(metadata, node_id)
    return found


def _beside(path: str, node_id: int) -> str:
    directory = Path(path).absolute()
    if os.path.ismount(directory):
        raise ConfigError(
            f"{directory} is the root of a file system, and a directory beside it would be on another one: set"
            f" {_LOG_DIRS}={directory}/{_NUMBER} for the other processes"
        )
    return f"{directory}-{node_id}"


def _check_ports(config: BrokerConfig, count: int) -> None:
    step = config.int("ottla.processes.port.step")
    taken: dict[int, str] = {}
    for listener in config.listeners:
        own = listener.name not in config.controller_listener_names
        for number in range(-1, count if own and listener.port else 0):
            port = listener.port + (number + 1) * step
            name = f"listener {listener.name} of process {max(number, 0)}"
            if port > _MAX_PORT:
                raise ConfigError(f"{name} would have port {port}: set a smaller ottla.processes.port.step")
            if listener.port and port in taken:
                raise ConfigError(
                    f"{name} and {taken[port]} would both have port {port}: set another"
                    " ottla.processes.port.step"
                )
            taken[port] = name


def _moved(listener: Listener, shift: int) -> Listener:
    port = listener.port + shift if listener.port else 0
    return Listener(listener.name, listener.host, port, listener.protocol)


def _entries(listeners: Iterable[Listener]) -> str:
    return ",".join(f"{each.name}://{format_address(each.host, each.port)}" for each in listeners)


def _cores() -> list[int]:
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:
        return list(range(os.cpu_count() or 1))
