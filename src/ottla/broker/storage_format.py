"""Formats a node: `meta.properties` and `bootstrap.checkpoint` in every directory, the first voters in one.

`kafka-storage format` uses it, and a node that starts on new directories.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from ottla.config.broker import BrokerConfig
from ottla.log.checkpoints import read_meta_properties, write_meta_properties
from ottla.log.fs import Fs
from ottla.metadata.bootstrap import bootstrap_records
from ottla.metadata.records import MetadataSerde
from ottla.raft.format import write_bootstrap, write_voters
from ottla.raft.snapshots import BOOTSTRAP_FILE, SnapshotReader
from ottla.raft.types import ReplicaKey
from ottla.raft.voters import VoterEndpoint, VoterNode, VoterSet

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage

DEFAULT_CONTROLLER_LISTENER: Final = "CONTROLLER"
DEFAULT_CONTROLLER_ENDPOINT: Final = VoterEndpoint("localhost", 9093)
"""The recorded address of a single-node cluster without a controller listener: that of Kafka's own properties."""


class NewDirectory(msgspec.Struct, frozen=True):
    """A directory to be formatted."""

    path: str
    directory_id: bytes
    voters: VoterSet | None
    """The first voters, for the metadata directory of a dynamic quorum."""
    description: str
    """The directory's kind, as kafka-storage prints it."""


def node_directories(config: BrokerConfig) -> list[str]:
    """All directories of a node: `log.dirs`, and `metadata.log.dir` where it is separate."""
    return sorted({*config.log_dirs, config.metadata_log_dir})


def standalone_voters(config: BrokerConfig, directory_id: bytes) -> VoterSet:
    """This node as the only voter of its quorum."""
    listeners = {DEFAULT_CONTROLLER_LISTENER: DEFAULT_CONTROLLER_ENDPOINT}
    if config.controller_listeners:
        own = config.controller_listeners[0]
        shown = config.advertised(own.name) or own
        listeners = {own.name: VoterEndpoint(shown.host or "localhost", shown.port)}
    return VoterSet.of([VoterNode(ReplicaKey(config.node_id, directory_id), listeners)])


def plan_directories(
    config: BrokerConfig, paths: Sequence[str], new_id: Callable[[], bytes], voters: VoterSet | None
) -> list[NewDirectory]:
    """The plan for each of these paths, all of them new.

    `voters` are those of a dynamic quorum; None stands for a static one (`controller.quorum.voters`).
    """
    own = None if voters is None else voters.nodes.get(config.node_id)
    plan: list[NewDirectory] = []
    for path in paths:
        if path != config.metadata_log_dir:
            plan.append(NewDirectory(path, new_id(), None, "data directory"))
        elif own is not None:
            plan.append(NewDirectory(path, own.key.directory_id, voters, "dynamic metadata voter directory"))
        else:
            kind = "metadata directory" if voters is None else "dynamic metadata directory"
            plan.append(NewDirectory(path, new_id(), voters, kind))
    return plan


def format_directory(
    fs: Fs,
    directory: NewDirectory,
    *,
    cluster_id: str,
    node_id: int,
    records: Sequence[WireMessage] | None,
    now_ms: int,
) -> None:
    """Write all files of one directory. `meta.properties` comes last: it marks the directory as formatted."""
    fs.mkdir(directory.path, parents=True)
    format_metadata_dir(fs, directory.path, now_ms=now_ms, records=records, voters=directory.voters)
    write_meta_properties(fs, directory.path, cluster_id, node_id, directory.directory_id)


def format_new_node(
    fs: Fs, config: BrokerConfig, *, cluster_id: str, new_id: Callable[[], bytes], now_ms: int
) -> bool:
    """Format a node whose directories are all new, as a cluster of one. Returns False if one is already formatted."""
    paths = node_directories(config)
    if any(read_meta_properties(fs, path) is not None for path in paths):
        return False
    voters = None if config.voters else standalone_voters(config, new_id())
    for directory in plan_directories(config, paths, new_id, voters):
        format_directory(
            fs, directory, cluster_id=cluster_id, node_id=config.node_id, records=None, now_ms=now_ms
        )
    return True


# The metadata directory


def format_metadata_dir(
    fs: Fs,
    directory: str,
    *,
    now_ms: int,
    records: Sequence[WireMessage] | None = None,
    voters: VoterSet | None = None,
) -> None:
    """Write `bootstrap.checkpoint` and, for a dynamic quorum, the snapshot with its first voters.

    `records` default to those of a new cluster of the newest release (see `bootstrap_records`). With `voters` the
    quorum is dynamic (kraft.version 1), as `kafka-storage format --standalone` makes it. Without, the voters are those
    of `controller.quorum.voters`. The log manager writes `meta.properties`.
    """
    serde = MetadataSerde()
    values = [serde.encode(r) for r in (bootstrap_records() if records is None else records)]
    write_bootstrap(fs, directory, values, now_ms)
    if voters is not None:
        write_voters(fs, directory, voters, now_ms)


def read_bootstrap_records(fs: Fs, directory: str) -> Sequence[WireMessage]:
    """The records of `bootstrap.checkpoint`; those of a new cluster where the file is missing."""
    path = f"{directory}/{BOOTSTRAP_FILE}"
    if not fs.exists(path):
        return bootstrap_records()
    return list(SnapshotReader(fs, path, MetadataSerde()).records())
