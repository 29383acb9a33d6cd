"""A cluster whose voters stand in the log, so that they can change."""

from __future__ import annotations

from ottla.cli.formatting import FormatRequest, format_node
from ottla.cli.settings import node_config
from ottla.clock import SystemClock
from ottla.testing.cluster import Cluster
from ottla.testing.ports import free_ports
from ottla.wire.uuid import uuid_to_str

LATE = 3
"""This node is formatted without the others' voters, and added later."""


class DynamicCluster(Cluster):
    def prepare(self) -> None:
        """Format with `--initial-controllers` in place of `controller.quorum.voters`."""
        clock = SystemClock()
        self.cluster_id = uuid_to_str(clock.random_uuid())
        servers = ",".join(str(plan.controller) for plan in self.plans.values())
        first = ",".join(
            f"{node_id}@{plan.controller}:{uuid_to_str(clock.random_uuid())}"
            for node_id, plan in self.plans.items()
            if node_id != LATE
        )
        for (node_id, plan), port in zip(self.plans.items(), free_ports(3), strict=True):
            properties = dict(plan.properties)
            del properties["controller.quorum.voters"]
            properties["controller.quorum.bootstrap.servers"] = servers
            properties["listeners"] = (
                properties["listeners"].replace("PLAINTEXT:", "CLIENTS:") + f",INSIDE://127.0.0.1:{port}"
            )
            properties["listener.security.protocol.map"] = (
                "CLIENTS:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
            )
            properties["inter.broker.listener.name"] = "INSIDE"
            plan.file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
            voters = {"no_initial_controllers": True} if node_id == LATE else {"initial_controllers": first}
            request = FormatRequest(node_config(str(plan.file)), self.cluster_id, **voters)  # type: ignore[arg-type]
            format_node(request, lambda line: None)
