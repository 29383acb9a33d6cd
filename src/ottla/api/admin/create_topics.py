"""CreateTopics (key 19), versions 2-7.

Creates topics, each with its own result.

3 is for brokers that may throttle; 4 allows counts of -1 for the broker's defaults; 5 is flexible and returns
the new topic's counts and configs; 6 may return THROTTLING_QUOTA_EXCEEDED; 7 returns the topic id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.api.authorization import allowed, cluster_allowed, split
from ottla.api.base import BY_HANDLER, Api, Outcome, RequestContext
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation, ResourceType
from ottla.wire.messages import CreateTopicsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import CreateTopicsRequest


_CONFIGS_FROM: Final = 5
_STRICT_QUOTA_FROM: Final = 6


def handle(node: Node, ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse | Outcome:
    if node.authorizer is None or cluster_allowed(node, ctx, AclOperation.CREATE, log_denied=False):
        denied: list[CreateTopicsRequest.CreatableTopic] = []
    else:
        request.topics, denied = split(
            node, ctx, AclOperation.CREATE, ResourceType.TOPIC, request.topics, lambda topic: topic.name
        )

    def done(response: CreateTopicsResponse) -> None:
        _hide_configs(node, ctx, response)
        response.topics += [
            CreateTopicsResponse.CreatableTopicResult(
                name=name,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message="Authorization failed.",
            )
            for name in dict.fromkeys(topic.name for topic in denied)
        ]
        ctx.respond(response)

    return forward_to_controller(node, ctx, request, on_error, done, strict_from=_STRICT_QUOTA_FROM)


def _hide_configs(node: Node, ctx: RequestContext, response: CreateTopicsResponse) -> None:
    """The configs of a new topic are for those who may describe them."""
    if node.authorizer is None or ctx.version < _CONFIGS_FROM:
        return
    for topic in response.topics:
        if topic.error_code == ErrorCode.NONE and not allowed(
            node, ctx, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name, log_denied=False
        ):
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.num_partitions, topic.replication_factor, topic.configs = -1, -1, []


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
