"""BrokerRegistration (key 62), versions 0-4.

A broker tells who it is, and gets its epoch.

1 was for the way from ZooKeeper; 2 names the log directories; 3 tells the epoch before, by which a clean stop is known;
4 may name features whose lowest level is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext
from ottla.api.controller.forwarding_to_controller import park
from ottla.broker.services import Node
from ottla.errors import ApiException
from ottla.wire.apis import ApiKey
from ottla.wire.messages import BrokerRegistrationResponse

if TYPE_CHECKING:
    from ottla.wire.messages import BrokerRegistrationRequest


def handle(
    node: Node, ctx: RequestContext, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse | Outcome:
    return park(ctx, request, node.controller.register_broker, on_error)


def on_error(
    ctx: RequestContext, request: BrokerRegistrationRequest, error: ApiException
) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=error.code)


API = Api(ApiKey.BROKER_REGISTRATION, handle, on_error)
