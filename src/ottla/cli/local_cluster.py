"""A cluster of several nodes on one machine: the roles, listeners, files and directories of its nodes.

`ottla start --brokers N` and the tests' clusters are made of it; running the processes is left to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ottla.cli.formatting import FormatRequest, format_node
from ottla.cli.settings import node_config
from ottla.clock import SystemClock
from ottla.config.listeners import format_address
from ottla.errors import ApiException, ErrorCode
from ottla.log.checkpoints import read_meta_properties
from ottla.log.fs import OsFs
from ottla.wire.uuid import uuid_to_str

CONTROLLER_LISTENER: Final = "CONTROLLER"
BROKER_LISTENER: Final = "PLAINTEXT"


class Address(NamedTuple):
    """The host and port of a listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return format_address(*self)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node: a broker, a controller, or both."""

    node_id: int
    data: Path
    broker: Address | None
    controller: Address | None
    properties: Mapping[str, str]

    @property
    def address(self) -> Address:
        """Where it listens first of all: for clients, if it is a broker."""
        address = self.broker or self.controller
        assert address is not None
        return address

    @property
    def file(self) -> Path:
        return self.data.with_name(self.data.name + ".properties")

    @property
    def log(self) -> Path:
        return self.data.with_name(self.data.name + ".log")

    @property
    def pid_file(self) -> Path:
        return self.data.with_name(self.data.name + ".pid")

    def write_file(self) -> None:
        """Its `server.properties`."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{key}={value}".replace("\\", "\\\\") for key, value in self.properties.items()]
        self.file.write_text("\n".join([*lines, ""]), encoding="utf-8")


def plan_nodes(
    data: Path,
    nodes: Mapping[int, tuple[Address | None, Address | None]],
    *,
    settings: Mapping[str, str],
    racks: Sequence[str] = (),
) -> list[NodePlan]:
    """The nodes by id, each with its address as a broker and as a controller; racks go round the brokers."""
    voters = ",".join(
        f"{node_id}@{controller}" for node_id, (_, controller) in nodes.items() if controller is not None
    )
    plans: list[NodePlan] = []
    brokers = 0
    for node_id, (broker, controller) in nodes.items():
        directory = data / f"node-{node_id}"
        listeners = {BROKER_LISTENER: broker, CONTROLLER_LISTENER: controller}
        own: dict[str, str] = {
            "process.roles": ",".join(
                role for role, at in (("broker", broker), ("controller", controller)) if at is not None
            ),
            "node.id": str(node_id),
            "listeners": ",".join(f"{name}://{at}" for name, at in listeners.items() if at is not None),
            "controller.listener.names": CONTROLLER_LISTENER,
            "controller.quorum.voters": voters,
            "log.dirs": str(directory),
        }
        if broker is not None and racks:
            own["broker.rack"] = racks[brokers % len(racks)]
        brokers += broker is not None
        plans.append(NodePlan(node_id, directory, broker, controller, {**settings, **own}))
    return plans


def prepare_nodes(plans: Sequence[NodePlan]) -> str:
    """Write every node's file and format what is new, all as one cluster; gives the cluster's id."""
    fs = OsFs()
    found: dict[str, Path] = {}
    for plan in plans:
        properties = read_meta_properties(fs, str(plan.data))
        if properties is not None:
            found[properties["cluster.id"]] = plan.data
    if len(found) > 1:
        raise ApiException(
            ErrorCode.INVALID_CONFIG,
            "these directories are of different clusters: " + ", ".join(str(path) for path in found.values()),
        )
    cluster_id = next(iter(found), None) or uuid_to_str(SystemClock().random_uuid())
    for plan in plans:
        plan.write_file()
        format_node(
            FormatRequest(node_config(str(plan.file)), cluster_id, ignore_formatted=True), lambda line: None
        )
    return cluster_id
