"""What a node of any role stands on: its directories, the metadata quorum, the image of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from ottla.clock import Clock
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import parse_address
from ottla.errors import ApiException, ErrorCode
from ottla.log.checkpoints import read_meta_properties
from ottla.log.fs import Fs
from ottla.log.log_dir import LogDir
from ottla.log.manager import LogManager
from ottla.metadata.node_format import DEFAULT_CONTROLLER_LISTENER, format_new_node, standalone_voters
from ottla.metadata.publisher import MetadataLoader, SnapshotGenerator
from ottla.metadata.records import MetadataSerde
from ottla.net.peer import PeerSettings
from ottla.peers import Endpoint, Peers
from ottla.raft.config import RaftConfig
from ottla.raft.driver import RaftDriver
from ottla.raft.voters import VoterSet
from ottla.wire.uuid import uuid_from_str, uuid_to_str


def open_directories(
    fs: Fs, config: BrokerConfig, clock: Clock, log_manager: LogManager, undo: list[Callable[[], object]]
) -> str:
    """Check and lock every directory, format them where all are new. Gives the cluster's id."""
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
    """A node among others cannot make up the cluster's id."""
    servers = config.list("controller.quorum.bootstrap.servers")
    alone = len(config.voters) <= 1 and len(servers) <= 1 and config.is_controller
    if not alone and all(directory.cluster_id is None for directory in directories):
        raise ApiException(
            ErrorCode.INVALID_CONFIG,
            f"the directory {directories[0].path} is not formatted: run `ottla storage format --config FILE "
            "--cluster-id ID` on each node, with the same id",
        )


def make_raft(
    fs: Fs,
    config: BrokerConfig,
    clock: Clock,
    executor: Executor,
    loop: asyncio.AbstractEventLoop,
    cluster_id: str,
    peers: Peers,
    on_fault: Callable[[BaseException], None],
) -> RaftDriver:
    """This node's replica of the metadata log: a voter's where it is a controller, else an observer's."""
    listener = next(iter(config.controller_listener_names), DEFAULT_CONTROLLER_LISTENER)
    properties = read_meta_properties(fs, config.metadata_log_dir) or {}
    return RaftDriver(
        fs,
        config.metadata_log_dir,
        local=standalone_voters(config, uuid_from_str(properties["directory.id"])).nodes[config.node_id],
        voters=VoterSet.from_config(config.voters, listener),
        config=RaftConfig.of(config),
        clock=clock,
        executor=executor,
        post=loop.call_soon_threadsafe,
        serde=MetadataSerde(),
        on_fault=on_fault,
        cluster_id=cluster_id,
        peers=peers,
        bootstrap=_bootstrap(config),
        listener=listener,
        can_become_voter=config.is_controller,
    )


def _bootstrap(config: BrokerConfig) -> list[Endpoint]:
    addresses = map(parse_address, config.list("controller.quorum.bootstrap.servers"))
    return [Endpoint(-1, *address) for address in addresses if address is not None]


def make_loader(config: BrokerConfig, clock: Clock, raft: RaftDriver) -> MetadataLoader:
    return MetadataLoader(
        SnapshotGenerator(
            raft,
            clock,
            max_bytes=config.int("metadata.log.max.record.bytes.between.snapshots"),
            max_interval_ms=config.int("metadata.log.max.snapshot.interval.ms"),
        )
    )


def peer_settings(config: BrokerConfig) -> PeerSettings:
    # An answer is never larger than what this node would take as a request.
    return PeerSettings(max_answer_bytes=config.int("socket.request.max.bytes"))
