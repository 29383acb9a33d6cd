"""ShareAcknowledge (key 79), versions 1-2.

Acknowledges acquired records, without fetching more.

1  the first stable version     2  renewal of locks, and the duration of locks
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.authorization import require
from ottla.api.base import BY_HANDLER, PARKED, Api, Outcome, RequestContext
from ottla.api.data.leaders import LeaderHint, endpoints, leader_hint
from ottla.api.share.requests import Refusals, acknowledgements, require_member, require_share_groups
from ottla.broker.services import Broker
from ottla.errors import ApiException, ErrorCode
from ottla.replica.share.sessions import FINAL_EPOCH, INITIAL_EPOCH
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import ShareAcknowledgeResponse

if TYPE_CHECKING:
    from ottla.wire.messages import ShareAcknowledgeRequest

_HINTED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(
    broker: Broker, ctx: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse | Outcome:
    require_share_groups(broker)
    group_id, member_id = require_member(request.group_id, request.member_id)
    require(broker, ctx, AclOperation.READ, ResourceType.GROUP, group_id)
    shares = broker.share.partitions
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise ApiException(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "A share session starts with a ShareFetch")
    if epoch == FINAL_EPOCH:
        shares.sessions.require(group_id, member_id)
    else:
        shares.sessions.use(group_id, member_id, epoch)
    found, refused = acknowledgements(broker, ctx, request.topics, request.is_renew_ack)

    def done(outcomes: Refusals) -> None:
        if epoch == FINAL_EPOCH:
            shares.end_session(group_id, member_id)
        ctx.respond(_response(broker, ctx, group_id, {**refused, **outcomes}))

    shares.acknowledge(group_id, member_id, found, done)
    return PARKED


def _response(
    broker: Broker, ctx: RequestContext, group_id: str, outcomes: Refusals
) -> ShareAcknowledgeResponse:
    topics: dict[bytes, list[ShareAcknowledgeResponse.PartitionData]] = {}
    hints: list[LeaderHint] = []
    for (topic_id, index), error in outcomes.items():
        partition = ShareAcknowledgeResponse.PartitionData(partition_index=index)
        if error is not None:
            partition.error_code = error.code
            partition.error_message = error.message
            if error.code in _HINTED:
                hint = leader_hint(broker, ctx, topic_id, index)
                hints.append(hint)
                partition.current_leader = ShareAcknowledgeResponse.LeaderIdAndEpoch(
                    leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
                )
        topics.setdefault(topic_id, []).append(partition)
    response = ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=broker.share.partitions.settings(group_id).record_lock_ms,
        responses=[
            ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
    )
    if hints:
        response.node_endpoints = endpoints(ShareAcknowledgeResponse.NodeEndpoint, hints)
    return response


API = Api(ApiKey.SHARE_ACKNOWLEDGE, handle, needs=BY_HANDLER)
