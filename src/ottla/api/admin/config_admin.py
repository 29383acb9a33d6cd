"""What AlterConfigs and IncrementalAlterConfigs have in common: what this node answers by itself, and the rest.

Log levels are changed here at once. A broker's own configs go through that broker, so that it can refuse them; for
all else, and to store them, the active controller is asked. The answers come back in the order of the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ottla.api.admin import loggers
from ottla.api.base import PARKED, Message, Outcome, RequestContext
from ottla.api.forwarding.envelope import pass_on_part
from ottla.broker.services import Node
from ottla.controller.configs import ChangesOf, check_with_file
from ottla.controller.result import NO_ERROR, ApiError
from ottla.errors import ApiException, ErrorCode
from ottla.wire.enums import ConfigResourceType

AskController = Callable[[Message, Callable[[Message], None], Callable[[ApiException], None]], None]


def check_is_this_node(node: Node, name: str) -> None:
    """Raises INVALID_REQUEST unless the name is this node's id."""
    if not name.isdecimal():
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: '{name}'.")
    if int(name) != node.node_id:
        raise ApiException(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node.node_id}, but received {name}.",
        )


def alter(
    node: Node,
    ctx: RequestContext,
    request: Message,
    response_class: Any,
    store: AskController,
    changes_of: ChangesOf,
    *,
    may_change_loggers: bool,
) -> Message | Outcome:
    """Answer what concerns this node alone, have the controller do the rest, and join the results.

    `store` is this node's own controller, asked on its own listener; else the active one is, wherever it is.
    `changes_of` tells what the request changes of a resource.
    """
    times = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    own: dict[int, ApiError] = {}
    for index, resource in enumerate(request.resources):
        if times[resource.resource_type, resource.resource_name] > 1:
            continue
        try:
            if resource.resource_type == ConfigResourceType.BROKER and resource.resource_name:
                if ctx.on_controller_listener:
                    continue
                check_is_this_node(node, resource.resource_name)
                check_with_file(node.image, node.config, changes_of(node.image, resource))
            elif resource.resource_type == ConfigResourceType.BROKER_LOGGER and may_change_loggers:
                check_is_this_node(node, resource.resource_name)
                loggers.alter_levels(resource.configs, validate_only=request.validate_only)
                own[index] = NO_ERROR
        except ApiException as error:
            own[index] = ApiError.of(error)

    def done(response: Message) -> None:
        stored = iter(response.responses)
        results = [
            _result(response_class, resource, own[index]) if index in own else next(stored)
            for index, resource in enumerate(request.resources)
        ]
        ctx.respond(response_class(responses=results))

    rest = type(request)(
        resources=[resource for index, resource in enumerate(request.resources) if index not in own],
        validate_only=request.validate_only,
    )

    def failed(error: ApiException) -> None:
        ctx.respond(all_failed(request, response_class, error))

    if ctx.on_controller_listener:
        store(rest, done, failed)
    else:
        pass_on_part(node, ctx, rest, done, failed)
    return PARKED


def all_failed(request: Message, response_class: Any, error: ApiException) -> Message:
    """The answer when nothing of the request could be done."""
    return response_class(
        responses=[_result(response_class, resource, ApiError.of(error)) for resource in request.resources]
    )


def _result(response_class: Any, resource: Message, error: ApiError) -> Message:
    return response_class.AlterConfigsResourceResponse(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
