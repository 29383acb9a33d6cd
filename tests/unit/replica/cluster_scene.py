"""Several brokers' replica sides on one virtual clock and an in-memory network, under the controller's own decisions.

The controller is its pure functions over one image: what they write is true at once, and reaches each broker a
little later, or when the test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from ottla.api.base import PARKED
from ottla.api.registry import supported
from ottla.config.broker import BrokerConfig
from ottla.controller import brokers as broker_decisions
from ottla.controller.alter_partition import alter_partition
from ottla.controller.settings import Settings
from ottla.errors import ApiException, ErrorCode
from ottla.log.manager import LogManager
from ottla.log.write_gate import WriteGate
from ottla.metadata.bootstrap import bootstrap_records
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage
from ottla.peers import Endpoint
from ottla.records.batch import build_batch, iter_batches, iter_records
from ottla.records.record import Record
from ottla.replica.fetch_sessions import FetchSessionCache
from ottla.replica.manager import ClusterLink, ReplicaManager
from ottla.replica.offload import Offloader
from ottla.security.node_identity import NodeIdentity
from ottla.testing.memfs import MemFs
from ottla.testing.memory_peers import MemoryNetwork
from ottla.testing.virtual_clock import VirtualClock
from ottla.wire import messages
from unit.replica.replica_scene import Context, ManualExecutor

CLUSTER_ID = "test-cluster-id-000000"
APIS = supported(on_controller_listener=False)
LISTENER = "PLAINTEXT"


class Threads(ManualExecutor):
    """Runs what was submitted a moment later, on the virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def submit(self, work: Callable[..., Any], *args: Any) -> Any:
        future = super().submit(work, *args)
        self._clock.call_later(0.001, self.run)
        return future


class Request(Context):
    """A request that another node or a client sent over the in-memory network."""

    def __init__(self, version: int, answer: Callable[[Any], None]) -> None:
        super().__init__(version)
        self._answer = answer

    def respond(self, response: Any) -> None:
        super().respond(response)
        self._answer(response)


class Node:
    """One broker: a disk that outlives its processes, and the process that runs now."""

    def __init__(self, scene: ClusterScene, node_id: int, rack: str | None) -> None:
        self.id = node_id
        self.rack = rack
        self.fs = MemFs(scene.clock.now_ms)
        self.epoch = -1
        self.clean_epoch = -1
        self.alive = False
        self.deaf = False
        """Hears nothing from the controller."""
        self._scene = scene
        self._life = 0
        self.image: MetadataImage = EMPTY_IMAGE
        self.gate = WriteGate(scene.clock, None)
        self.endpoint = Endpoint(node_id, f"node{node_id}", 9092)
        self.replicas: ReplicaManager
        self.log_manager: LogManager
        self.broker: Any

    def start(self) -> None:
        scene, clock = self._scene, self._scene.clock
        self._life += 1
        self.alive = True
        self.image = EMPTY_IMAGE
        config = scene.config(self.id)
        executor = Threads(clock)
        self.log_manager = LogManager(self.fs, config, clock, executor)
        self.log_manager.open_dirs(CLUSTER_ID, self.id)
        self.epoch = scene.register(self)
        offload = Offloader(executor, self._while_alive(lambda call, *args: call(*args)))
        link = ClusterLink(
            peers=scene.network.peers(self.id),
            to_controller=self._while_alive(scene.to_controller(self)),
            broker_epoch=lambda: self.epoch,
            gate=self.gate,
        )
        self.replicas = ReplicaManager(self.log_manager, clock, offload, self.id, config, link)
        self.log_manager.load(self.replicas.topic_config)
        self.broker = SimpleNamespace(
            authorizer=None,
            audit=None,
            node_identity=NodeIdentity.of(config),
            node_id=self.id,
            clock=clock,
            config=config,
            image=EMPTY_IMAGE,
            log_manager=self.log_manager,
            replicas=self.replicas,
            fetch_sessions=FetchSessionCache(clock, 100),
        )
        scene.network.serve(self.endpoint, self._while_alive(self._serve))
        self.publish(scene.image)
        self.replicas.start()

    def _while_alive(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A killed process does nothing more, whatever was under way."""
        life = self._life

        def guarded(*args: Any) -> Any:
            return call(*args) if self.alive and self._life == life else None

        return guarded

    def kill(self) -> None:
        """kill -9: what was written stays, the process knows nothing more."""
        self._end()
        self.fs = self.fs.kill()

    def _end(self) -> None:
        self._scene.network.stop(self.id)
        self.alive = False
        self.replicas.shutdown()

    def publish(self, image: MetadataImage) -> None:
        if self.alive and not self.deaf and image is not self.image:
            delta = MetadataDelta.between(self.image, image)
            self.image = self.broker.image = image
            self.replicas.publish(delta, image)

    def _serve(self, sender: int, request: Any, version: int, respond: Callable[[Any], None]) -> None:
        ctx = Request(version, respond)
        answer = APIS[request.API_KEY].handle(self.broker, ctx, request)
        if answer is not PARKED:
            respond(answer)

    def partition(self, topic: str = "t", index: int = 0) -> Any:
        return self.replicas.find((topic, index))

    def values(self, topic: str = "t", index: int = 0, end: int | None = None) -> list[bytes]:
        """The records in its log, below an offset."""
        log = self.partition(topic, index).local_log()
        end = log.log_end_offset if end is None else end
        found, offset = [], log.log_start_offset
        while offset < end:
            records = log.read(offset, 1 << 20).records
            for position, header in iter_batches(records):
                found += [r.value for r in iter_records(records, position, header) if r.offset < end]
                offset = header.next_offset
        return found


class ClusterScene:
    """The brokers, and the controller that they follow."""

    def __init__(self, count: int = 3, seed: int = 0, **settings: str) -> None:
        self.clock = VirtualClock(seed=seed)
        self.network = MemoryNetwork(self.clock)
        self.settings = {key.replace("_", "."): value for key, value in settings.items()}
        self.image = EMPTY_IMAGE
        self.controller = Settings(self.config(0), CLUSTER_ID)
        self.metadata_delay_s = 0.002
        self.node: dict[int, Node] = {}
        self.commit(bootstrap_records())
        for node_id in range(1, count + 1):
            self.add_node(node_id)

    def add_node(self, node_id: int, rack: str | None = None) -> Node:
        node = self.node[node_id] = Node(self, node_id, rack)
        node.start()
        self.unfence(node_id)
        return node

    def config(self, node_id: int) -> BrokerConfig:
        return BrokerConfig.single_node({"log.dirs": "/data", "node.id": str(node_id), **self.settings})

    # -- the controller

    def commit(self, records: list[Any]) -> None:
        """Records of the metadata log: true at once, known to the brokers soon."""
        if not records:
            return
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.image = delta.apply(self.image.offset + len(records), 1)
        image = self.image
        for node in self.node.values():
            delay_s = self.metadata_delay_s * (1 + self.clock.random.random())
            self.clock.call_later(delay_s, self._tell, node, image)

    def _tell(self, node: Node, image: MetadataImage) -> None:
        if image.offset > node.image.offset:
            node.publish(image)

    def register(self, node: Node) -> int:
        request = messages.BrokerRegistrationRequest
        result = broker_decisions.register_broker(
            self.image,
            request(
                broker_id=node.id,
                cluster_id=CLUSTER_ID,
                incarnation_id=self.clock.random_uuid(),
                listeners=[
                    request.Listener(
                        name=LISTENER, host=node.endpoint.host, port=node.endpoint.port, security_protocol=0
                    )
                ],
                features=[
                    request.Feature(name=name, min_supported_version=r.min, max_supported_version=r.max)
                    for name, r in SUPPORTED_FEATURES.items()
                ],
                log_dirs=[directory.directory_id for directory in node.log_manager.dirs],
                rack=node.rack,
                previous_broker_epoch=node.clean_epoch,
            ),
            self.controller,
            next_offset=self.image.offset + 1,
            session_is_alive=False,
        )
        self.commit(result.records)
        return result.response.broker_epoch

    def unfence(self, node_id: int) -> None:
        """The broker has caught up with the metadata, and says so."""
        node = self.node[node_id]
        request = messages.BrokerHeartbeatRequest(
            broker_id=node_id, broker_epoch=node.epoch, current_metadata_offset=self.image.offset
        )
        _, result = broker_decisions.heartbeat(
            self.image, request, self.controller, registration_offset=0, others_know_shutdown=False
        )
        self.commit(result.records)

    def fence(self, node_id: int) -> None:
        """The broker is not heard of any more."""
        epoch = self.image.brokers[node_id].epoch
        self.commit(broker_decisions.fence_broker(self.image, self.controller, node_id, epoch).records)

    def to_controller(self, node: Node) -> Callable[..., None]:
        def send(request: Any, done: Callable[[Any], None], failed: Callable[[Any], None]) -> None:
            self.clock.call_later(0.001, self._answer, node, request, done, failed)

        return send

    def _answer(self, node: Node, request: Any, done: Callable[[Any], None], failed: Any) -> None:
        if node.deaf:
            failed("the request is lost")
            return
        response_class = messages.response_class(request.API_KEY)
        if request.NAME != "AlterPartitionRequest":
            self.clock.call_later(0.001, done, response_class())
            return
        try:
            result = alter_partition(self.image, request, self.controller, 3)
        except ApiException as error:
            self.clock.call_later(0.001, done, response_class(error_code=error.code))
            return
        self.commit(result.records)
        self.clock.call_later(0.001, done, result.response)

    # -- what happens

    def create_topic(
        self,
        name: str = "t",
        assignments: list[tuple[int, ...]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> bytes:
        topic_id = self.clock.random_uuid()
        records = [messages.TopicRecord(name=name, topic_id=topic_id)]
        for index, replicas in enumerate(assignments or [(1, 2, 3)]):
            records.append(
                messages.PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=list(replicas),
                    isr=list(replicas),
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[self.node[each].log_manager.dirs[0].directory_id for each in replicas],
                )
            )
        for key, value in (configs or {}).items():
            records.append(messages.ConfigRecord(resource_type=2, resource_name=name, name=key, value=value))
        self.commit(records)
        self.run(0.1)
        return topic_id

    def run(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def kill(self, node_id: int, *, fence: bool = True) -> None:
        self.node[node_id].kill()
        if fence:
            self.fence(node_id)

    def restart(self, node_id: int) -> None:
        self.node[node_id].start()
        self.unfence(node_id)

    def registration(self, topic: str = "t", index: int = 0) -> Any:
        return self.image.topics.by_name[topic].partitions[index]

    def leader(self, topic: str = "t", index: int = 0) -> Node | None:
        return self.node.get(self.registration(topic, index).leader)

    def move_leader(self, leader: int, topic: str = "t", index: int = 0) -> None:
        """An election, which an admin asked for."""
        self.commit(
            [
                messages.PartitionChangeRecord(
                    partition_id=index, topic_id=self.image.topics.by_name[topic].id, leader=leader
                )
            ]
        )

    def produce(
        self,
        *values: bytes,
        topic: str = "t",
        index: int = 0,
        acks: int = -1,
        to: int | None = None,
        **options: Any,
    ) -> Produced:
        """A producer's request to the leader, or to the node that it takes for the leader."""
        node = self.leader(topic, index) if to is None else self.node[to]
        assert node is not None
        now_ms = self.clock.now_ms()
        records = [Record(at, now_ms, None, value, ()) for at, value in enumerate(values)]
        produced = Produced()
        request = messages.ProduceRequest(
            acks=acks,
            timeout_ms=options.pop("timeout_ms", 5000),
            topic_data=[
                messages.ProduceRequest.TopicProduceData(
                    name=topic,
                    partition_data=[
                        messages.ProduceRequest.PartitionProduceData(
                            index=index, records=bytes(build_batch(records, base_offset=0, **options))
                        )
                    ],
                )
            ],
        )
        node._serve(-1, request, 12, produced.answer)
        return produced

    def consume(self, node_id: int, offset: int = 0, topic: str = "t", index: int = 0, **options: Any) -> Any:
        """A consumer's fetch, which does not wait."""
        request = messages.FetchRequest
        answers: list[Any] = []
        self.node[node_id]._serve(
            -1,
            request(
                max_wait_ms=0,
                min_bytes=1,
                session_epoch=-1,
                topics=[
                    request.FetchTopic(
                        topic_id=self.image.topics.by_name[topic].id,
                        partitions=[
                            request.FetchPartition(
                                partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
                            )
                        ],
                    )
                ],
                **options,
            ),
            18,
            answers.append,
        )
        (answer,) = answers
        return answer.responses[0].partitions[0]


class Produced:
    """What became of a produce request."""

    def __init__(self) -> None:
        self.response: Any = None

    def answer(self, response: Any) -> None:
        assert self.response is None, "answered twice"
        self.response = response

    @property
    def code(self) -> ErrorCode | None:
        """None while it is not answered."""
        if self.response is None:
            return None
        return ErrorCode(self.response.responses[0].partition_responses[0].error_code)

    @property
    def offset(self) -> int:
        return int(self.response.responses[0].partition_responses[0].base_offset)
