"""Formatting a metadata directory: the files that `kafka-storage format` writes besides `meta.properties`."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.log.fs import Fs
from ottla.raft.snapshots import BOOTSTRAP_FILE, snapshot_buffers, snapshot_name, write_snapshot_file
from ottla.raft.types import CLUSTER_METADATA, OffsetAndEpoch
from ottla.raft.voters import VoterSet

FORMAT_SNAPSHOT = OffsetAndEpoch(0, 0)


def write_bootstrap(fs: Fs, directory: str, values: Iterable[bytes], now_ms: int) -> None:
    """Write `bootstrap.checkpoint` with these encoded records: the first ones of the cluster."""
    buffers = snapshot_buffers(0, values, kraft_version=0, voters=None, last_timestamp=0, now_ms=now_ms)
    write_snapshot_file(fs, directory, BOOTSTRAP_FILE, buffers)


def write_voters(fs: Fs, directory: str, voters: VoterSet, now_ms: int) -> None:
    """Write the snapshot at offset 0 that gives a dynamic quorum (kraft.version 1) its first voters."""
    log_directory = f"{directory}/{CLUSTER_METADATA}"
    fs.mkdir(log_directory)
    fs.fsync_dir(directory)
    buffers = snapshot_buffers(
        FORMAT_SNAPSHOT.epoch, (), kraft_version=1, voters=voters, last_timestamp=now_ms, now_ms=now_ms
    )
    write_snapshot_file(fs, log_directory, snapshot_name(FORMAT_SNAPSHOT), buffers)
