"""The common part of AlterConfigs and IncrementalAlterConfigs: the resources that this node handles itself.

Log levels change on this node. A broker checks its own configs against its file before the controller stores them. The
active controller does everything else. The results come back in the order of the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.api.authorization import require
from ottla.api.base import RequestContext
from ottla.broker.services import Node
from ottla.config.broker import BrokerConfig
from ottla.config.dynamic import is_security_key
from ottla.controller.configs import ChangesOf, ConfigResource, Res, ResultClass, check_with_file, result_as
from ottla.controller.result import NO_ERROR, ApiError
from ottla.errors import ApiException, ErrorCode
from ottla.wire.enums import CLUSTER_NAME, AclOperation, ConfigResourceType, ResourceType

T = TypeVar("T")

Own = Mapping[int, ApiError]
"""The results of the resources that this node has handled, by their index in the request."""


def check_is_this_node(node: Node, name: str) -> None:
    """Raises INVALID_REQUEST unless the name is this node's id."""
    if not name.isdecimal():
        raise ApiException(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: '{name}'.")
    if int(name) != node.node_id:
        raise ApiException(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node.node_id}, but received {name}.",
        )


_KINDS: Final = {
    ConfigResourceType.TOPIC: ResourceType.TOPIC,
    ConfigResourceType.GROUP: ResourceType.GROUP,
    ConfigResourceType.BROKER: ResourceType.CLUSTER,
    ConfigResourceType.BROKER_LOGGER: ResourceType.CLUSTER,
    ConfigResourceType.CLIENT_METRICS: ResourceType.CLUSTER,
}
"""Which right decides about the configs of a resource."""


def require_config_right(
    node: Node, ctx: RequestContext, operation: AclOperation, resource_type: int, resource_name: str
) -> None:
    """Raise the refusal of a resource whose configs the client may not describe or alter."""
    if node.authorizer is None or resource_type not in list(_KINDS):
        return
    kind = _KINDS[ConfigResourceType(resource_type)]
    if kind is ResourceType.CLUSTER:
        require(node, ctx, operation, kind, CLUSTER_NAME)
    else:
        require(node, ctx, operation, kind, resource_name)


def _alter_right(ctx: RequestContext, resource_type: int) -> AclOperation:
    """Log levels of a controller are for the operators of nodes."""
    if resource_type == ConfigResourceType.BROKER_LOGGER and ctx.on_controller_listener:
        return AclOperation.CLUSTER_ACTION
    return AclOperation.ALTER_CONFIGS


def handle_own(
    node: Node,
    ctx: RequestContext,
    resources: Sequence[Res],
    changes_of: ChangesOf[Res],
    then: Callable[[Own], None],
    alter_loggers: Callable[[Res], None] | None = None,
) -> None:
    """Handle the resources that concern this node alone; the controller handles the rest. `then` gets the results.

    `changes_of` returns what the request changes in a resource. `alter_loggers` changes log levels; without it, the
    controller refuses logger resources.
    """
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    own: dict[int, ApiError] = {}
    stores: list[tuple[int, BrokerConfig]] = []
    for index, resource in enumerate(resources):
        if times[resource.resource_type, resource.resource_name] > 1:
            continue
        try:
            kind = resource.resource_type
            require_config_right(node, ctx, _alter_right(ctx, kind), kind, resource.resource_name)
            if resource.resource_type == ConfigResourceType.BROKER and resource.resource_name:
                if ctx.on_controller_listener:
                    continue
                check_is_this_node(node, resource.resource_name)
                changes = changes_of(node.image, resource)
                wanted = check_with_file(node.image, node.config, changes)
                if any(is_security_key(key) for key in changes):
                    stores.append((index, wanted))
            elif resource.resource_type == ConfigResourceType.BROKER_LOGGER and alter_loggers is not None:
                check_is_this_node(node, resource.resource_name)
                alter_loggers(resource)
                own[index] = NO_ERROR
        except ApiException as error:
            own[index] = ApiError.of(error)
    if not stores:
        then(own)
        return
    # A resource appears once, so there is one at most.
    index, wanted = stores[0]

    def checked(error: ApiException | None) -> None:
        if error is not None:
            own[index] = ApiError(ErrorCode.INVALID_REQUEST, error.message)
        then(own)

    node.tls_stores.check(wanted, checked)


def without_own(resources: Sequence[Res], own: Own) -> list[Res]:
    """The resources that the controller must handle."""
    return [resource for index, resource in enumerate(resources) if index not in own]


def joined(
    cls: ResultClass[T], resources: Sequence[ConfigResource], own: Own, stored: Sequence[T]
) -> list[T]:
    """The results of all resources: those of this node, and those of the controller in `stored`."""
    rest = iter(stored)
    return [
        result_as(cls, resource, own[index]) if index in own else next(rest)
        for index, resource in enumerate(resources)
    ]


def all_failed(cls: ResultClass[T], resources: Sequence[ConfigResource], error: ApiException) -> list[T]:
    """The results when the whole request failed."""
    return [result_as(cls, resource, ApiError.of(error)) for resource in resources]
