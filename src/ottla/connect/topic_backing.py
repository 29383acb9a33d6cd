"""Configurations and statuses in Kafka's topics. Only the leader writes configurations, under a transactional id."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.connect.backing import Backing
from ottla.connect.config.worker import WorkerConfig
from ottla.connect.failures import ConnectError
from ottla.connect.formats import Entry
from ottla.connect.state import Change
from ottla.connect.topic_log import TopicLog, append
from ottla.errors import ApiException
from ottla.pipeline.failures import SinkFenced
from ottla.pipeline.transaction import CommitUnknown, TransactionDriver
from ottla.pipeline.writer import BatchWriter, Grant

_logger = logging.getLogger(__name__)

_PAUSE_S: Final = 0.25
_OWN_KEYS: Final = ("topic", "partitions", "replication.factor")


class TopicBacking(Backing):
    """The config topic and the status topic of a distributed cluster."""

    def __init__(self, settings: ClusterSettings, config: WorkerConfig) -> None:
        super().__init__()
        self._settings = settings
        self._config = config
        self._changes: list[Change] = []
        self._configs = TopicLog(settings, config.values["config.storage.topic"], self._replay_config)
        self._statuses = TopicLog(settings, config.values["status.storage.topic"], self.state.replay_status)
        self._configs_lock = threading.RLock()
        self._statuses_lock = threading.Lock()
        self._driver: TransactionDriver | None = None
        self._status_brokers = Cluster(settings)
        self._status_writer: BatchWriter | None = None
        self._ended = threading.Event()
        self._tails = [
            threading.Thread(target=self._tail, args=(which,), name=f"tail-{which}", daemon=True)
            for which in ("configs", "statuses")
        ]

    def open(self) -> None:
        """Makes the topics where they are missing, and reads them to their ends."""
        values = self._config.values
        self._configs.open(
            1, values["config.storage.replication.factor"], self._settings_of("config.storage.")
        )
        if self._configs.partitions != 1:
            raise ConnectError(
                f"Topic '{self._configs.topic}' supplied via the 'config.storage.topic' property is required to have a "
                "single partition in order to guarantee consistency of connector configurations, but found "
                f"{self._configs.partitions} partitions."
            )
        from ottla.connect.holders import refuse_a_second_cluster

        refuse_a_second_cluster(self._status_brokers, self._configs.topic, self._config.group_id or "")
        self._statuses.open(
            values["status.storage.partitions"],
            values["status.storage.replication.factor"],
            self._settings_of("status.storage."),
        )
        self.refresh()
        with self.lock:
            self._statuses.read_to_end()
        for tail in self._tails:
            tail.start()

    def _settings_of(self, prefix: str) -> dict[str, str]:
        given: Mapping[str, str] = self._config.prefixed(prefix)
        return {key: value for key, value in given.items() if key not in _OWN_KEYS}

    def _replay_config(self, key: bytes, value: bytes | None) -> None:
        with self.lock:
            change = self.state.replay_config(key, value)
        if change is not None:
            self._changes.append(change)

    def _tell(self) -> None:
        """Tells of the changes, in order and without any lock of the state."""
        while self._changes:
            self.on_change(self._changes.pop(0))

    def _tail(self, which: str) -> None:
        while not self._ended.is_set():
            try:
                if which == "configs":
                    with self._configs_lock:
                        self._configs.poll(0)
                        self._tell()
                else:
                    with self.lock:
                        self._statuses.poll(0)
            except ApiException as error:
                _logger.warning("the topics of this cluster cannot be read: %s", error)
            self._ended.wait(_PAUSE_S)

    def lead(self) -> None:
        """Takes the right to write configurations over; earlier leaders are fenced."""
        with self._configs_lock:
            if self._driver is None:
                self._driver = TransactionDriver(
                    self._settings, f"connect-cluster-{self._config.group_id}", timeout_ms=60_000
                )
            self._driver.begin(marks=False)
            self.refresh()

    def follow(self) -> None:
        """Gives it up."""
        with self._configs_lock:
            if self._driver is not None:
                self._driver.close()
                self._driver = None

    def write_configs(self, entries: Iterable[Entry]) -> None:
        """In one transaction; they are replayed when this returns."""
        listed = list(entries)
        with self._configs_lock:
            if self._driver is None:
                raise ConnectError(
                    "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
                )
            try:
                writer = BatchWriter(self._driver.brokers, self._driver.grant())
                append(writer, self._configs.topic, 1, listed)
                writer.flush()
                self._driver.commit()
            except (SinkFenced, CommitUnknown) as error:
                self._driver.close()
                self._driver = None
                raise ConnectError(f"another worker leads the cluster now: {error}") from error
            self._configs.read_to_end(decided=True)
            self._tell()

    def refresh(self) -> None:
        """Reads the config topic to its end."""
        with self._configs_lock:
            self._configs.read_to_end()
            self._tell()

    def write_statuses(self, entries: Iterable[Entry]) -> None:
        """At once; a later status replaces an earlier one."""
        listed = list(entries)
        if not listed:
            return
        with self._statuses_lock:
            if self._status_writer is None:
                self._status_writer = BatchWriter(self._status_brokers, Grant(self._settings))
            try:
                append(self._status_writer, self._statuses.topic, self._statuses.partitions, listed)
                self._status_writer.flush()
            except BaseException:
                self._status_writer = None
                raise
        with self.lock:
            for one in listed:
                self.state.replay_status(one.key, one.value)

    def close(self) -> None:
        """Ends the threads and closes connections."""
        self._ended.set()
        for tail in self._tails:
            if tail.is_alive():
                tail.join(5.0)
        self.follow()
        self._configs.close()
        self._statuses.close()
        self._status_brokers.close()
