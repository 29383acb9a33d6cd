"""The one form of the share coordinator's five APIs: partitions of topics in, a result for each out."""

from __future__ import annotations

from ottla.api.base import PARKED, AnyApi, Api, ErrorAnswer, Handler, Message, Outcome, RequestContext
from ottla.broker.services import Broker
from ottla.coordinator.share.service import StateApi
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey


def state_api(key: ApiKey, api: StateApi) -> AnyApi:
    """The API that a share coordinator answers in this form."""
    return Api(key, _handler(api), _on_error(api))


def _handler(api: StateApi) -> Handler[Broker, Message, Message]:
    def handle(broker: Broker, ctx: RequestContext, request: Message) -> Message | Outcome:
        broker.share.coordinator.serve(api, request, ctx.respond)
        return PARKED

    return handle


def _on_error(api: StateApi) -> ErrorAnswer[Message, Message]:
    def on_error(ctx: RequestContext, request: Message, error: ApiException) -> Message:
        return api.response(
            results=[
                getattr(api.response, api.topic_result)(
                    topic_id=topic.topic_id,
                    partitions=[api.partition_result(part.partition, error) for part in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    return on_error
