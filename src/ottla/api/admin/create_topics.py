"""CreateTopics (key 19), versions 2-7.

Creates topics, each with its own result.

3 is for brokers that may throttle; 4 allows counts of -1 for the broker's defaults; 5 is flexible and returns
the new topic's counts and configs; 6 may return THROTTLING_QUOTA_EXCEEDED; 7 returns the topic id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import BY_HANDLER, Api, Outcome, RequestContext
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import CreateTopicsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import CreateTopicsRequest


def handle(node: Node, ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse | Outcome:
    return forward_to_controller(node, ctx, request, on_error)


def on_error(ctx: RequestContext, request: CreateTopicsRequest, error: ApiException) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.CreatableTopicResult(
                name=name, error_code=error.code, error_message=error.message
            )
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )


API = Api(ApiKey.CREATE_TOPICS, handle, on_error, forward=True, needs=BY_HANDLER)
