"""The APIs of transactions: transactional ids, what takes part in a transaction, and its end."""

from __future__ import annotations

from ottla.api.base import Api
from ottla.api.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)

APIS: tuple[Api, ...] = (
    add_offsets_to_txn.API,
    add_partitions_to_txn.API,
    describe_transactions.API,
    end_txn.API,
    init_producer_id.API,
    list_transactions.API,
    txn_offset_commit.API,
    write_txn_markers.API,
)
