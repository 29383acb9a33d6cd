"""A request for each API of transactions, in any version: for the test that asks everything in every version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.wire import messages
from ottla.wire.apis import ApiKey

_BATCHED_FROM = 4
_MEMBER_FROM = 3


def _add_partitions(asked: Any) -> Any:
    request = messages.AddPartitionsToTxnRequest
    topics = [request.AddPartitionsToTxnTopic(name=asked.name, partitions=[0])]
    if asked.version < _BATCHED_FROM:
        return request(v3_and_below_transactional_id="tx", v3_and_below_topics=topics)
    transaction = request.AddPartitionsToTxnTransaction(
        transactional_id="tx", topics=topics, verify_only=True
    )
    return request(transactions=[transaction])


def _markers(asked: Any) -> Any:
    request = messages.WriteTxnMarkersRequest
    topic = request.WritableTxnMarkerTopic(name=asked.name, partition_indexes=[0])
    marker = request.WritableTxnMarker(producer_id=987_654, transaction_result=True, topics=[topic])
    if asked.version >= 2:
        marker.transaction_version = 2
    return request(markers=[marker])


def _offsets(asked: Any) -> Any:
    request = messages.TxnOffsetCommitRequest
    partition = request.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = request.TxnOffsetCommitRequestTopic(name=asked.name, partitions=[partition])
    asking = request(transactional_id="tx", group_id="group", producer_id=1, topics=[topic])
    if asked.version >= _MEMBER_FROM:
        asking.member_id = "someone"
    return asking


def _list(asked: Any) -> Any:
    request = messages.ListTransactionsRequest(state_filters=["Ongoing"])
    if asked.version >= 1:
        request.duration_filter = 5
    if asked.version >= 2:
        request.transactional_id_pattern = ".*"
    return request


TXN_REQUESTS: dict[int, Callable[[Any], Any]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: lambda asked: messages.AddOffsetsToTxnRequest(
        transactional_id="tx", group_id="group"
    ),
    ApiKey.END_TXN: lambda asked: messages.EndTxnRequest(transactional_id="tx", committed=True),
    ApiKey.WRITE_TXN_MARKERS: _markers,
    ApiKey.TXN_OFFSET_COMMIT: _offsets,
    ApiKey.DESCRIBE_TRANSACTIONS: lambda asked: messages.DescribeTransactionsRequest(
        transactional_ids=["tx"]
    ),
    ApiKey.LIST_TRANSACTIONS: _list,
}
