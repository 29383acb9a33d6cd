"""DeleteTopics (key 20), versions 1-6.

Topics by name, and from version 6 by id.

3 may answer TOPIC_DELETION_DISABLED; 4 is flexible; 5 adds error messages and THROTTLING_QUOTA_EXCEEDED; 6 ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import PARKED, Api, Outcome, RequestContext
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import DeleteTopicsResponse
from ottla.wire.uuid import ZERO_UUID

if TYPE_CHECKING:
    from ottla.wire.messages import DeleteTopicsRequest


def handle(node: Node, ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse | Outcome:
    node.controller.delete_topics(
        request,
        ctx.respond,
        lambda error: ctx.respond(on_error(ctx, request, error)),
        version=ctx.version,
    )
    return PARKED


def on_error(ctx: RequestContext, request: DeleteTopicsRequest, error: ApiException) -> DeleteTopicsResponse:
    named = [(name, ZERO_UUID) for name in request.topic_names]
    named += [(topic.name, topic.topic_id) for topic in request.topics]
    return DeleteTopicsResponse(
        responses=[
            DeleteTopicsResponse.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
            )
            for name, topic_id in named
        ]
    )


API = Api(ApiKey.DELETE_TOPICS, handle, on_error, forward=True)
