"""CreateTopics (key 19), versions 2-7.

New topics, each with its own result.

3 is for brokers that may throttle; 4 lets the counts be -1 for the broker's defaults; 5 is flexible and tells the
new topic's counts and configs; 6 may answer THROTTLING_QUOTA_EXCEEDED; 7 tells the topic id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import CreateTopicsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import CreateTopicsRequest


def handle(node: Node, ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse | Outcome:
    node.controller.create_topics(
        request, ctx.respond, lambda error: ctx.respond(on_error(ctx, request, error))
    )
    return PARKED


def on_error(ctx: RequestContext, request: CreateTopicsRequest, error: ApiException) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.CreatableTopicResult(
                name=name, error_code=error.code, error_message=error.message
            )
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )


API = Api(ApiKey.CREATE_TOPICS, handle, on_error, forward=True)
