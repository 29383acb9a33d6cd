"""WriteTxnMarkers (key 27), versions 1-2.

Writes the transaction markers of another broker's transaction coordinator to partitions that this broker leads.

1 is flexible, and the first that Kafka 4 has; 2 has the transaction version, which decides how the epoch is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.api.authorization import cluster_allowed, require
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.broker.services import Broker
from ottla.coordinator.transaction.marker_manager import TxnMarker
from ottla.errors import ApiException, ErrorCode
from ottla.ids import ProducerId, TopicName
from ottla.log.types import TopicPartition
from ottla.wire.apis import ApiKey
from ottla.wire.enums import CLUSTER_NAME, AclOperation, ResourceType
from ottla.wire.messages import WriteTxnMarkersResponse

if TYPE_CHECKING:
    from ottla.wire.messages import WriteTxnMarkersRequest

Results = dict[ProducerId, dict[TopicPartition, ErrorCode]]


def handle(
    broker: Broker, ctx: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Outcome:
    if not cluster_allowed(broker, ctx, AclOperation.ALTER, log_denied=False):
        # ALTER is for the operator's tool that aborts a hanging transaction.
        require(broker, ctx, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    results: Results = {}
    missing = len(request.markers)
    if not missing:
        return WriteTxnMarkersResponse()
    if any(each.producer_id < 0 or each.producer_epoch < 0 for each in request.markers):
        raise ApiException(ErrorCode.INVALID_REQUEST, "A marker needs the id and the epoch of its producer")
    for each in request.markers:
        marker = TxnMarker(
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.transaction_result,
            each.transaction_version,
        )

        def written(
            codes: Mapping[TopicPartition, ErrorCode], producer_id: ProducerId = each.producer_id
        ) -> None:
            nonlocal missing
            results.setdefault(producer_id, {}).update(codes)
            missing -= 1
            if not missing:
                ctx.respond(_response(results))

        broker.local_markers.write(marker, _partitions(each), written)
    return PARKED


def _partitions(marker: WriteTxnMarkersRequest.WritableTxnMarker) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _response(results: Results) -> WriteTxnMarkersResponse:
    response = WriteTxnMarkersResponse
    markers = []
    for producer_id, codes in results.items():
        by_topic: dict[TopicName, list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]] = {}
        for tp, code in codes.items():
            by_topic.setdefault(tp.topic, []).append(
                response.WritableTxnMarkerPartitionResult(partition_index=tp.partition, error_code=code)
            )
        markers.append(
            response.WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    response.WritableTxnMarkerTopicResult(name=topic, partitions=partitions)
                    for topic, partitions in by_topic.items()
                ],
            )
        )
    return response(markers=markers)


def on_error(
    ctx: RequestContext, request: WriteTxnMarkersRequest, error: ApiException
) -> WriteTxnMarkersResponse:
    results: Results = {}
    for marker in request.markers:
        results.setdefault(marker.producer_id, {}).update(dict.fromkeys(_partitions(marker), error.code))
    return _response(results)


API = Api(ApiKey.WRITE_TXN_MARKERS, handle, on_error, throttled=False, needs=BY_HANDLER)
