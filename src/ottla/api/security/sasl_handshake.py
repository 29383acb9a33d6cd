"""SaslHandshake (key 17), versions 0-1.

Begins an authentication by SASL. `ottla.net.authenticating` answers it on SASL listeners; here it comes too late,
or on a listener without SASL.

1  tokens follow in SaslAuthenticate requests; before, they came bare
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import NOTHING, Api, RequestContext
from ottla.broker.services import Node
from ottla.errors import ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.messages import SaslHandshakeResponse

if TYPE_CHECKING:
    from ottla.wire.messages import SaslHandshakeRequest


def handle(node: Node, ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


API = Api(ApiKey.SASL_HANDSHAKE, handle, needs=NOTHING)
