"""Builds what a node needs to follow the metadata quorum: its raft replica, the metadata loader, its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from ottla.broker.storage_format import DEFAULT_CONTROLLER_LISTENER, standalone_voters
from ottla.clock import Clock
from ottla.config.broker import BrokerConfig
from ottla.config.listeners import parse_address
from ottla.log.checkpoints import read_meta_properties
from ottla.log.fs import Fs
from ottla.metadata.publisher import MetadataLoader, SnapshotGenerator
from ottla.metadata.records import MetadataSerde
from ottla.net.socket_peers import PeerSettings
from ottla.peers import Endpoint, Peers
from ottla.raft.config import RaftConfig
from ottla.raft.driver import RaftDriver
from ottla.raft.voters import VoterSet
from ottla.wire.uuid import uuid_from_str


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
    """This node's replica of the metadata log: a voter on a controller, else an observer."""
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
    """The loader that turns committed metadata records into images, and writes snapshots."""
    return MetadataLoader(
        SnapshotGenerator(
            raft,
            clock,
            max_bytes=config.int("metadata.log.max.record.bytes.between.snapshots"),
            max_interval_ms=config.int("metadata.log.max.snapshot.interval.ms"),
        )
    )


def peer_settings(config: BrokerConfig) -> PeerSettings:
    """The settings of connections to other nodes."""
    # No response is larger than the largest request that this node accepts.
    return PeerSettings(max_answer_bytes=config.int("socket.request.max.bytes"))
