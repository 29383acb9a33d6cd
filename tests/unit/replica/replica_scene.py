"""A broker's replica side on real logs and a virtual clock; threads are played by the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from ottla.config.broker import BrokerConfig
from ottla.log.manager import LogManager
from ottla.log.write_gate import WriteGate
from ottla.metadata.image import (
    EMPTY_IMAGE,
    ConfigurationsImage,
    PartitionRegistration,
    TopicImage,
    TopicsImage,
)
from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.replica import log_creation as making
from ottla.replica.fetch_sessions import FetchSessionCache
from ottla.replica.manager import ClusterLink, ReplicaManager
from ottla.replica.offload import Offloader
from ottla.replica.producer_ids import ProducerIds
from ottla.security.grants import Grants
from ottla.security.node_identity import NodeIdentity
from ottla.testing.memfs import MemFs
from ottla.testing.memory_peers import MemoryNetwork
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire.apis import ApiKey
from ottla.wire.enums import ConfigResourceType

NODE = 1
UNASSIGNED = bytes(16)


class ManualExecutor:
    """Runs what was submitted when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, partial(work, *args)))
        return future

    def run(self, only: Callable[..., Any] | None = None) -> int:
        """Run everything that waits, or only calls of one function, also what that adds; how many."""
        count = 0
        while (at := self._next(only)) is not None:
            future, work = self.waiting.pop(at)
            count += 1
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - handed on, as executors do
                future.set_exception(error)
            else:
                future.set_result(result)
        return count

    def _next(self, only: Callable[..., Any] | None) -> int | None:
        for at, (_, work) in enumerate(self.waiting):
            if only is None or (isinstance(work, partial) and work.func is only):
                return at
        return None


class Context:
    """A request's context, noting what becomes of it."""

    client_id = "test"
    principal, client_host, api_key = "User:ANONYMOUS", "127.0.0.1", int(ApiKey.FETCH)
    forwarded, node_ids = False, frozenset[int]()
    grants = Grants("User:ANONYMOUS", "127.0.0.1")
    listener_name = "PLAINTEXT"
    local_host, local_port = "localhost", 9092
    meter, metered = None, False

    def __init__(self, version: int) -> None:
        self.version = version
        self.response: Any = None
        self.aborted = False
        self.closed = False
        self.errors: list[int] = []
        self._on_close: list[Callable[[], None]] = []

    def note_error(self, code: int) -> None:
        self.errors.append(code)

    def from_follower(self) -> None:
        pass

    def respond(self, response: Any) -> None:
        assert self.response is None, "answered twice"
        self.response = response

    def abort(self) -> None:
        self.aborted = True

    def on_close(self, callback: Callable[[], None]) -> None:
        self._on_close.append(callback)

    def on_disconnect(self, key: Any, callback: Callable[[], None]) -> None:
        self._on_close.append(callback)

    def disconnect(self) -> None:
        self.closed = True
        for callback in self._on_close:
            callback()


@dataclass
class Scene:
    """The replica side of a broker, and what tests do to it."""

    fs: MemFs
    clock: VirtualClock
    executor: ManualExecutor
    log_manager: LogManager
    replicas: ReplicaManager
    broker: Any
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    publishers: list[Callable[[Any, Any], None]] = field(default_factory=list)
    """Called with new metadata after the replicas."""
    ready_at_once: bool = False
    """Whether new partitions have all files that records need before anybody comes."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        replicas: tuple[int, ...] = (NODE,),
        topic_id: bytes | None = None,
    ) -> bytes:
        topic_id = self.topic_ids[name] = topic_id or self.clock.random_uuid()
        registration = PartitionRegistration(
            replicas=replicas,
            directories=(UNASSIGNED,) * len(replicas),
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        topic = TopicImage(topic_id, name, dict.fromkeys(range(partitions), registration))
        image = self.replicas.image
        if configs:
            resources = {**image.configs.resources, (ConfigResourceType.TOPIC, name): configs}
            image = replace(image, configs=ConfigurationsImage(resources))
        self.publish(image, changed=topic)
        if self.ready_at_once:
            self.make_ready(name)
        return topic_id

    def make_ready(self, name: str) -> None:
        """Have a topic's files made, those included that its first records need."""
        here = [each for each in self.replicas.partitions() if each.topic == name]
        self.replicas.make_ready(here, 0, lambda: None)
        self.turn()

    def delete_topic(self, name: str) -> None:
        image = self.replicas.image
        self.publish(image, deleted=image.topics.by_name[name])

    def change_partition(self, name: str, index: int, **changes: Any) -> None:
        topic = self.replicas.image.topics.by_name[name]
        registration = replace(topic.partitions[index], **changes)
        self.publish(
            self.replicas.image,
            changed=replace(topic, partitions={**topic.partitions, index: registration}),
            indexes=[index],
        )

    def publish(
        self,
        image: Any,
        *,
        changed: TopicImage | None = None,
        deleted: TopicImage | None = None,
        indexes: list[int] | None = None,
    ) -> None:
        by_name, by_id = dict(image.topics.by_name), dict(image.topics.by_id)
        changes, deletions = {}, {}
        if deleted is not None:
            del by_name[deleted.name], by_id[deleted.id]
            deletions[deleted.id] = deleted
        if changed is not None:
            by_name[changed.name] = by_id[changed.id] = changed
            wanted = indexes if indexes is not None else list(changed.partitions)
            changes[changed.id] = SimpleNamespace(
                id=changed.id,
                name=changed.name,
                is_new=changed.id not in image.topics.by_id,
                partition_changes={index: changed.partitions[index] for index in wanted},
            )
        delta = SimpleNamespace(
            changed_topics=changes, deleted_topics=deletions, changed_configs=set(), changed_brokers=set()
        )
        self.broker.image = replace(image, topics=TopicsImage(by_name, by_id))
        self.replicas.publish(delta, self.broker.image)
        for publisher in self.publishers:
            publisher(delta, self.broker.image)

    def set_topic_config(self, name: str, configs: Mapping[str, str]) -> None:
        image = self.replicas.image
        resources = {**image.configs.resources, (ConfigResourceType.TOPIC, name): configs}
        delta = SimpleNamespace(
            changed_topics={},
            deleted_topics={},
            changed_configs={(ConfigResourceType.TOPIC, name)},
            changed_brokers=set(),
        )
        self.broker.image = replace(image, configs=ConfigurationsImage(resources))
        self.replicas.publish(delta, self.broker.image)

    def turn(self) -> None:
        """A few turns of the event loop, in which no time passes, and the thread that makes logs."""
        self.clock.advance(0)
        while self.executor.run(making.run):
            self.clock.advance(0)

    def append(self, topic: str, index: int, *values: bytes, **options: Any) -> int:
        """Append a batch as a producer would; its first offset."""
        partition = self.replicas.find((topic, index))
        info = partition.append(self.batch(*values, **options), 1, self.clock.now_ms(), 13)
        return info.first_offset

    def batch(self, *values: bytes, key: bytes | None = None, **options: Any) -> bytes:
        now_ms = self.clock.now_ms()
        records = [Record(at, now_ms, key, value, ()) for at, value in enumerate(values)]
        return bytes(build_batch(records, base_offset=0, **options))


def no_cluster(clock: VirtualClock) -> ClusterLink:
    """A broker on its own: no other node listens, and the controller never responds."""
    return ClusterLink(
        peers=MemoryNetwork(clock).peers(NODE),
        to_controller=lambda request, done, failed: None,
        broker_epoch=lambda: 0,
        gate=WriteGate(clock, None),
    )


def make_scene(fs: MemFs | None = None, clock: VirtualClock | None = None) -> Scene:
    """On a disk and a clock of its own, unless it goes on with those of another."""
    clock = clock or VirtualClock()
    executor = ManualExecutor()
    fs = fs or MemFs(clock.now_ms)
    config = BrokerConfig.single_node({"log.dirs": "/data", "node.id": str(NODE)})
    log_manager = LogManager(fs, config, clock, executor)
    log_manager.open_dirs("test-cluster-id-000000", NODE)
    offload = Offloader(executor, lambda call, *args: call(*args))
    replicas = ReplicaManager(log_manager, clock, offload, NODE, config, no_cluster(clock))
    log_manager.load(replicas.topic_config)
    broker = SimpleNamespace(
        authorizer=None,
        audit=None,
        node_identity=NodeIdentity.of(config),
        node_id=NODE,
        clock=clock,
        config=config,
        image=EMPTY_IMAGE,
        log_manager=log_manager,
        replicas=replicas,
        fetch_sessions=FetchSessionCache(clock, 10),
        producer_ids=ProducerIds(lambda done: done(1000, 10, None)),
    )
    return Scene(fs, clock, executor, log_manager, replicas, broker)
