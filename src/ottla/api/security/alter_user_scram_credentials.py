"""AlterUserScramCredentials (key 51), version 0.

Adds, changes and removes the SCRAM credentials of users (KIP-554). The request carries salted passwords: it is never
logged, and `ottla.security.profile=strict` refuses it on listeners without TLS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, Outcome, RequestContext, Right
from ottla.api.controller.forwarding_to_controller import forward_to_controller
from ottla.broker.services import Node
from ottla.config.security_profile import PROFILE_KEY
from ottla.errors import ApiException, ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import AlterUserScramCredentialsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import AlterUserScramCredentialsRequest


def handle(
    node: Node, ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse | Outcome:
    return forward_to_controller(node, ctx, request, on_error)


def refuse(
    node: Node, ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    raise ApiException(
        ErrorCode.POLICY_VIOLATION,
        f"{PROFILE_KEY}=strict refuses passwords on listener {ctx.listener_name}, which has no TLS: send them to a "
        "listener with SSL or SASL_SSL",
    )


def on_error(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest, error: ApiException
) -> AlterUserScramCredentialsResponse:
    names = {each.name for each in request.deletions} | {each.name for each in request.upsertions}
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=name, error_code=error.code, error_message=error.message
            )
            for name in sorted(names)
        ]
    )


API = Api(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    handle,
    on_error,
    forward=True,
    needs=(Right(AclOperation.ALTER),),
)

IN_THE_CLEAR = Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, refuse, on_error, needs=API.needs)
"""What a strict node serves on listeners without TLS."""
