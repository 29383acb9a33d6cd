"""One node, wired together: the only place that knows all of its parts, their order of birth and of death.

Each part's behaviour is its own module's; here is only who gets to know whom, and when.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ottla.api.broker import Broker
from ottla.api.groups.coordinator import make_group_coordinator
from ottla.api.share.services import make_share_services
from ottla.api.topics.auto_create import auto_create_topics
from ottla.api.transactions.coordinator import make_transaction_coordinator
from ottla.api.transactions.local_markers import LocalMarkers
from ottla.clock import Clock, SystemClock
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import Listener
from ottla.config.topic import TopicConfig
from ottla.controller.controller import Controller
from ottla.controller.lifecycle import BrokerLifecycle
from ottla.controller.names import SHARE_STATE_TOPIC
from ottla.controller.settings import Settings
from ottla.errors import ErrorCode, KafkaError
from ottla.log.checkpoints import read_meta_properties
from ottla.log.fs import Fs, OsFs
from ottla.log.log_dir import LogDir
from ottla.log.manager import LogManager
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.format import read_bootstrap_records
from ottla.metadata.image import ENTITY_DEFAULT, ConfigResourceType, MetadataImage
from ottla.metadata.node_format import DEFAULT_CONTROLLER_LISTENER, format_new_node, standalone_voters
from ottla.metadata.publisher import MetadataLoader, SnapshotGenerator
from ottla.metadata.records import MetadataSerde
from ottla.net.front import Front
from ottla.net.peer import PeerSettings, SocketPeers
from ottla.raft.config import RaftConfig
from ottla.raft.driver import RaftDriver
from ottla.raft.voters import VoterSet
from ottla.replica.fetch_sessions import FetchSessionCache
from ottla.replica.manager import ReplicaManager
from ottla.replica.producer_ids import BlockDone, ProducerIds
from ottla.wire import messages
from ottla.wire.uuid import uuid_from_str, uuid_to_str

log = logging.getLogger(__name__)

_THREADS: Final = 4
"""For fsync, cold reads and codecs: enough to keep a disk busy, few enough to leave the loop its core."""

_STOP_GRACE_S: Final = 2.0
"""How long requests that were taken may still run when the node stops."""

_GC_THRESHOLDS: Final = (50_000, 20, 50)
"""Requests make few cycles: the collector may look rarely."""


class Server:
    """A node. `start` returns when it answers requests, `stop` when everything is on disk and closed."""

    def __init__(self, config: BrokerConfig, *, clock: Clock | None = None, fs: Fs | None = None) -> None:
        self._config = config
        self._clock: Clock = clock or SystemClock()
        self._fs: Fs = fs or OsFs()
        self._undo: list[Callable[[], Any]] = []
        """What has to be taken down, in the order it was put up."""
        self._failure: asyncio.Future[BaseException] | None = None
        self.addresses: dict[str, tuple[str, int]] = {}
        """Host and port of each listener by name, once started."""
        self.broker: Broker | None = None

    async def start(self) -> None:
        """Bring the node up. Raises `KafkaError` or `OSError` with one clear sentence, and leaves nothing open."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_exception)
        self._failure = loop.create_future()
        try:
            await self._start(loop)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Take the node down in the reverse order of its start; a part that fails does not keep the others up."""
        failed: BaseException | None = None
        while self._undo:
            try:
                result = self._undo.pop()()
                if asyncio.iscoroutine(result):
                    await result
            except Exception as error:
                log.exception("A part of the node did not stop in order")
                failed = failed or error
        if failed is not None:
            raise failed

    async def wait_failed(self) -> BaseException:
        """Wait until the node cannot go on; gives the reason, which is logged already."""
        assert self._failure is not None
        return await self._failure

    def fail(self, error: BaseException) -> None:
        """The node cannot go on."""
        if self._failure is not None and not self._failure.done():
            log.critical("The node stops: %s", error, exc_info=error)
            self._failure.set_result(error)

    # -- coming up

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        config, clock = self._config, self._clock
        front = Front(config, clock)
        self._undo.append(front.discard)
        self.addresses = front.addresses
        executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="ottla")
        self._undo.append(executor.shutdown)

        log_manager = LogManager(self._fs, config, clock, executor, on_dir_failure=self._on_dir_failure)
        self._undo.append(
            lambda: log_manager.shutdown(-1 if self.broker is None else self.broker.broker_epoch)
        )
        cluster_id = self._open_directories(log_manager)

        raft = self._make_raft(executor, loop)
        loader = MetadataLoader(
            SnapshotGenerator(
                raft,
                clock,
                max_bytes=config.int("metadata.log.max.record.bytes.between.snapshots"),
                max_interval_ms=config.int("metadata.log.max.snapshot.interval.ms"),
            )
        )
        settings = Settings(config, cluster_id)
        controller = Controller(
            raft,
            clock,
            settings,
            bootstrap_records=read_bootstrap_records(self._fs, config.metadata_log_dir),
        )
        raft.add_listener(loader)
        raft.add_listener(controller)
        raft.start()
        self._undo.append(raft.shutdown)
        self._undo.append(controller.shutdown)
        await self._wait_for(controller.on_active)

        await loop.run_in_executor(executor, log_manager.load, _topic_configs(settings, loader.image))
        replicas = ReplicaManager(
            log_manager,
            clock,
            executor,
            config.node_id,
            settings.current(loader.image),
            call_soon_threadsafe=loop.call_soon_threadsafe,
        )
        lifecycle = self._make_lifecycle(controller, loader, log_manager, cluster_id)
        producer_ids = ProducerIds(_allocator(controller, lifecycle, config.node_id))
        local_markers = LocalMarkers(replicas, clock, self._end_offsets)
        peers = SocketPeers(clock, loop, config.node_id, PeerSettings())
        self._undo.append(peers.close)
        transactions = make_transaction_coordinator(
            settings.current(loader.image),
            replicas,
            clock,
            executor,
            loop.call_soon_threadsafe,
            producer_ids,
            local_markers,
            peers,
        )
        groups = make_group_coordinator(
            settings.current(loader.image), replicas, clock, executor, loop.call_soon_threadsafe
        )
        share = make_share_services(
            settings.current(loader.image),
            replicas,
            clock,
            executor,
            loop.call_soon_threadsafe,
            groups,
            lambda: auto_create_topics(broker, [SHARE_STATE_TOPIC]),
            peers,
        )
        broker = Broker(
            node_id=config.node_id,
            cluster_id=cluster_id,
            config=settings.current(loader.image),
            image=loader.image,
            clock=clock,
            executor=executor,
            log_manager=log_manager,
            replicas=replicas,
            controller=controller,
            raft=raft,
            lifecycle=lifecycle,
            fetch_sessions=FetchSessionCache(clock, config.int("max.incremental.fetch.session.cache.slots")),
            producer_ids=producer_ids,
            groups=groups,
            share=share,
            transactions=transactions,
            local_markers=local_markers,
            fail=self.fail,
        )
        self.broker = broker
        for publisher in self._publishers(broker, front, settings):
            loader.add_publisher(publisher)
        replicas.remove_strays()
        log_manager.start()
        await self._register_controller(controller)
        await self._wait_for(lifecycle.start)

        transactions.start()
        self._undo.append(transactions.shutdown)
        front.open(broker)
        self._undo.append(lambda: front.stop(_STOP_GRACE_S))
        # Wakes who is parked, so that the listeners find them answered.
        self._undo.append(replicas.shutdown)
        self._undo.append(groups.runtime.shutdown)
        share.coordinator.start()
        self._undo.append(share.shutdown)
        self._undo.append(lambda: self._leave(lifecycle))
        _tune_gc()
        log.info("Node %d of cluster %s is up", config.node_id, cluster_id)

    async def _wait_for(self, begin: Callable[[Callable[[], None]], None]) -> None:
        """Begin something that calls back when it is done, and wait for it or for the node's failure."""
        assert self._failure is not None
        done = asyncio.Event()
        begin(done.set)
        waiting = asyncio.ensure_future(done.wait())
        await asyncio.wait((waiting, self._failure), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            raise self._failure.result()

    def _open_directories(self, log_manager: LogManager) -> str:
        """Check and lock every directory, format them where all are new. Gives the cluster's id."""
        config, clock = self._config, self._clock
        directories = list(log_manager.dirs)
        if config.metadata_log_dir not in config.log_dirs:
            directories.append(LogDir(self._fs, config.metadata_log_dir))
            self._undo.append(directories[-1].release)
        for directory in directories:
            directory.inspect(None, config.node_id)
        for directory in directories:
            directory.take()
        format_new_node(
            self._fs,
            config,
            cluster_id=uuid_to_str(clock.random_uuid()),
            new_id=clock.random_uuid,
            now_ms=clock.now_ms(),
        )
        cluster_id = log_manager.open_dirs(None, config.node_id)
        for directory in directories[len(log_manager.dirs) :]:
            directory.inspect(cluster_id, config.node_id)
            directory.format(cluster_id, config.node_id, clock)
        return cluster_id

    def _make_raft(self, executor: ThreadPoolExecutor, loop: asyncio.AbstractEventLoop) -> RaftDriver:
        config = self._config
        listener = next(iter(config.controller_listener_names), DEFAULT_CONTROLLER_LISTENER)
        properties = read_meta_properties(self._fs, config.metadata_log_dir) or {}
        directory_id = uuid_from_str(properties["directory.id"])
        return RaftDriver(
            self._fs,
            config.metadata_log_dir,
            local=standalone_voters(config, directory_id).nodes[config.node_id],
            voters=VoterSet.from_config(config.voters, listener),
            config=RaftConfig.of(config),
            clock=self._clock,
            executor=executor,
            post=loop.call_soon_threadsafe,
            serde=MetadataSerde(),
            on_fault=self.fail,
        )

    def _make_lifecycle(
        self, controller: Controller, loader: MetadataLoader, log_manager: LogManager, cluster_id: str
    ) -> BrokerLifecycle:
        config = self._config
        request = messages.BrokerRegistrationRequest
        registration = request(
            broker_id=config.node_id,
            cluster_id=cluster_id,
            incarnation_id=self._clock.random_uuid(),
            listeners=self._endpoints(request.Listener, config.broker_listeners),
            features=_features(request.Feature),
            rack=config.opt_str("broker.rack"),
            log_dirs=[directory.directory_id for directory in log_manager.dirs if not directory.offline],
            previous_broker_epoch=_previous_epoch(log_manager),
        )
        return BrokerLifecycle(
            self._clock,
            registration=registration,
            register=controller.register_broker,
            heartbeat=controller.broker_heartbeat,
            metadata_offset=lambda: loader.image.offset,
            heartbeat_interval_ms=config.int("broker.heartbeat.interval.ms"),
        )

    def _end_offsets(self, *marker: Any) -> None:
        """A transaction that committed offsets has ended."""
        assert self.broker is not None
        self.broker.groups.runtime.complete_transaction(*marker)

    async def _register_controller(self, controller: Controller) -> None:
        request = messages.ControllerRegistrationRequest
        registration = request(
            controller_id=self._config.node_id,
            incarnation_id=self._clock.random_uuid(),
            listeners=self._endpoints(request.Listener, self._config.controller_listeners),
            features=_features(request.Feature),
        )
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        controller.register_controller(
            registration, lambda response: done.set_result(None), lambda error: done.set_exception(error)
        )
        await done

    def _endpoints(self, listener_class: Any, listeners: Iterable[Listener]) -> list[Any]:
        found = []
        for listener in listeners:
            advertised = self._config.advertised(listener.name)
            host, port = self.addresses[listener.name]
            if advertised is not None:
                host, port = advertised.host, advertised.port
            elif not listener.host or listener.host in ("0.0.0.0", "::"):
                host = socket.gethostname()
            found.append(
                listener_class(
                    name=listener.name, host=host, port=port, security_protocol=listener.protocol.value
                )
            )
        return found

    # -- following the metadata

    def _publishers(
        self, broker: Broker, front: Front, settings: Settings
    ) -> Iterable[Callable[[MetadataDelta, MetadataImage], None]]:
        own = {
            (int(ConfigResourceType.BROKER), ENTITY_DEFAULT),
            (int(ConfigResourceType.BROKER), str(broker.node_id)),
        }

        def publish_image(delta: MetadataDelta, image: MetadataImage) -> None:
            broker.image = image

        def publish_config(delta: MetadataDelta, image: MetadataImage) -> None:
            if delta.changed_configs & own:
                broker.config = settings.current(image)
                broker.log_manager.update_config(broker.config)
                broker.replicas.update_broker_config(broker.config)
                broker.groups.update_config(broker.config)
                broker.share.config = broker.config
                broker.transactions.config = broker.config
                front.update(broker.config)

        def publish_coordinators(delta: MetadataDelta, image: MetadataImage) -> None:
            broker.groups.runtime.publish(delta, image, broker.node_id)
            broker.share.publish(delta, image, broker.node_id)
            broker.transactions.publish(delta, image, broker.node_id)

        def tell_lifecycle(delta: MetadataDelta, image: MetadataImage) -> None:
            broker.lifecycle.metadata_applied()

        return (publish_config, broker.replicas.publish, publish_image, publish_coordinators, tell_lifecycle)

    # -- faults and the end

    def _on_dir_failure(self, directory: LogDir) -> None:
        """Partitions of a failed directory are gone; the node goes on while it has the metadata and a directory."""
        if self.broker is None:
            # While the logs are loaded; the log manager refuses to go on without any directory.
            return
        self.broker.replicas.directory_failed()
        others = self.broker.log_manager.dirs
        if directory.path == self._config.metadata_log_dir.rstrip("/") or all(d.offline for d in others):
            self.fail(
                KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} failed: {directory.error}")
            )

    def _on_loop_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        log.error("%s", context.get("message", "Unexpected error in the event loop"), exc_info=error)
        if isinstance(context.get("future"), asyncio.Task) and error is not None:
            self.fail(error)

    async def _leave(self, lifecycle: BrokerLifecycle) -> None:
        """Tell the controller that this broker goes; it must not take long, since it is in this process."""
        done = asyncio.Event()
        lifecycle.begin_controlled_shutdown(done.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), _STOP_GRACE_S)
        lifecycle.stop()


def _topic_configs(settings: Settings, image: MetadataImage) -> Callable[[str], TopicConfig]:
    """Each topic's configuration in force, for loading its logs."""
    config = settings.current(image)

    def of(topic: str) -> TopicConfig:
        return TopicConfig.in_force(config, image.configs.of(ConfigResourceType.TOPIC, topic))

    return of


def _allocator(
    controller: Controller, lifecycle: BrokerLifecycle, node_id: int
) -> Callable[[BlockDone], None]:
    def allocate(done: BlockDone) -> None:
        def answered(response: Any) -> None:
            error = None
            if response.error_code:
                error = KafkaError(ErrorCode.of(response.error_code), "the controller gave no producer ids")
            done(response.producer_id_start, response.producer_id_len, error)

        request = messages.AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=lifecycle.broker_epoch)
        controller.allocate_producer_ids(request, answered, lambda error: done(-1, 0, error))

    return allocate


def _previous_epoch(log_manager: LogManager) -> int:
    """The broker epoch of the last clean stop, which tells the controller that nothing was lost since; or -1."""
    epochs = {directory.previous_broker_epoch for directory in log_manager.dirs}
    return epochs.pop() if len(epochs) == 1 else -1


def _features(feature_class: Any) -> list[Any]:
    return [
        feature_class(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
        for name, levels in SUPPORTED_FEATURES.items()
    ]


def _tune_gc() -> None:
    """What start-up made stays: keep the collector from looking at it again and again."""
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
