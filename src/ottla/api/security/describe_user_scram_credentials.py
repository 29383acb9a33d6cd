"""DescribeUserScramCredentials (key 50), version 0.

Which SCRAM mechanisms and iterations users have (KIP-554). Salts and keys are never shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.base import Api, RequestContext, Right
from ottla.broker.services import Node
from ottla.errors import ErrorCode
from ottla.wire.apis import ApiKey
from ottla.wire.enums import AclOperation
from ottla.wire.messages import DescribeUserScramCredentialsResponse

if TYPE_CHECKING:
    from ottla.wire.messages import DescribeUserScramCredentialsRequest

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def handle(
    node: Node, ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    mechanisms: dict[str, list[tuple[int, int]]] = {}
    for (mechanism, name), credential in sorted(node.image.scram.items()):
        mechanisms.setdefault(name, []).append((mechanism, credential.iterations))
    asked = [each.name for each in request.users or ()]
    names = list(dict.fromkeys(asked)) or sorted(mechanisms)
    return DescribeUserScramCredentialsResponse(
        results=[_result(name, mechanisms.get(name), twice=asked.count(name) > 1) for name in names]
    )


def _result(name: str, found: list[tuple[int, int]] | None, *, twice: bool) -> _Result:
    if twice:
        return _Result(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message="Cannot describe SCRAM credentials for the same user twice in a single request: "
            + name,
        )
    if found is None:
        return _Result(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message="Attempt to describe a user credential that does not exist: " + name,
        )
    info = DescribeUserScramCredentialsResponse.CredentialInfo
    return _Result(
        user=name,
        credential_infos=[info(mechanism=mechanism, iterations=count) for mechanism, count in found],
    )


API = Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, handle, needs=(Right(AclOperation.DESCRIBE),))
