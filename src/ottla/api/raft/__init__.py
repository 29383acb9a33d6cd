"""The quorum's APIs on the controllers' listeners. The quorum itself is in `ottla.raft`."""

from __future__ import annotations

from typing import Final

APIS: Final = (
    "fetch",
    "vote",
    "begin_quorum_epoch",
    "end_quorum_epoch",
    "fetch_snapshot",
    "add_raft_voter",
    "remove_raft_voter",
    "update_raft_voter",
)
"""The modules of this package, one for each API; the registry loads them."""
