"""A cluster of real processes: started, killed, paused and asked who leads, the way a day in production goes."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from ottla.cli.local_cluster import Address, NodePlan, plan_nodes, prepare_nodes
from ottla.errors import ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient, Resp
from ottla.testing.running import QUICK_SETTINGS
from ottla.wire import messages
from ottla.wire.classes import WireRequest

T = TypeVar("T")

_HOST: Final = "127.0.0.1"
FIRST_CONTROLLER_ID: Final = 101
"""Ids of controllers that are no brokers; brokers count from 1."""
_LOOK_EACH_S: Final = 0.02


class Cluster:
    """`n` brokers with the ids 1 to n, each also a controller, or with `controllers` of their own (ids from 101).

    `spares` are brokers with the ids after those, which `start` leaves for later. Nodes listen on `hosts` by id, and
    start with the words of `launchers` in front, which may put them into a place of their own.

    Nodes are named by id throughout. `kill` is -9, `stop` an orderly stop; `restart` stops what runs and starts
    it again on the same data and ports.
    """

    def __init__(
        self,
        data: Path,
        n: int = 3,
        *,
        controllers: int = 0,
        settings: Mapping[str, object] | None = None,
        racks: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        spares: int = 0,
        hosts: Mapping[int, str] | None = None,
        launchers: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        hosts = hosts or {}
        ports = iter(free_ports(2 * n + controllers + spares))
        addresses: dict[int, tuple[Address | None, Address | None]] = {}
        for node_id in range(1, n + spares + 1):
            host = hosts.get(node_id, _HOST)
            own = None if controllers or node_id > n else Address(host, next(ports))
            addresses[node_id] = (Address(host, next(ports)), own)
        for node_id in range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + controllers):
            addresses[node_id] = (None, Address(hosts.get(node_id, _HOST), next(ports)))
        wanted = {key: str(value) for key, value in {**QUICK_SETTINGS, **(settings or {})}.items()}
        self.data = data
        self.plans: dict[int, NodePlan] = {
            plan.node_id: plan for plan in plan_nodes(data, addresses, settings=wanted, racks=racks)
        }
        self.nodes: dict[int, BrokerProcess] = {
            node_id: BrokerProcess(
                plan.data,
                config=plan.file,
                environment=environment,
                launcher=(launchers or {}).get(node_id, ()),
            )
            for node_id, plan in self.plans.items()
        }
        self.spares = list(range(n + 1, n + spares + 1))
        self.cluster_id = ""

    # -- who there is

    @property
    def broker_ids(self) -> list[int]:
        return [node_id for node_id, plan in self.plans.items() if plan.broker is not None]

    @property
    def controller_ids(self) -> list[int]:
        return [node_id for node_id, plan in self.plans.items() if plan.controller is not None]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as clients take them."""
        return ",".join(self.address(node_id) for node_id in self.broker_ids)

    def address(self, node_id: int) -> str:
        """Where one node listens, for clients if it is a broker."""
        return str(self.plans[node_id].address)

    def running(self, node_id: int) -> bool:
        return self.nodes[node_id].running

    def log(self, node_id: int) -> str:
        """What a node has written to standard error so far."""
        return self.nodes[node_id].log

    def logs(self) -> str:
        """The end of every node's, to be read when something went wrong."""
        return "\n".join(f"-- node {node_id}\n{self.log(node_id)[-4000:]}" for node_id in self.nodes)

    # -- what is done to it

    def prepare(self) -> None:
        """Write the nodes' files and format their directories, as one cluster."""
        self.cluster_id = prepare_nodes(list(self.plans.values()))

    def start(self, timeout_s: float = 120.0) -> Cluster:
        """Start all nodes but the spares at once and wait until each is ready."""
        self.prepare()
        started = [process for node_id, process in self.nodes.items() if node_id not in self.spares]
        deadline = time.monotonic() + timeout_s
        try:
            for process in started:
                process.launch()
            for process in started:
                process.wait_ready(max(deadline - time.monotonic(), 0.1))
        except BaseException:
            self.kill_all()
            raise
        return self

    def kill(self, node_id: int) -> None:
        self.nodes[node_id].kill()

    def kill_all(self) -> None:
        """All at once: none sees another go before it is gone itself."""
        for process in self.nodes.values():
            if process.running:
                process.resume()
        for process in self.nodes.values():
            process.kill()

    def stop(self, node_id: int, timeout_s: float = 60.0) -> int:
        return self.nodes[node_id].stop(timeout_s)

    def stop_all(self) -> None:
        """Brokers first, so that they can hand over to a controller that is still there."""
        for node_id in sorted(self.nodes, key=lambda i: self.plans[i].broker is None):
            if self.running(node_id):
                self.stop(node_id)

    def start_node(self, node_id: int, timeout_s: float = 120.0) -> None:
        self.nodes[node_id].start(timeout_s)

    def restart(self, node_id: int, timeout_s: float = 120.0) -> None:
        self.nodes[node_id].restart(timeout_s)

    def pause(self, node_id: int) -> None:
        self.nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        self.nodes[node_id].resume()

    # -- what it says of itself

    def ask(
        self, request: WireRequest[Resp], version: int, *, node_id: int | None = None, timeout_s: float = 10.0
    ) -> Resp:
        """One request to one node; without an id to any broker that answers. Those that are paused are not asked."""
        if node_id is not None:
            with RawClient(*self.plans[node_id].address, timeout_s=timeout_s) as client:
                return client.ask(request, version)
        reason: OSError | None = None
        for candidate in self.broker_ids:
            if self.running(candidate) and not self.nodes[candidate].paused:
                try:
                    return self.ask(request, version, node_id=candidate, timeout_s=timeout_s)
                except OSError as error:
                    reason = error
        raise reason or ConnectionError("no broker runs")

    def controller_id(self) -> int | None:
        """The active controller, as a node that can tell says."""
        request = messages.DescribeQuorumRequest
        asked = request(
            topics=[
                request.TopicData(
                    topic_name=TopicName("__cluster_metadata"),
                    partitions=[request.PartitionData(partition_index=0)],
                )
            ]
        )
        answer = self.ask(asked, 2)
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            return None
        leader = answer.topics[0].partitions[0].leader_id
        return leader if leader >= 0 else None

    def partition(
        self, topic: str, partition: int = 0, *, node_id: int | None = None
    ) -> messages.MetadataResponse.MetadataResponsePartition | None:
        """A partition as Metadata shows it (`leader_id`, `replica_nodes`, `isr_nodes`); None if it is not there."""
        request = messages.MetadataRequest
        asked = request(
            topics=[request.MetadataRequestTopic(name=TopicName(topic))], allow_auto_topic_creation=False
        )
        found = self.ask(asked, 12, node_id=node_id).topics[0]
        if found.error_code != ErrorCode.NONE:
            return None
        return next((p for p in found.partitions if p.partition_index == partition), None)

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        found = self.partition(topic, partition)
        return None if found is None or found.leader_id < 0 else found.leader_id

    def isr_of(self, topic: str, partition: int = 0) -> list[int]:
        found = self.partition(topic, partition)
        return [] if found is None else sorted(found.isr_nodes)

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication_factor: int = 3,
        configs: Mapping[str, object] | None = None,
        assignments: Sequence[Sequence[int]] = (),
    ) -> None:
        """Create a topic, and wait until every broker that runs and is not paused knows it."""
        request = messages.CreateTopicsRequest
        new = request.CreatableTopic(
            name=TopicName(topic),
            num_partitions=-1 if assignments else partitions,
            replication_factor=-1 if assignments else replication_factor,
            assignments=[
                request.CreatableReplicaAssignment(
                    partition_index=index, broker_ids=[BrokerId(i) for i in replicas]
                )
                for index, replicas in enumerate(assignments)
            ],
            configs=[
                request.CreatableTopicConfig(name=key, value=str(value))
                for key, value in (configs or {}).items()
            ],
        )
        asked = request(topics=[new], timeout_ms=30_000)
        if self.partition(topic) is not None:
            raise AssertionError(f"{topic} is there already")

        def created() -> bool:
            result = self.ask(asked, 7, timeout_s=40).topics[0]
            code = ErrorCode(result.error_code)
            # One that is there by now was created by a request whose answer got lost.
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return True
            # Brokers count as soon as the controller has let them in again.
            if code is ErrorCode.INVALID_REPLICATION_FACTOR or code.retriable:
                return False
            raise AssertionError(f"{code.name}: {result.error_message}")

        self.wait_for(created)
        for node_id in self.broker_ids:
            if self.running(node_id) and not self.nodes[node_id].paused:
                self.wait_for(lambda node_id=node_id: self.partition(topic, node_id=node_id))  # type: ignore[misc]

    def wait_for(self, condition: Callable[[], T], timeout_s: float = 120.0) -> T:
        """Ask again and again until the answer is something; gives it back."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                found = condition()
            except OSError as error:
                found, reason = None, str(error)
            else:
                reason = repr(found)
            if found:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"it did not come to be within {timeout_s} s: {reason}\n{self.logs()}")
            time.sleep(_LOOK_EACH_S)

    def wait_in_sync(self, topic: str, partitions: int = 1, timeout_s: float = 120.0) -> None:
        """Until every replica of these partitions is in the ISR and there is a leader."""

        def in_sync() -> bool:
            for index in range(partitions):
                found = self.partition(topic, index)
                if found is None or found.leader_id < 0 or set(found.isr_nodes) != set(found.replica_nodes):
                    return False
            return True

        self.wait_for(in_sync, timeout_s)

    def wait_all_in_sync(self, timeout_s: float = 120.0) -> None:
        """The same for every partition of every topic, the coordinators' own among them."""

        def in_sync() -> bool:
            topics = self.ask(messages.MetadataRequest(topics=None), 12).topics
            return all(
                found.leader_id >= 0 and set(found.isr_nodes) == set(found.replica_nodes)
                for topic in topics
                for found in topic.partitions
            )

        self.wait_for(in_sync, timeout_s)

    def __enter__(self) -> Cluster:
        return self if any(process.running for process in self.nodes.values()) else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()
        if error is not None:
            error.add_note(self.logs())


@contextlib.contextmanager
def running_cluster(
    n: int = 3,
    data: Path | str | None = None,
    *,
    controllers: int = 0,
    settings: Mapping[str, object] | None = None,
    racks: Sequence[str] = (),
) -> Iterator[Cluster]:
    """A cluster that answers on `cluster.bootstrap` until the block ends.

    Its nodes are processes: `cluster.kill(2)`, `cluster.stop(2)`, `cluster.pause(2)` and `cluster.restart(2)` do to
    one what may happen to it. Without a directory of the caller's its data is gone at the end.
    """
    with contextlib.ExitStack() as stack:
        directory = (
            Path(data) if data is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        )
        cluster = Cluster(directory, n, controllers=controllers, settings=settings, racks=racks)
        stack.callback(cluster.kill_all)
        yield cluster.start()
        cluster.stop_all()
