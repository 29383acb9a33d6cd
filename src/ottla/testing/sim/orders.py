"""The operator of a simulated cluster: moves partitions, adds and removes voters, replaces a node.

A node is replaced as one does it by hand: it votes no more, its partitions go to others, it stops, it is unregistered,
and a machine with the same name and an empty disk takes its place.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.ids import BrokerId, TopicName
from ottla.log.types import TopicPartition
from ottla.testing.sim.clients import EVERYTHING
from ottla.testing.sim.node import CLUSTER_ID, CONTROLLER_PORT, SimNode
from ottla.testing.sim.wire_client import NotSent, Resp, Unanswered, WireClient
from ottla.wire import messages
from ottla.wire.classes import WireRequest

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage, PartitionRegistration

_REPLICAS: Final = 3
_LOOK_EACH_S: Final = 0.3
_PATIENCE_S: Final = 8.0
_FEWEST_VOTERS: Final = 2


class Orders:
    """Sends the operator's requests. Requests that do not finish in time are abandoned."""

    def __init__(
        self, nodes: Sequence[SimNode], client: WireClient, rng: random.Random, note: Callable[[str], None]
    ) -> None:
        self._nodes = nodes
        self._client = client
        self._random = rng
        self._note = note
        self._brokers = [node for node in nodes if node.config.is_broker]

    async def _ask(self, request: WireRequest[Resp], version: int) -> Resp | None:
        try:
            return await self._client.ask_any(request, version)
        except (NotSent, Unanswered):
            return None

    async def _until(self, reached: Callable[[], bool], act: Callable[[], Awaitable[object]]) -> bool:
        """Repeat `act` until `reached()` is true. Returns False after a timeout."""
        end = self._client.loop.time() + _PATIENCE_S
        while not reached():
            if self._client.loop.time() > end:
                return False
            await act()
            await asyncio.sleep(_LOOK_EACH_S)
        return True

    # -- partitions

    async def reassign(self) -> None:
        """Reassign a partition to other brokers, or to fewer or more."""
        tp = self._random.choice(EVERYTHING)
        count = self._random.randint(2, min(_REPLICAS, len(self._brokers)))
        replicas = [node.node_id for node in self._random.sample(self._brokers, count)]
        await self._move({tp: replicas})

    async def _move(self, wanted: dict[TopicPartition, list[int]]) -> None:
        request = messages.AlterPartitionReassignmentsRequest
        topics: dict[TopicName, list[messages.AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
        for tp, replicas in wanted.items():
            self._note(f"reassign {tp} to {replicas}")
            partition = request.ReassignablePartition(
                partition_index=tp.partition, replicas=[BrokerId(i) for i in replicas]
            )
            topics.setdefault(tp.topic, []).append(partition)
        named = [request.ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()]
        await self._ask(request(topics=named, timeout_ms=3000), 1)

    def _image(self) -> MetadataImage | None:
        images = [image for node in self._nodes if (image := node.image) is not None]
        return max(images, key=lambda image: image.offset, default=None)

    def _partitions(self) -> Iterator[tuple[TopicPartition, PartitionRegistration]]:
        image = self._image()
        for name, topic in image.topics.by_name.items() if image is not None else ():
            for index, partition in topic.partitions.items():
                yield TopicPartition(TopicName(name), index), partition

    # -- voters

    def _voters(self) -> dict[int, bytes]:
        """Return the voters' directory ids by node id, according to the newest leader."""
        rafts = [raft for node in self._nodes if (raft := node.raft) is not None]
        newest = max(rafts, key=lambda raft: (raft.is_leader, raft.leader_epoch), default=None)
        if newest is None:
            return {}
        return {voter.key.id: voter.key.directory_id for voter in newest.voters.nodes.values()}

    async def change_voters(self) -> None:
        """Add or remove a voter of a dynamic quorum."""
        if not self._nodes[0].dynamic:
            return
        voters = self._voters()
        others = [node for node in self._nodes if node.config.is_controller and node.node_id not in voters]
        if others and (len(voters) <= _REPLICAS or self._random.random() < 0.5):
            await self._add_voter(self._random.choice(others))
        elif len(voters) > _FEWEST_VOTERS:
            await self._remove_voter(self._random.choice(sorted(voters)))

    async def _add_voter(self, node: SimNode) -> None:
        self._note(f"add voter {node.host}")
        request = messages.AddRaftVoterRequest
        listener = request.Listener(name="CONTROLLER", host=node.host, port=CONTROLLER_PORT)
        asked = request(
            cluster_id=CLUSTER_ID,
            timeout_ms=3000,
            voter_id=node.node_id,
            voter_directory_id=node.directory_id,
            listeners=[listener],
        )
        await self._ask(asked, 0)

    async def _remove_voter(self, node_id: int) -> None:
        directory_id = self._voters().get(node_id)
        if directory_id is not None:
            self._note(f"remove voter n{node_id}")
            request = messages.RemoveRaftVoterRequest(
                cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=directory_id
            )
            await self._ask(request, 0)

    # -- nodes

    async def replace_node(self, in_sync: Callable[[], bool], wiped: Callable[[str], None]) -> None:
        """Replace a node by a new one. `wiped` is called with the host that lost its data."""
        candidates = [node for node in self._brokers if node.dynamic or not node.config.is_controller]
        if len(self._brokers) <= _REPLICAS or not candidates:
            return
        node = self._random.choice(candidates)
        self._note(f"replace {node.host}")
        if not await self._withdraw(node):
            self._note(f"{node.host} stays: it is still needed")
            return
        stopping = node.stop()
        if stopping is not None:
            await asyncio.wait([stopping], timeout=5)
        node.kill()
        await self._unregister(node)
        others = [each for each in self._nodes if each is not node]
        if self._needed(node) or not all(each.serves for each in others) or not in_sync():
            # The node got partitions again, or it is unknown whether the others have all data: a node that has
            # just started does not know it.
            self._note(f"{node.host} comes back as it was")
        elif not node.alive:
            self._note(f"{node.host} has a new disk")
            node.wipe()
            wiped(node.host)
        if not node.alive:
            node.start()
        others_ids = [each.node_id for each in self._brokers if each is not node]
        await self._move(
            {self._random.choice(EVERYTHING): [node.node_id, *self._random.sample(others_ids, _REPLICAS - 1)]}
        )

    def _needed(self, node: SimNode) -> bool:
        return node.node_id in self._voters() or any(
            node.node_id in partition.replicas for _, partition in self._partitions()
        )

    async def _withdraw(self, node: SimNode) -> bool:
        async def ask() -> None:
            if node.node_id in (voters := self._voters()) and len(voters) > _FEWEST_VOTERS:
                await self._remove_voter(node.node_id)
            await self._move(
                {
                    tp: self._without(node, partition.replicas)
                    for tp, partition in self._partitions()
                    if node.node_id in partition.replicas and not partition.is_reassigning
                }
            )

        return await self._until(lambda: not self._needed(node), ask)

    def _without(self, leaver: SimNode, replicas: Sequence[int]) -> list[int]:
        kept = [node_id for node_id in replicas if node_id != leaver.node_id]
        others = [node.node_id for node in self._brokers if node is not leaver and node.node_id not in kept]
        return [*kept, self._random.choice(others)] if others else kept

    async def _unregister(self, node: SimNode) -> None:
        def gone() -> bool:
            image = self._image()
            return image is not None and node.node_id not in image.brokers

        request = messages.UnregisterBrokerRequest(broker_id=BrokerId(node.node_id))
        await self._until(gone, lambda: self._ask(request, 0))
