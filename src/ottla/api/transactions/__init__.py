"""The APIs of transactions."""

from __future__ import annotations

from typing import Final

APIS: Final = (
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "describe_transactions",
    "end_txn",
    "init_producer_id",
    "list_transactions",
    "txn_offset_commit",
    "write_txn_markers",
)
"""The files of this area, each named after its API; the registry loads them."""
