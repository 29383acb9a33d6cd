"""DescribeCluster (key 60), versions 0-2.

The cluster's id, its controller and its brokers (or, on a controller listener, controllers).

1 adds the type of the requested endpoints, 2 fenced brokers.
"""

from __future__ import annotations

from ottla.api.authorization import require
from ottla.api.base import BY_HANDLER, Api, RequestContext
from ottla.api.cluster.nodes import NO_NODE, NodeAddress, advertised_controller, cluster_operations, nodes
from ottla.broker.services import Node
from ottla.errors import ApiException, ErrorCode
from ottla.ids import BrokerId
from ottla.wire import messages
from ottla.wire.apis import ApiKey
from ottla.wire.enums import CLUSTER_NAME, AclOperation, ResourceType

_BROKERS, _CONTROLLERS = 1, 2
_TYPES = {_BROKERS: "BROKER", _CONTROLLERS: "CONTROLLER"}


def handle(
    broker: Node, ctx: RequestContext, request: messages.DescribeClusterRequest
) -> messages.DescribeClusterResponse:
    here = _CONTROLLERS if ctx.on_controller_listener else _BROKERS
    if here == _CONTROLLERS:
        require(broker, ctx, AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    _check_type(ctx, request.endpoint_type, here)
    response = messages.DescribeClusterResponse
    if here == _BROKERS:
        found = list(nodes(broker, ctx, broker.image))
        controller = advertised_controller(broker, [node for node in found if not node.fenced])
        found = [node for node in found if request.include_fenced_brokers or not node.fenced]
    else:
        found = _controllers(broker, ctx)
        leader = broker.raft.leader_id
        controller = next((node.id for node in found if node.id == leader), NO_NODE)
    result = response(
        cluster_id=broker.cluster_id,
        controller_id=controller,
        endpoint_type=here,
        brokers=[
            response.DescribeClusterBroker(
                broker_id=node.id, host=node.host, port=node.port, rack=node.rack, is_fenced=node.fenced
            )
            for node in found
        ],
    )
    if request.include_cluster_authorized_operations:
        result.cluster_authorized_operations = cluster_operations(broker, ctx)
    return result


def _check_type(ctx: RequestContext, requested: int, here: int) -> None:
    if requested not in _TYPES:
        code, text = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {requested}"
    elif requested != here:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        text = (
            f"The request was sent to an endpoint of type {_TYPES[here]}, "
            f"but we wanted an endpoint of type {_TYPES[requested]}"
        )
    else:
        return
    raise ApiException(ErrorCode.INVALID_REQUEST if ctx.version == 0 else code, text)


def _controllers(broker: Node, ctx: RequestContext) -> list[NodeAddress]:
    found = []
    for registration in broker.image.controllers.values():
        endpoint = registration.listeners.get(ctx.listener_name)
        if endpoint is not None:
            host, port = endpoint.host, endpoint.port
            if registration.id == broker.node_id and broker.config.advertised(ctx.listener_name) is None:
                host, port = ctx.local_host, ctx.local_port
            found.append(NodeAddress(BrokerId(registration.id), host, port, None, fenced=False))
    return found


API = Api(ApiKey.DESCRIBE_CLUSTER, handle, needs=BY_HANDLER)
