"""Opens a node's directories at the start: checks them, locks them, and formats new ones."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.storage_format import format_new_node
from ottla.clock import Clock
from ottla.config.broker import BrokerConfig
from ottla.errors import ApiException, ErrorCode
from ottla.log.fs import Fs
from ottla.log.log_dir import LogDir
from ottla.log.manager import LogManager
from ottla.wire.uuid import uuid_to_str


def open_directories(
    fs: Fs, config: BrokerConfig, clock: Clock, log_manager: LogManager, undo: list[Callable[[], object]]
) -> str:
    """Check and lock every directory, and format them if all are new. Returns the cluster's id."""
    directories = list(log_manager.dirs)
    if config.metadata_log_dir not in config.log_dirs:
        directories.append(LogDir(fs, config.metadata_log_dir))
        undo.append(directories[-1].release)
    for directory in directories:
        directory.inspect(None, config.node_id)
    _check_formatted(config, directories)
    for directory in directories:
        directory.take()
    format_new_node(
        fs,
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


def _check_formatted(config: BrokerConfig, directories: list[LogDir]) -> None:
    """Refuse to start unformatted in a cluster of several nodes, since one node cannot choose the cluster's id."""
    servers = config.list("controller.quorum.bootstrap.servers")
    alone = len(config.voters) <= 1 and len(servers) <= 1 and config.is_controller
    if not alone and all(directory.cluster_id is None for directory in directories):
        raise ApiException(
            ErrorCode.INVALID_CONFIG,
            f"the directory {directories[0].path} is not formatted: run `ottla storage format --config FILE "
            "--cluster-id ID` on each node, with the same id",
        )
