"""CreatePartitions (key 37), versions 0-3.

Adds partitions to existing topics.

1 is for brokers that may throttle; 2 is flexible; 3 may return THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.authorization import refusal, split
from ottla.api.base import BY_HANDLER, Api, Outcome, RequestContext
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import CreatePartitionsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import CreatePartitionsRequest

_STRICT_QUOTA_FROM: Final = 3


def handle(
    node: Node, ctx: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse | Outcome:
    request.topics, denied = split(
        node, ctx, AclOperation.ALTER, ResourceType.TOPIC, request.topics, lambda topic: topic.name
    )
    error = refusal(ResourceType.TOPIC)

    def done(response: CreatePartitionsResponse) -> None:
        response.results += [
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=name, error_code=error.code, error_message=error.message
            )
            for name in dict.fromkeys(topic.name for topic in denied)
        ]
        ctx.respond(response)

    return forward_to_controller(node, ctx, request, on_error, done, strict_from=_STRICT_QUOTA_FROM)


def on_error(
    ctx: RequestContext, request: CreatePartitionsRequest, error: ApiException
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=name, error_code=error.code, error_message=error.message
            )
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )


API = Api(ApiKey.CREATE_PARTITIONS, handle, on_error, forward=True, needs=BY_HANDLER)
