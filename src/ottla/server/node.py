"""One node: the parts that its roles need, and their order of start and stop.

The parts' own modules define their behaviour; this one only connects them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from ottla.api.forwarding.local_requests import serve_locally
from ottla.broker.controller_channel import ControllerChannel
from ottla.broker.lifecycle import BrokerLifecycle
from ottla.broker.registration import Addresses, broker_registration, controller_registration
from ottla.broker.services import Broker, Node
from ottla.broker.storage_format import read_bootstrap_records
from ottla.config.broker import BrokerConfig
from ottla.controller.controller import Controller
from ottla.controller.settings import Settings
from ottla.counters import NodeCounters
from ottla.errors import ApiException, ErrorCode
from ottla.log.log_dir import LogDir
from ottla.log.manager import LogManager
from ottla.log.preallocation import SpaceReserver
from ottla.log.write_gate import WriteGate
from ottla.metadata.publisher import MetadataLoader
from ottla.metrics.sources import Sources
from ottla.net.socket_peers import SocketPeers
from ottla.net.watchdog import StackWatch
from ottla.raft.driver import RaftDriver
from ottla.security.node_identity import NodeIdentity
from ottla.security.profile import check_profile, report
from ottla.server.broker_role import make_broker, make_lifecycle, topic_configs
from ottla.server.controller_role import ControllerRegistrar
from ottla.server.directories import open_directories
from ottla.server.environment import Environment, Listeners
from ottla.server.monitoring import Monitoring
from ottla.server.peer_security import peer_security
from ottla.server.publishers import broker_publishers, node_publishers
from ottla.server.quorum import make_loader, make_raft, peer_settings
from ottla.server.quotas import make_quotas, quotas_publisher
from ottla.server.security import authorizer_publisher, make_authorizer, open_audit
from ottla.server.tls_reload import TlsReloader

_logger = logging.getLogger(__name__)

_STOP_GRACE_S: Final = 2.0
"""How long requests in progress may still run when the node stops."""

_HANDOVER_S: Final = 10.0
"""How long a stopping broker waits for other brokers to take over its leaderships."""

_SILENT_MS: Final = 1000
"""A voter that has not fetched for this long cannot help a leader that is about to stop."""

_LEADERLESS_S: Final = 1.5
"""A stopping broker waits no longer for a quorum without a leader: all other nodes may have stopped already."""

_LOOK_FOR_LEADER_S: Final = 0.1

_WARN_WAITING_EACH_S: Final = 5.0


class Server:
    """A node. `start` returns when it answers requests; `stop` returns when everything is on disk and closed."""

    def __init__(self, config: BrokerConfig, environment: Environment | None = None) -> None:
        self._config = config
        self._environment = environment or Environment()
        self._clock = self._environment.clock
        self._fs = self._environment.fs
        self._gate = WriteGate(self._clock, self._environment.page_cache)
        self._counters = NodeCounters()
        self._undo: list[Callable[[], object]] = []
        """Functions that stop what was started, in the order of the start. Some return a coroutine."""
        self._failure: asyncio.Future[BaseException] | None = None
        self.addresses: dict[str, tuple[str, int]] = {}
        """Host and port of each listener by name, once started."""
        self.http_address: tuple[str, int] | None = None
        """Host and port of the HTTP server, if there is one."""
        self._recovery_s = 0.0
        self.cluster_id = ""
        self.node: Node | None = None
        """The services of any node, once it takes part in the quorum."""
        self.broker: Broker | None = None
        """None on a node without the broker role, and until its logs are loaded."""

    async def start(self) -> None:
        """Start the node. Raises `ApiException` or `OSError` with one clear sentence, and leaves nothing open."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_loop_exception)
        self._failure = loop.create_future()
        try:
            await self._start(loop)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the parts in the reverse order of the start. A part that fails does not keep the others running."""
        failed: BaseException | None = None
        while self._undo:
            try:
                result = self._undo.pop()()
                if asyncio.iscoroutine(result):
                    await result
            except Exception as error:
                _logger.exception("A part of the node failed to stop")
                failed = failed or error
        if failed is not None:
            raise failed

    @property
    def in_sync(self) -> bool:
        """The broker is not fenced, and is in the in-sync set of each of its partitions."""
        if self.node is None:
            return False
        image, own = self.node.image, self.node.node_id
        registration = image.brokers.get(own)
        if self._config.is_broker and (registration is None or registration.fenced):
            return False
        return not any(
            own in partition.replicas and own not in partition.isr
            for topic in image.topics.by_name.values()
            for partition in topic.partitions.values()
        )

    def reload_tls(self) -> None:
        """Load the key and trust stores again; what cannot be used changes nothing."""
        if self.node is not None:
            _logger.info("Reloading the key and trust stores")
            self._tls.reload()

    async def wait_failed(self) -> BaseException:
        """Wait until the node cannot continue; returns the reason, which is already logged."""
        assert self._failure is not None
        return await self._failure

    def fail(self, error: BaseException) -> None:
        """Stop the node because of this error, which it cannot recover from."""
        if self._failure is not None and not self._failure.done():
            _logger.critical("The node stops: %s", error, exc_info=error)
            self._failure.set_result(error)

    # -- start

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        config, clock, fs = self._config, self._clock, self._fs
        unsafe = check_profile(config)
        self._authorizer = make_authorizer(config)
        self._node_identity = NodeIdentity.of(config)
        listeners = self._environment.make_listeners(config, clock)
        self._undo.append(listeners.discard)
        report(unsafe, strict=False)
        self.addresses = listeners.addresses
        monitoring = self._monitoring = Monitoring(config, guarded=self._authorizer is not None)
        self._undo.append(monitoring.close)
        if monitoring.http is not None:
            self.http_address = monitoring.http.address
        executor = self._environment.executor
        audit = self._audit = open_audit(config, clock, executor)
        if audit is not None:
            self._undo.append(audit.close)
            if self._authorizer is not None:
                self._authorizer.audit = audit
        self._undo.append(executor.shutdown)
        reserver = SpaceReserver(clock, self._gate, loop.call_soon_threadsafe)
        self._undo += reserver.stop, self._gate.stop
        fs.use_preallocation(reserver)
        log_manager = LogManager(
            fs,
            config,
            clock,
            executor,
            on_dir_failure=self._on_dir_failure,
            cleaner_threads=self._environment.cleaner_threads,
        )
        self._undo.append(lambda: self._close_logs(log_manager, executor))
        self.cluster_id = open_directories(fs, config, clock, log_manager, self._undo)
        to_peers = peer_security(config)
        peers = SocketPeers(
            clock,
            loop,
            config.node_id,
            peer_settings(config),
            self._environment.connect,
            to_peers.of,
            self._counters,
        )
        self._undo.append(peers.close)
        endpoints = [*listeners.tls_endpoints(), *to_peers.tls_endpoints()]
        self._tls = TlsReloader(endpoints, config, clock, executor, loop.call_soon_threadsafe, audit)
        self._undo.append(self._tls.stop)
        self._tls.start()

        raft = make_raft(fs, config, clock, executor, loop, self.cluster_id, peers, self.fail)
        loader = make_loader(config, clock, raft)
        settings = Settings(config, self.cluster_id)
        node = self.node = self._make_node(raft, loader, settings, peers, executor)
        if self._authorizer is not None:
            loader.add_publisher(authorizer_publisher(self._authorizer))
        loader.add_publisher(quotas_publisher(node.quotas))
        for publisher in node_publishers(node, listeners, settings, self._tls, to_peers):
            loader.add_publisher(publisher)
        self._start_quorum(listeners, node, raft, loader)
        await monitoring.open(self._sources(node, loader, reserver))
        if config.is_broker:
            await self._start_broker(listeners, node, loader, settings, log_manager, executor)
        self._watch_loop()
        _logger.info("Node %d of cluster %s is up", config.node_id, self.cluster_id)

    def _watch_loop(self) -> None:
        """Measure from here on how long the event loop is held up, and by what."""
        watchdog = self._environment.watchdog
        if watchdog is None:
            return
        stacks = StackWatch(watchdog, self._clock)
        watchdog.start()
        stacks.start()
        self._undo += watchdog.stop, stacks.stop

    def _sources(self, node: Node, loader: MetadataLoader, reserver: SpaceReserver) -> Sources:
        return Sources(
            node=node,
            broker=lambda: self.broker,
            loader=loader,
            watchdog=self._environment.watchdog,
            preallocated_bytes=lambda: reserver.reserved_bytes,
            recovery_s=lambda: self._recovery_s,
        )

    def _make_node(
        self,
        raft: RaftDriver,
        loader: MetadataLoader,
        settings: Settings,
        peers: SocketPeers,
        executor: Executor,
    ) -> Node:
        config, clock = self._config, self._clock
        controller = None
        if config.is_controller:
            controller = Controller(
                raft,
                clock,
                settings,
                peers=peers,
                bootstrap_records=read_bootstrap_records(self._fs, config.metadata_log_dir),
            )
        node: Node
        channel = ControllerChannel(
            raft,
            peers,
            clock,
            None if controller is None else lambda request, done: serve_locally(node, request, done),
        )
        self._undo.append(channel.close)
        node = Node(
            node_id=config.node_id,
            cluster_id=self.cluster_id,
            config=config,
            image=loader.image,
            clock=clock,
            executor=executor,
            raft=raft,
            peers=peers,
            local_controller=controller,
            to_controller=channel,
            gate=self._gate,
            authorizer=self._authorizer,
            audit=self._audit,
            node_identity=self._node_identity,
            tls_stores=self._tls,
            fail=self.fail,
            quotas=make_quotas(config),
            counters=self._counters,
            token_key=settings.token_key,
        )
        return node

    def _start_quorum(
        self, listeners: Listeners, node: Node, raft: RaftDriver, loader: MetadataLoader
    ) -> None:
        """Join the metadata quorum. A controller answers the other nodes from here on."""
        controller = node.local_controller
        raft.add_listener(loader)
        if controller is not None:
            raft.add_listener(controller)
        raft.start()
        listeners.open(node, controllers=True)
        self._undo.append(lambda: listeners.stop(_STOP_GRACE_S, controllers=True))
        self._undo.append(raft.shutdown)
        if controller is not None:
            self._undo.append(controller.shutdown)
            registrar = ControllerRegistrar(
                self._clock,
                node.to_controller,
                controller_registration(self._config, self._clock, self._reachable_at()),
            )
            self._undo.append(registrar.stop)
            registrar.start()

    def _reachable_at(self) -> Addresses:
        return Addresses(self.addresses, self._environment.host_name())

    async def _start_broker(
        self,
        listeners: Listeners,
        node: Node,
        loader: MetadataLoader,
        settings: Settings,
        log_manager: LogManager,
        executor: Executor,
    ) -> None:
        config, clock, loop = self._config, self._clock, asyncio.get_running_loop()
        registration = broker_registration(
            config, clock, self._fs, log_manager, self.cluster_id, self._reachable_at()
        )
        lifecycle = make_lifecycle(config, clock, node.to_controller, loader, log_manager, registration)
        self._undo.append(lifecycle.stop)
        node.raft.on_leader_change(lambda leader_id, epoch: lifecycle.controller_changed())
        loader.add_publisher(lambda delta, image: None if self.broker else lifecycle.publish(delta, image))
        running, caught_up = asyncio.Event(), asyncio.Event()
        lifecycle.start(running.set, on_caught_up=caught_up.set)
        await self._wait_for(
            caught_up,
            "the active controller to register this broker, and for the metadata up to its registration",
            config.int("initial.broker.registration.timeout.ms") / 1000,
        )
        # Only now the image is known to be as new as this start: logs of partitions that it lacks are stray.
        began = clock.monotonic()
        await loop.run_in_executor(executor, log_manager.load, topic_configs(settings, loader.image))
        self._recovery_s = clock.monotonic() - began
        broker = self.broker = make_broker(node, lifecycle, log_manager, executor, loop)
        self._monitoring.take_from_clients(broker)
        for publisher in broker_publishers(broker, settings):
            loader.add_publisher(publisher)
        loader.add_publisher(lifecycle.publish)
        broker.replicas.remove_strays()
        broker.replicas.start()
        log_manager.start()
        self._undo.append(broker.coordinators.stop_transactions)
        listeners.open(broker, controllers=False)
        self._undo.append(lambda: listeners.stop(_STOP_GRACE_S, controllers=False))
        # Completes parked requests, so that the listeners have no open requests when they stop.
        self._undo.append(broker.replicas.shutdown)
        self._undo.append(broker.coordinators.stop_groups)
        self._undo.append(lambda: self._leave(lifecycle, node.raft))
        lifecycle.ready()
        await self._wait_for(running, "the active controller to unfence this broker")

    async def _wait_for(self, done: asyncio.Event, what: str, timeout_s: float | None = None) -> None:
        """Wait for the event or for the node's failure, and log a warning if that takes long."""
        assert self._failure is not None
        waiting = asyncio.ensure_future(done.wait())
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            while not waiting.done():
                if self._failure.done():
                    raise self._failure.result()
                waited_s = loop.time() - began
                left_s = _WARN_WAITING_EACH_S if timeout_s is None else timeout_s - waited_s
                if left_s <= 0:
                    raise ApiException(
                        ErrorCode.REQUEST_TIMED_OUT, f"timed out after {waited_s:.0f} s waiting for {what}"
                    )
                if waited_s >= _WARN_WAITING_EACH_S:
                    _logger.warning("Waiting for %s (%.0f s so far)", what, waited_s)
                await asyncio.wait(
                    (waiting, self._failure),
                    timeout=min(_WARN_WAITING_EACH_S, left_s),
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            waiting.cancel()

    # -- faults and stop

    def _on_dir_failure(self, directory: LogDir) -> None:
        """Take a failed directory's partitions offline. The node continues with the metadata and one directory."""
        if self.broker is None:
            # The logs are still being loaded. The log manager refuses to continue without any directory.
            return
        self.broker.replicas.directory_failed()
        error = ApiException(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} failed: {directory.error}")
        others = self.broker.log_manager.dirs
        if directory.path == self._config.metadata_log_dir.rstrip("/") or all(d.offline for d in others):
            self.fail(error)
        else:
            timeout_s = self._config.int("log.dir.failure.timeout.ms") / 1000
            # This broker keeps leading its partitions until the controller knows. After the timeout it stops instead.
            self.broker.lifecycle.directory_failed(
                directory.directory_id, timeout_s, lambda: self.fail(error)
            )

    def _on_loop_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if not isinstance(error, BaseException):
            error = None
        _logger.error("%s", context.get("message", "Unexpected error in the event loop"), exc_info=error)
        if isinstance(context.get("future"), asyncio.Task) and error is not None:
            self.fail(error)

    async def _leave(self, lifecycle: BrokerLifecycle, raft: RaftDriver) -> None:
        """Controlled shutdown: let the controller move leaderships away first, within a time limit."""
        if not self._config.bool("controlled.shutdown.enable"):
            return
        done = asyncio.Event()
        lifecycle.begin_controlled_shutdown(done.set)
        waited_s = leaderless_s = 0.0
        while not done.is_set():
            if waited_s >= _HANDOVER_S or leaderless_s >= _LEADERLESS_S:
                why = "the quorum has no leader" if leaderless_s else f"it took more than {_HANDOVER_S:.0f} s"
                _logger.warning("Stopping without a complete controlled shutdown: %s", why)
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), _LOOK_FOR_LEADER_S)
            waited_s += _LOOK_FOR_LEADER_S
            led = is_led(raft, self._config.node_id, self._clock.now_ms())
            leaderless_s = 0.0 if led else leaderless_s + _LOOK_FOR_LEADER_S
        lifecycle.stop()

    async def _close_logs(self, log_manager: LogManager, executor: Executor) -> None:
        """Close the logs in a thread, since thousands of logs take seconds."""
        epoch = -1 if self.broker is None else self.broker.broker_epoch
        log_manager.stop()
        await asyncio.get_running_loop().run_in_executor(executor, log_manager.shutdown, epoch)


def is_led(raft: RaftDriver, node_id: int, now_ms: int) -> bool:
    """Whether the quorum has a leader that can still commit, as far as this node knows."""
    info = raft.describe_quorum() if raft.is_leader else None
    if info is None:
        return raft.hears_leader
    following = [
        voter
        for voter in info.voters
        if voter.key.id == node_id or now_ms - voter.last_fetch_timestamp < _SILENT_MS
    ]
    return 2 * len(following) > len(info.voters)
