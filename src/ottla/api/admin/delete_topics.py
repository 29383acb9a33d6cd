"""DeleteTopics (key 20), versions 1-6.

Deletes topics by name, and from version 6 by id.

3 may return TOPIC_DELETION_DISABLED; 4 is flexible; 5 adds error messages and THROTTLING_QUOTA_EXCEEDED; 6 adds ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import BY_HANDLER, Api, Outcome, RequestContext
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import DeleteTopicsResponse
from ottla.wire.uuid import ZERO_UUID

if TYPE_CHECKING:
    from ottla.ids import TopicName
    from ottla.wire.messages import DeleteTopicsRequest


def handle(node: Node, ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse | Outcome:
    return forward_to_controller(node, ctx, request, on_error)


def on_error(ctx: RequestContext, request: DeleteTopicsRequest, error: ApiException) -> DeleteTopicsResponse:
    named: list[tuple[TopicName | None, bytes]] = [(name, ZERO_UUID) for name in request.topic_names]
    named += [(topic.name, topic.topic_id) for topic in request.topics]
    return DeleteTopicsResponse(
        responses=[
            DeleteTopicsResponse.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
            )
            for name, topic_id in named
        ]
    )


API = Api(ApiKey.DELETE_TOPICS, handle, on_error, forward=True, needs=BY_HANDLER)
