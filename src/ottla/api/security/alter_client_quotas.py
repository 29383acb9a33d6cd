"""AlterClientQuotas (key 49), versions 0-1.

Sets and removes the quotas of users, clients and addresses (KIP-546).

1  flexible
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address

from ottla.api.base import PARKED, Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import AlterClientQuotasRequest, AlterClientQuotasResponse

_IP = "ip"
_Result = AlterClientQuotasResponse.EntryData


def handle(
    node: Node, ctx: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse | Outcome:
    hosts = {name for entry in request.entries if (name := _host_name(entry)) is not None}
    if not hosts:
        return forward_to_controller(node, ctx, request, on_error)

    def look_up() -> frozenset[str]:
        return frozenset(name for name in hosts if not _resolves(name))

    def looked_up(future: asyncio.Future[frozenset[str]]) -> None:
        if not future.cancelled():
            _decide(node, ctx, request, future.result())

    # The resolver can take seconds: in a thread, and not in one that writes and reads logs.
    asyncio.get_running_loop().run_in_executor(None, look_up).add_done_callback(looked_up)
    return PARKED


def _decide(
    node: Node, ctx: RequestContext, request: AlterClientQuotasRequest, unknown: frozenset[str]
) -> None:
    """Have the controller decide about all entries but those with names that do not resolve."""
    refused = [
        _result(
            entry,
            ErrorCode.INVALID_REQUEST,
            f"{name} is not a valid IP or resolvable host.",
        )
        for entry in request.entries
        if (name := _host_name(entry)) in unknown
    ]
    request.entries = [entry for entry in request.entries if _host_name(entry) not in unknown]

    def done(response: AlterClientQuotasResponse) -> None:
        response.entries += refused
        ctx.respond(response)

    try:
        forward_to_controller(node, ctx, request, on_error, done)
    except ApiException as error:
        ctx.respond(on_error(ctx, request, error))


def _host_name(entry: AlterClientQuotasRequest.EntryData) -> str | None:
    """The name of an entity that is an address, if it is not written as a number."""
    for part in entry.entity:
        if part.entity_type == _IP and part.entity_name:
            try:
                ip_address(part.entity_name)
            except ValueError:
                return part.entity_name
    return None


def _resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return False
    return True


def _result(entry: AlterClientQuotasRequest.EntryData, code: ErrorCode, message: str | None) -> _Result:
    return _Result(
        error_code=code,
        error_message=message,
        entity=[
            AlterClientQuotasResponse.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ],
    )


def on_error(
    ctx: RequestContext, request: AlterClientQuotasRequest, error: ApiException
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[_result(entry, error.code, error.message) for entry in request.entries]
    )


API = Api(
    ApiKey.ALTER_CLIENT_QUOTAS, handle, on_error, forward=True, needs=(Right(AclOperation.ALTER_CONFIGS),)
)
