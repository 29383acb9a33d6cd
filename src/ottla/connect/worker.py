"""A Connect worker: wires configuration, stores, herder, supervisor and REST together, and starts and stops them."""

from __future__ import annotations

import json
import logging
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.admin.cluster import Cluster
from ottla.admin.connection import ConnectionFailed
from ottla.admin.settings import ClusterSettings
from ottla.client.cluster_settings import writer_settings
from ottla.connect import formats, offsets
from ottla.connect.backing import Backing, MemoryBacking
from ottla.connect.config.overrides import client_settings, known_options, override_policy
from ottla.connect.config.providers import ConnectorProviders
from ottla.connect.config.worker import WorkerConfig
from ottla.connect.failures import BadRequest, ConnectError, NotFound
from ottla.connect.group import Assignment
from ottla.connect.herder import Herder, NotLeader
from ottla.connect.member import GroupMember
from ottla.connect.metrics import prometheus
from ottla.connect.plugins import Plugins
from ottla.connect.rest.app import RestServer, make_app
from ottla.connect.rest_client import RestClient
from ottla.connect.rest_client import one as connector_path
from ottla.connect.spi import SinkConnector, SourceConnector
from ottla.connect.state import STOPPED, Change
from ottla.connect.stores import FileOffsetStore, OffsetStore, TopicOffsetStore
from ottla.connect.supervisor import Supervisor
from ottla.connect.topic_backing import TopicBacking
from ottla.json_types import JsonObject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.connect.run.resident_pool import ResidentPool

_logger = logging.getLogger(__name__)

_BROKERS_WITHIN_S: Final = 30.0
_JOINED_WITHIN_S: Final = 60.0
_STOPPED_FIRST: Final = (
    "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the "
    "specified connector by issuing a 'PUT' request to the '/connectors/{}/stop' endpoint"
)
_STILL_RUNNING: Final = (
    "Failed to {verb} consumer group offsets for connector {name} either because its tasks haven't stopped completely "
    "yet or the connector was resumed before the request to {verb} its offsets could be successfully completed. If the "
    "connector is in a stopped state, this operation can be safely retried. If it doesn't eventually succeed, the "
    "Connect cluster may need to be restarted to get rid of the zombie sink tasks."
)
Pair = tuple[JsonObject | None, JsonObject | None]


class Worker:
    """One worker. `start` returns when REST answers; `stop` ends everything that it started."""

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self._providers = ConnectorProviders(config.originals)
        self.plugins = Plugins(config.values["plugin.path"] or ())
        self.cluster_id: str | None = None
        self.worker_id = ""
        override_policy(config.originals)
        options = known_options(config.originals)
        options.pop("bootstrap.servers", None)
        self.settings: ClusterSettings = writer_settings(config.bootstrap_servers, options)
        self._stores: dict[tuple[tuple[tuple[str, int], ...], str], OffsetStore] = {}
        self._stores_lock = threading.Lock()
        self._topics = TopicBacking(self.settings, config) if config.distributed else None
        self._backing: Backing = self._topics or MemoryBacking()
        self._member: GroupMember | None = None
        self.herder = Herder(config, self.plugins, self._backing, lambda given: self._resolve(given)[0])
        self.supervisor = Supervisor(config, self.herder, self._backing, self._store_of, self._resolve)
        self._backing.on_change = self._changed
        self._session: SparkSession | None = None
        if config.values["ottla.spark.master"] != "none":
            self.supervisor.spark = self._spark
            self.supervisor.residents = self._resident_pool()
        if config.distributed:
            self.herder.leader_url = self._leader_url
            self.supervisor.owns = lambda name: name in self._assignment.connectors
            self.supervisor.generation = lambda: self._assignment.generation
        self._assignment = Assignment()
        self._servers: list[RestServer] = []
        self.forwarding_tls: ssl.SSLContext | bool = True
        self._ready = threading.Event()
        self._joined = threading.Event()
        """Set while this worker is in its group and knows who leads."""

    # -- start and stop

    def start(self) -> None:
        """Binds the listeners, reaches the brokers, opens the stores, serves."""
        from ottla.connect.rest.guards import client_tls, server_tls

        tls = server_tls(self.config)
        self.forwarding_tls = client_tls(self.config)
        app = make_app(self)
        self._servers = [RestServer(one, app, tls) for one in self.config.listeners]
        if self.config.admin_listeners:
            admin = make_app(self, admin_only=True)
            self._servers += [RestServer(one, admin, tls) for one in self.config.admin_listeners]
        self.worker_id = self.supervisor.worker_id = self.config.address(self.port)
        try:
            self._reach_brokers()
            if self.config.offset_file is not None:
                _logger.warning(
                    "offsets are in the file %s: sources write at least once", self.config.offset_file
                )
            self._store_of({})
            self.supervisor.start()
            if self._topics is not None:
                self._topics.open()
                self._join()
            for server in self._servers:
                server.start()
        except BaseException:
            self.stop()
            raise
        self._ready.set()

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self._servers[0].port

    @property
    def ports(self) -> list[int]:
        """The ports of all listeners, those of /admin last."""
        return [one.port for one in self._servers]

    def stop(self) -> None:
        """Stops connectors, then REST, then connections."""
        if self._member is not None:
            self._member.stop()
        self.supervisor.stop()
        if self.supervisor.residents is not None:
            self.supervisor.residents.close()
        for server in self._servers:
            server.stop()
        for store in self._stores.values():
            store.close()
        self._backing.close()

    def _reach_brokers(self) -> None:
        brokers = Cluster(self.settings)
        try:
            self.cluster_id = brokers.retrying(lambda: brokers.metadata(()), _BROKERS_WITHIN_S).cluster_id
        except ConnectionFailed as error:
            raise ConnectError(
                f"{error}; bootstrap.servers is {self.config.bootstrap_servers}, tried for {_BROKERS_WITHIN_S:.0f} s"
            ) from None
        finally:
            brokers.close()

    # -- the group

    def _join(self) -> None:
        values = self.config.values
        self._member = GroupMember(
            self.settings,
            self.config.group_id,
            f"{self.config.advertised_scheme}://{self.worker_id}/",
            session_timeout_ms=values["session.timeout.ms"],
            rebalance_timeout_ms=values["rebalance.timeout.ms"],
            heartbeat_ms=values["heartbeat.interval.ms"],
            connectors=self._all_connectors,
            on_assignment=self._assigned,
        )
        self._member.start()

    def _all_connectors(self) -> list[str]:
        self._backing.refresh()
        return self.herder.connectors()

    def _leader_url(self) -> str | None:
        """None if this worker leads, "" if nobody is known to."""
        found = self._assignment
        return None if found.leads else found.leader_url

    def _assigned(self, assignment: Assignment) -> None:
        """A new generation: what this worker no longer owns stops, what it owns now starts."""
        before, self._assignment = self._assignment, assignment
        self._joined.clear()
        if assignment.generation < 0:
            # The connectors go on: the next owner's transactional ids fence them.
            self._assignment = replace(assignment, connectors=before.connectors)
            return
        assert self._topics is not None
        if assignment.leads:
            self._topics.lead()
            for name in self.herder.connectors():
                self.supervisor.changed(Change("tasks", name))
        else:
            self._topics.follow()
        for name in sorted(before.connectors | assignment.connectors):
            self.supervisor.changed(Change("config", name))
        self._joined.set()

    def health(self) -> tuple[str, str]:
        """KIP-1017: whether the worker is ready."""
        if not self._ready.is_set():
            return "starting", "Worker is still starting up."
        if self._member is not None and self._assignment.generation < 0:
            refused = self._member.refused
            return "starting", str(refused) if refused else "Worker is joining its group."
        return "healthy", "Worker has completed startup and is ready to handle requests."

    # -- stores and providers

    def _store_of(self, config: Mapping[str, str]) -> OffsetStore:
        """The store of a connector's offsets: the worker's, or a topic of its own."""
        own = config.get("offsets.storage.topic")
        worker = self.config
        settings = client_settings(worker, config, "source") if config else self.settings
        elsewhere = settings.bootstrap != self.settings.bootstrap
        key = (settings.bootstrap if elsewhere else (), own or "")
        with self._stores_lock:
            found = self._stores.get(key)
            if found is None:
                if own is None and worker.offset_file is not None and not elsewhere:
                    found = FileOffsetStore(worker.offset_file)
                else:
                    found = TopicOffsetStore(
                        settings if elsewhere else self.settings,
                        own or worker.offsets_topic,
                        partitions=int(worker.originals.get("offset.storage.partitions", 25)),
                        replication=int(worker.originals.get("offset.storage.replication.factor", 0)),
                    )
                self._stores[key] = found
            return found

    def _spark(self) -> SparkSession:
        """The Spark session of this worker; the first large cycle makes it."""
        from ottla.pipeline.session import spark_session

        with self._stores_lock:
            if self._session is None:
                settings = {"spark.ui.enabled": "false", **self.config.prefixed("ottla.spark.conf.")}
                master = self.config.values["ottla.spark.master"]
                self._session = spark_session("ottla-connect", master=master, settings=settings)
            return self._session

    def _resident_pool(self) -> ResidentPool | None:
        """The resident tasks of this worker; None if small cycles run in this process."""
        from ottla.connect.run.resident_pool import ResidentPool

        wanted = self.config.values["ottla.resident.tasks"]
        if wanted is None:
            # A worker alone starts Spark with its first large cycle, and often never.
            wanted = -1 if self.config.distributed else 0
        if wanted == 0 or self.config.values["ottla.spark.master"] in ("local", "local[1]"):
            _logger.info("small cycles run in this process: there are no resident Spark tasks")
            return None
        return ResidentPool(self._spark, max(0, wanted))

    def _resolve(self, config: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
        """A configuration with providers' values, and those values, which must not be shown."""
        return self._providers.resolve(config)

    def _changed(self, change: Change) -> None:
        if change.what == "logger":
            from ottla.connect.rest.admin import set_level

            set_level(change.name, change.level)
            return
        if change.what == "tasks" and not self.config.distributed:
            return
        self.supervisor.changed(change)
        known = set(self._assignment.owners)
        if self._member is not None and self._assignment.leads and known != set(self.herder.connectors()):
            self._member.rejoin()

    # -- what REST asks

    def put_connector(
        self, name: str, config: Mapping[str, str | None], *, replace: bool, initial_state: str | None = None
    ) -> tuple[bool, JsonObject]:
        """Creates or changes a connector. In standalone mode the answer names its tasks, as Kafka's does."""
        created, info = self.herder.put_config(name, config, replace=replace, initial_state=initial_state)
        if not self.config.distributed and self.herder.target(name) == "STARTED":
            raw = self.herder.known(name)
            try:
                connector, _, _ = self.supervisor.make(name, raw)
                self.supervisor.publish_tasks(name, raw, connector)
            except ConnectError as error:
                _logger.warning("connector %s has no tasks yet: %s", name, error)
            info = self.herder.info(name)
        return created, info

    def patch_connector(self, name: str, patch: Mapping[str, str | None]) -> JsonObject:
        """Changes some keys of a connector."""
        merged: dict[str, str | None] = {**self.herder.known(name), **patch}
        config = {key: value for key, value in merged.items() if value is not None}
        return self.put_connector(name, config, replace=True)[1]

    def set_cluster_level(self, logger: str, level: str) -> None:
        """Sets the level of a logger on all workers."""
        self._backing.write_configs([formats.logger_level(logger, level)])

    def _connector(self, name: str) -> tuple[SourceConnector | SinkConnector, dict[str, str]]:
        connector, config, _ = self.supervisor.make(name, self.herder.known(name))
        assert isinstance(connector, SourceConnector | SinkConnector)
        return connector, config

    def offsets(self, name: str) -> JsonObject:
        """GET offsets."""
        connector, config = self._connector(name)
        if isinstance(connector, SourceConnector):
            return offsets.source_offsets_json(self._store_of(config).read(name))
        return offsets.sink_offsets_json(self._sink_settings(config), offsets.group_of(name, config))

    def _sink_settings(self, config: Mapping[str, str]) -> ClusterSettings:
        return client_settings(self.config, config, "sink")

    def alter_offsets(self, name: str, pairs: Sequence[Pair]) -> dict[str, str]:
        """PATCH offsets."""
        connector, config = self._stopped(name, "alter")
        if isinstance(connector, SourceConnector):
            offsets.alter_source(connector, self._store_of(config), name, pairs)
        else:
            wanted = offsets.parse_sink_offsets(pairs)
            offsets.alter_sink(connector, self._sink_settings(config), self._store_of(config), name, wanted)
        return offsets.answer(connector, "altered")

    def reset_offsets(self, name: str) -> dict[str, str]:
        """DELETE offsets."""
        connector, config = self._stopped(name, "reset")
        if isinstance(connector, SourceConnector):
            offsets.reset_source(self._store_of(config), name)
        else:
            offsets.alter_sink(connector, self._sink_settings(config), self._store_of(config), name, None)
        return offsets.answer(connector, "reset")

    def _stopped(self, name: str, verb: str) -> tuple[SourceConnector | SinkConnector, dict[str, str]]:
        self.herder.known(name)
        self.herder.must_lead("Only the leader can process offset modification requests")
        if self.herder.target(name) != STOPPED:
            raise BadRequest(_STOPPED_FIRST.format(name))
        connector, config = self._connector(name)
        # The owner reports STOPPED when the run has ended, wherever it is.
        state = self.herder.status(name)["connector"]["state"]
        if state != STOPPED and isinstance(connector, SinkConnector):
            raise ConnectError(_STILL_RUNNING.format(verb=verb, name=name))
        if state != STOPPED:
            raise BadRequest(_STOPPED_FIRST.format(name))
        return connector, config

    def progress(self, name: str) -> JsonObject:
        """GET /ottla/connectors/{name}."""
        self.herder.known(name)
        runner = self.supervisor.runner(name)
        if runner is None:
            owner = self.herder.status(name)["connector"]["worker_id"]
            if self.config.distributed and owner != self.worker_id:
                url = f"{self.config.advertised_scheme}://{owner}"
                raise NotLeader(f"Connector {name} runs on {owner}", url)
            raise NotFound(f"Connector {name} does not run on this worker")
        return {"name": name, "worker_id": self.worker_id, **runner.progress.json()}

    def metrics(self) -> str:
        """GET /metrics."""
        runners = {name: self.supervisor.runner(name) for name in self.herder.connectors()}
        return prometheus({name: one.progress for name, one in runners.items() if one is not None})

    # -- connector files

    def load_file(self, path: Path) -> str:
        """Starts the connector of a file; its name."""
        name, config, state = read_connector_file(path)
        if self._member is not None and not self._joined.wait(_JOINED_WITHIN_S):
            why = self._member.refused or f"it has not joined its group within {_JOINED_WITHIN_S:.0f} s"
            raise ConnectError(f"connector {name} was not created by this worker: {why}")
        try:
            self.put_connector(name, config, replace=True, initial_state=state)
        except NotLeader as error:
            if not error.url:
                raise ConnectError(
                    f"connector {name} was not created: the workers have no leader now"
                ) from None
            _put_at_leader(RestClient(error.url), name, config, state)
        return name


def _put_at_leader(
    leader: RestClient, name: str, config: Mapping[str, str | None], state: str | None
) -> None:
    """Creates or changes a connector at the worker that leads. A state is for new connectors only."""
    if state is not None and name not in leader.call("GET", "/connectors"):
        leader.call("POST", "/connectors", {"name": name, "config": dict(config), "initial_state": state})
    else:
        leader.call("PUT", connector_path(name, "/config"), dict(config))


def read_connector_file(path: Path) -> tuple[str, dict[str, str | None], str | None]:
    """The name, the configuration and the initial state of a file: properties, flat JSON, or a request's body."""
    from ottla.connect.properties import parse

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConnectError(f"the connector file {path} cannot be read: {reason}") from None
    state: str | None = None
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ConnectError(f"the connector file {path} is not JSON: {error}") from None
        if isinstance(found.get("config"), dict):
            state = found.get("initial_state")
            found = {"name": found.get("name"), **found["config"]}
        config = {str(key): None if value is None else str(value) for key, value in found.items()}
    else:
        config = dict(parse(text))
    name = config.get("name")
    if not name:
        raise ConnectError(f"the connector file {path} has no `name`")
    return name, config, state
