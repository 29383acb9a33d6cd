"""Formats a new cluster's metadata directory, and reads its bootstrap records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.log.fs import Fs
from ottla.metadata.bootstrap import bootstrap_records
from ottla.metadata.records import MetadataSerde
from ottla.raft.format import write_bootstrap, write_voters
from ottla.raft.snapshots import BOOTSTRAP_FILE, SnapshotReader
from ottla.raft.voters import VoterSet

if TYPE_CHECKING:
    from ottla.wire.classes import WireMessage


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
