"""A cluster of real broker processes that a test can kill, pause, restart and query."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, TypeVar, overload

from ottla.cli.local_cluster import Address, NodePlan, plan_nodes, prepare_nodes
from ottla.errors import ErrorCode
from ottla.ids import BrokerId, TopicName
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient, Resp
from ottla.testing.running import QUICK_SETTINGS
from ottla.wire import messages
from ottla.wire.classes import WireRequest

if TYPE_CHECKING:
    from ottla.testing.secure import SecureCluster

T = TypeVar("T")

_HOST: Final = "127.0.0.1"
FIRST_CONTROLLER_ID: Final = 101
"""The first id of dedicated controllers. Broker ids begin with 1."""
_LOOK_EACH_S: Final = 0.02


class Cluster:
    """`n` brokers with the ids 1 to n. Each is also a controller, unless `controllers` asks for dedicated ones.

    Dedicated controllers have ids from 101. `spares` are further brokers that `start` does not start. `hosts` gives the
    address of a node by id. `launchers` gives words that come before the command of a node, for example to run it in
    its own network namespace.

    Methods take node ids. `kill` sends SIGKILL, `stop` stops cleanly; `restart` uses the same data and ports.

    >>> from pathlib import Path
    >>> dedicated = Cluster(Path(tmp) / "dedicated", 2, controllers=1)
    >>> dedicated.broker_ids, dedicated.controller_ids
    ([1, 2], [101])
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

    # -- nodes

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all brokers, spares included.

        >>> cluster.broker_ids
        [1, 2, 3]
        """
        return [node_id for node_id, plan in self.plans.items() if plan.broker is not None]

    @property
    def controller_ids(self) -> list[int]:
        """The ids of all controllers.

        >>> cluster.controller_ids
        [1, 2, 3]
        """
        return [node_id for node_id, plan in self.plans.items() if plan.controller is not None]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers for clients, separated by commas.

        >>> cluster.bootstrap.count(",")
        2
        """
        return ",".join(self.address(node_id) for node_id in self.broker_ids)

    def address(self, node_id: int) -> str:
        """Return the address of one node: the client listener of a broker, else the controller listener.

        >>> cluster.address(1)
        '127.0.0.1:...'
        """
        return str(self.plans[node_id].address)

    def running(self, node_id: int) -> bool:
        """Return whether the process of a node runs.

        >>> cluster.running(1)
        True
        """
        return self.nodes[node_id].running

    def log(self, node_id: int) -> str:
        """Return everything that a node has written to standard error so far.

        >>> "Traceback" in cluster.log(1)
        False
        """
        return self.nodes[node_id].log

    def logs(self) -> str:
        """Return the end of every node's log, for the message of a failed test.

        >>> cluster.logs().splitlines()[0]
        '-- node 1'
        """
        return "\n".join(f"-- node {node_id}\n{self.log(node_id)[-4000:]}" for node_id in self.nodes)

    # -- start, stop and failures

    def prepare(self) -> None:
        """Write the configuration files and format the directories of all nodes. `start` does this, too.

        >>> cluster.prepare()
        """
        self.cluster_id = prepare_nodes(list(self.plans.values()))

    def start(self, timeout_s: float = 120.0) -> Cluster:
        """Start all nodes except the spares, and wait until each is ready.

        For example::

            cluster = Cluster(Path("data")).start()
        """
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
        """Kill a node with SIGKILL.

        >>> cluster.kill(3)
        >>> cluster.running(3)
        False
        >>> cluster.start_node(3)
        """
        self.nodes[node_id].kill()

    def kill_all(self) -> None:
        """Kill all nodes at the same moment, so that none reacts to the loss of another.

        For example::

            cluster.kill_all()
            cluster.start()
        """
        for process in self.nodes.values():
            if process.running:
                process.resume()
        for process in self.nodes.values():
            process.kill()

    def stop(self, node_id: int, timeout_s: float = 60.0) -> int:
        """Stop a node cleanly and return its exit code.

        For example::

            assert cluster.stop(3) == 0
        """
        return self.nodes[node_id].stop(timeout_s)

    def stop_all(self) -> None:
        """Stop all nodes cleanly: brokers first, so that a controller can move their leaderships.

        For example::

            cluster.stop_all()
        """
        for node_id in sorted(self.nodes, key=lambda i: self.plans[i].broker is None):
            if self.running(node_id):
                self.stop(node_id)

    def start_node(self, node_id: int, timeout_s: float = 120.0) -> None:
        """Start a node that does not run, and wait until it is ready.

        For example::

            cluster.kill(2)
            cluster.start_node(2)
        """
        self.nodes[node_id].start(timeout_s)

    def restart(self, node_id: int, timeout_s: float = 120.0) -> None:
        """Stop a node if it runs, and start it again on the same data and ports.

        For example::

            cluster.restart(2)
        """
        self.nodes[node_id].restart(timeout_s)

    def pause(self, node_id: int) -> None:
        """Pause a node (SIGSTOP): it stops responding, and its connections stay open.

        >>> cluster.pause(2)
        >>> cluster.resume(2)
        """
        self.nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        """Let a paused node go on (SIGCONT).

        >>> cluster.pause(2)
        >>> cluster.resume(2)
        """
        self.nodes[node_id].resume()

    # -- queries

    def ask(
        self, request: WireRequest[Resp], version: int, *, node_id: int | None = None, timeout_s: float = 10.0
    ) -> Resp:
        """Send a request to a node and return its response. Without an id, any broker that is not paused will do.

        >>> from ottla.wire import messages
        >>> len(cluster.ask(messages.MetadataRequest(topics=[]), 12).brokers)
        3
        """
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
        """Return the id of the active controller; None during an election.

        >>> cluster.wait_for(cluster.controller_id) in cluster.controller_ids
        True
        """
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
        """Return a partition as Metadata describes it (`leader_id`, `replica_nodes`, `isr_nodes`), or None.

        >>> sorted(cluster.partition("orders", 0).replica_nodes)
        [1, 2, 3]
        """
        request = messages.MetadataRequest
        asked = request(
            topics=[request.MetadataRequestTopic(name=TopicName(topic))], allow_auto_topic_creation=False
        )
        found = self.ask(asked, 12, node_id=node_id).topics[0]
        if found.error_code != ErrorCode.NONE:
            return None
        return next((p for p in found.partitions if p.partition_index == partition), None)

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """Return the id of a partition's leader; None while there is none.

        >>> cluster.leader_of("orders", 0) in cluster.broker_ids
        True
        """
        found = self.partition(topic, partition)
        return None if found is None or found.leader_id < 0 else found.leader_id

    def isr_of(self, topic: str, partition: int = 0) -> list[int]:
        """Return the ids of a partition's in-sync replicas.

        >>> cluster.wait_in_sync("orders")
        >>> cluster.isr_of("orders", 0)
        [1, 2, 3]
        """
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
        """Create a topic, and wait until every broker that runs and is not paused knows it.

        >>> cluster.create_topic("payments", partitions=2, configs={"min.insync.replicas": 2})
        """
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
            raise AssertionError(f"topic {topic} exists already")

        def created() -> bool:
            result = self.ask(asked, 7, timeout_s=40).topics[0]
            code = ErrorCode(result.error_code)
            # A topic that exists now was created by an earlier request whose response got lost.
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return True
            # A broker counts as soon as the controller has unfenced it.
            if code is ErrorCode.INVALID_REPLICATION_FACTOR or code.retriable:
                return False
            raise AssertionError(f"{code.name}: {result.error_message}")

        self.wait_for(created)
        for node_id in self.broker_ids:
            if self.running(node_id) and not self.nodes[node_id].paused:
                self.wait_for(lambda node_id=node_id: self.partition(topic, node_id=node_id))  # type: ignore[misc]

    def wait_for(self, condition: Callable[[], T], timeout_s: float = 120.0) -> T:
        """Call `condition` until it returns something true, and return that. A connection error counts as false.

        >>> cluster.wait_for(lambda: cluster.leader_of("orders", 0)) > 0
        True
        """
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
                raise AssertionError(f"timed out after {timeout_s} s: {reason}\n{self.logs()}")
            time.sleep(_LOOK_EACH_S)

    def wait_in_sync(self, topic: str, partitions: int = 1, timeout_s: float = 120.0) -> None:
        """Wait until the partitions of a topic have a leader and all replicas are in the ISR.

        >>> cluster.wait_in_sync("orders", partitions=1)
        """

        def in_sync() -> bool:
            for index in range(partitions):
                found = self.partition(topic, index)
                if found is None or found.leader_id < 0 or set(found.isr_nodes) != set(found.replica_nodes):
                    return False
            return True

        self.wait_for(in_sync, timeout_s)

    def wait_all_in_sync(self, timeout_s: float = 120.0) -> None:
        """Wait until all partitions of all topics, internal ones included, are in sync.

        >>> cluster.wait_all_in_sync()
        """

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


@overload
def running_cluster(
    n: int = 3,
    data: Path | str | None = None,
    *,
    secure: Literal[True],
    settings: Mapping[str, object] | None = None,
) -> AbstractContextManager[SecureCluster]: ...


@overload
def running_cluster(
    n: int = 3,
    data: Path | str | None = None,
    *,
    secure: Literal[False] = False,
    controllers: int = 0,
    settings: Mapping[str, object] | None = None,
    racks: Sequence[str] = (),
) -> AbstractContextManager[Cluster]: ...


def running_cluster(
    n: int = 3,
    data: Path | str | None = None,
    *,
    secure: bool = False,
    controllers: int = 0,
    settings: Mapping[str, object] | None = None,
    racks: Sequence[str] = (),
) -> AbstractContextManager[Cluster] | AbstractContextManager[SecureCluster]:
    """Run a cluster until the block ends. Clients connect to `cluster.bootstrap`.

    The nodes are processes: `cluster.kill(2)`, `cluster.stop(2)`, `cluster.pause(2)` and `cluster.restart(2)` simulate
    failures. Without `data` the cluster uses a temporary directory, which is removed at the end. With `secure=True`
    it is a `SecureCluster`: TLS, passwords and ACLs.

    >>> with running_cluster(3) as cluster:
    ...     cluster.create_topic("orders")
    ...     cluster.kill(cluster.leader_of("orders"))
    ...     cluster.wait_for(lambda: cluster.leader_of("orders")) in cluster.broker_ids
    True
    """
    if secure:
        if controllers or racks:
            raise ValueError("a secure cluster has no dedicated controllers and no racks")
        return _running_secure(n, data, settings)
    return _running(n, data, controllers, settings, racks)


@contextlib.contextmanager
def _running(
    n: int,
    data: Path | str | None,
    controllers: int,
    settings: Mapping[str, object] | None,
    racks: Sequence[str],
) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        cluster = Cluster(_place(data, stack), n, controllers=controllers, settings=settings, racks=racks)
        stack.callback(cluster.kill_all)
        yield cluster.start()
        cluster.stop_all()


@contextlib.contextmanager
def _running_secure(
    n: int, data: Path | str | None, settings: Mapping[str, object] | None
) -> Iterator[SecureCluster]:
    from ottla.testing.secure import SecureCluster

    with contextlib.ExitStack() as stack:
        cluster = SecureCluster(_place(data, stack), n, settings=settings)
        stack.callback(cluster.kill_all)
        yield cluster.start()
        cluster.stop_all()


def _place(data: Path | str | None, stack: contextlib.ExitStack) -> Path:
    """The given directory, or one that goes with the cluster."""
    return Path(data) if data is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
