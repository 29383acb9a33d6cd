"""DeleteTopics (key 20), versions 1-6.

Deletes topics by name, and from version 6 by id.

3 may return TOPIC_DELETION_DISABLED; 4 is flexible; 5 adds error messages and THROTTLING_QUOTA_EXCEEDED; 6 adds ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.authorization import allowed, cluster_allowed, refusal
from ottla.api.base import BY_HANDLER, Api, Outcome, RequestContext
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import DeleteTopicsResponse
from ottla.wire.uuid import ZERO_UUID

if TYPE_CHECKING:
    from ottla.ids import TopicName
    from ottla.wire.messages import DeleteTopicsRequest

_STRICT_QUOTA_FROM: Final = 5


def handle(node: Node, ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse | Outcome:
    if node.authorizer is None or cluster_allowed(node, ctx, AclOperation.DELETE, log_denied=False):
        return forward_to_controller(node, ctx, request, on_error, strict_from=_STRICT_QUOTA_FROM)
    denied = _take_denied(node, ctx, request)

    def done(response: DeleteTopicsResponse) -> None:
        response.responses += denied
        # The order must not tell which of them exist.
        node.clock.random.shuffle(response.responses)
        ctx.respond(response)

    return forward_to_controller(node, ctx, request, on_error, done, strict_from=_STRICT_QUOTA_FROM)


def _take_denied(
    node: Node, ctx: RequestContext, request: DeleteTopicsRequest
) -> list[DeleteTopicsResponse.DeletableTopicResult]:
    """Take the topics that the client may not delete out of the request, and give their results.

    Without DESCRIBE, a topic that exists and one that does not get the same result.
    """
    error = refusal(ResourceType.TOPIC)
    denied: list[DeleteTopicsResponse.DeletableTopicResult] = []

    def refuse(name: TopicName | None, topic_id: bytes) -> None:
        denied.append(
            DeleteTopicsResponse.DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
            )
        )

    def may(operation: AclOperation, name: TopicName) -> bool:
        return allowed(node, ctx, operation, ResourceType.TOPIC, name)

    names = []
    for name in request.topic_names:
        if may(AclOperation.DESCRIBE, name) and (
            name not in node.image.topics.by_name or may(AclOperation.DELETE, name)
        ):
            names.append(name)
        else:
            refuse(name, ZERO_UUID)
    topics = []
    for topic in request.topics:
        found = node.image.topics.by_id.get(topic.topic_id)
        known = topic.name if topic.name is not None else (None if found is None else found.name)
        if known is None:
            # An id that is not known says nothing about a topic.
            topics.append(topic)
            continue
        shown = may(AclOperation.DESCRIBE, known)
        if shown and (known not in node.image.topics.by_name or may(AclOperation.DELETE, known)):
            # The controller says of a topic that may be described whether it exists.
            topics.append(topic)
        else:
            refuse(known if shown or topic.name is not None else None, topic.topic_id)
    request.topic_names, request.topics = names, topics
    return denied


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
