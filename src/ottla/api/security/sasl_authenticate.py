"""SaslAuthenticate (key 36), versions 0-2.

Carries one token of a SASL exchange. `ottla.net.authenticating` answers it; here it comes after the
exchange, or without one.

1  the answer has the session's lifetime (KIP-368)
2  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import NOTHING, Api, RequestContext
from ottla.broker.services import Node
from ottla.errors import ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.messages import SaslAuthenticateResponse

if TYPE_CHECKING:
    from ottla.wire.messages import SaslAuthenticateRequest


def handle(node: Node, ctx: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


API = Api(ApiKey.SASL_AUTHENTICATE, handle, needs=NOTHING)
