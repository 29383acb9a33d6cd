"""The one form of the five share state APIs: partitions of topics in the request, a result for each in the response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.broker.services import Broker
from ottla.coordinator.share.service import AnyStateApi
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation

if TYPE_CHECKING:
    from ottla.wire import messages

    _Request = (
        messages.DeleteShareGroupStateRequest
        | messages.InitializeShareGroupStateRequest
        | messages.ReadShareGroupStateRequest
        | messages.ReadShareGroupStateSummaryRequest
        | messages.WriteShareGroupStateRequest
    )
    _Response = (
        messages.DeleteShareGroupStateResponse
        | messages.InitializeShareGroupStateResponse
        | messages.ReadShareGroupStateResponse
        | messages.ReadShareGroupStateSummaryResponse
        | messages.WriteShareGroupStateResponse
    )


def state_api(key: ApiKey, api: AnyStateApi) -> Api[Broker, _Request, _Response]:
    """The API of the share coordinator for one kind of share state request."""

    def handle(broker: Broker, ctx: RequestContext, request: _Request) -> _Response | Outcome:
        broker.share.coordinator.serve(api, request, ctx.respond)
        return PARKED

    def on_error(ctx: RequestContext, request: _Request, error: ApiException) -> _Response:
        response: _Response = api.response(
            results=[
                api.topic_result(
                    topic_id=topic.topic_id,
                    partitions=[api.partition_result(part.partition, error) for part in topic.partitions],
                )
                for topic in request.topics
            ]
        )
        return response

    return Api(key, handle, on_error, needs=(Right(AclOperation.CLUSTER_ACTION),), claims=lambda request: ())
