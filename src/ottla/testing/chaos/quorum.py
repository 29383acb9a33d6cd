"""A cluster with a dynamic quorum: controllers can be removed and added while it runs."""

from __future__ import annotations

import dataclasses

from ottla.cli.formatting import FormatRequest, format_node
from ottla.cli.settings import node_config
from ottla.clock import SystemClock
from ottla.errors import ErrorCode
from ottla.ids import TopicName
from ottla.testing.cluster import Cluster
from ottla.wire import messages
from ottla.wire.uuid import uuid_to_str


class DynamicCluster(Cluster):
    """Formatted with `--initial-controllers` in place of `controller.quorum.voters`."""

    def prepare(self) -> None:
        clock = SystemClock()
        self.cluster_id = uuid_to_str(clock.random_uuid())
        controllers = {i: plan.controller for i, plan in self.plans.items() if plan.controller is not None}
        first = ",".join(
            f"{node_id}@{address}:{uuid_to_str(clock.random_uuid())}"
            for node_id, address in controllers.items()
        )
        for node_id, plan in self.plans.items():
            properties = dict(plan.properties)
            del properties["controller.quorum.voters"]
            properties["controller.quorum.bootstrap.servers"] = ",".join(map(str, controllers.values()))
            self.plans[node_id] = plan = dataclasses.replace(plan, properties=properties)
            plan.write_file()
            request = FormatRequest(
                node_config(str(plan.file)),
                self.cluster_id,
                initial_controllers=first if node_id in controllers else None,
            )
            format_node(request, lambda line: None)

    def voters(self) -> dict[int, bytes]:
        """Return the directory ids of the voters by node id."""
        request = messages.DescribeQuorumRequest
        topic = request.TopicData(
            topic_name=TopicName("__cluster_metadata"), partitions=[request.PartitionData(partition_index=0)]
        )
        answer = self.ask(request(topics=[topic]), 2)
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            raise ConnectionError("no node knows the voters")
        found = answer.topics[0].partitions[0].current_voters
        return {voter.replica_id: voter.replica_directory_id for voter in found}

    def remove_voter(self, node_id: int, directory_id: bytes, timeout_s: float = 60.0) -> None:
        request = messages.RemoveRaftVoterRequest(
            cluster_id=self.cluster_id, voter_id=node_id, voter_directory_id=directory_id
        )

        def removed() -> bool:
            code: int = self.ask(request, 0, timeout_s=20).error_code
            return code in (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND)

        self.wait_for(removed, timeout_s)
        self.wait_for(lambda: node_id not in self.voters(), timeout_s)

    def add_voter(self, node_id: int, directory_id: bytes, timeout_s: float = 60.0) -> None:
        address = self.plans[node_id].controller
        assert address is not None
        request = messages.AddRaftVoterRequest
        asked = request(
            cluster_id=self.cluster_id,
            timeout_ms=10_000,
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=[request.Listener(name="CONTROLLER", host=address.host, port=address.port)],
        )

        def added() -> bool:
            code: int = self.ask(asked, 0, timeout_s=20).error_code
            return code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER)

        self.wait_for(added, timeout_s)
        self.wait_for(lambda: node_id in self.voters(), timeout_s)
