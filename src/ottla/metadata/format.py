"""Formatting a new cluster's metadata directory, and reading back the bootstrap records that were put there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.log.fs import Fs
from ottla.metadata.bootstrap import bootstrap_records
from ottla.metadata.records import MetadataSerde
from ottla.raft.format import write_bootstrap, write_voters
from ottla.raft.snapshots import BOOTSTRAP_FILE, SnapshotReader
from ottla.raft.voters import VoterSet


def format_metadata_dir(
    fs: Fs,
    directory: str,
    *,
    now_ms: int,
    records: Sequence[Any] | None = None,
    voters: VoterSet | None = None,
) -> None:
    """Write `bootstrap.checkpoint` and, for a dynamic quorum, the snapshot with its first voters.

    `records` are those of a fresh cluster of the newest release by default (see `bootstrap_records`). With
    `voters` the quorum is a dynamic one (kraft.version 1), as `kafka-storage format --standalone` makes it; without,
    the voters are those of `controller.quorum.voters`. `meta.properties` is written by the log manager.
    """
    serde = MetadataSerde()
    values = [serde.encode(r) for r in (bootstrap_records() if records is None else records)]
    write_bootstrap(fs, directory, values, now_ms)
    if voters is not None:
        write_voters(fs, directory, voters, now_ms)


def read_bootstrap_records(fs: Fs, directory: str) -> list[Any]:
    """The records of `bootstrap.checkpoint`; those of a fresh cluster where the file is missing."""
    path = f"{directory}/{BOOTSTRAP_FILE}"
    if not fs.exists(path):
        return bootstrap_records()
    return list(SnapshotReader(fs, path, MetadataSerde()).records())
