"""What replicas of the metadata log ask of each other on the controllers' listeners; the quorum is `ottla.raft`."""

from __future__ import annotations

from ottla.api.base import Api
from ottla.api.raft import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)

APIS: tuple[Api, ...] = (
    fetch.API,
    vote.API,
    begin_quorum_epoch.API,
    end_quorum_epoch.API,
    fetch_snapshot.API,
    add_raft_voter.API,
    remove_raft_voter.API,
    update_raft_voter.API,
)
