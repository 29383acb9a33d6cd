"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, and the sweep of expired tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.controller.result import ControllerResult
from ottla.errors import ErrorCode
from ottla.metadata.features import DELEGATION_TOKENS_FROM
from ottla.metadata.image import DelegationToken, MetadataImage
from ottla.wire.messages import (
    CreateDelegationTokenResponse,
    DelegationTokenRecord,
    ExpireDelegationTokenResponse,
    RemoveDelegationTokenRecord,
    RenewDelegationTokenResponse,
)
from ottla.wire.uuid import uuid_to_str

if TYPE_CHECKING:
    from ottla.controller.settings import Settings
    from ottla.wire.messages import (
        CreateDelegationTokenRequest,
        ExpireDelegationTokenRequest,
        RenewDelegationTokenRequest,
    )

MAX_SWEPT: Final = 1000
"""Expired tokens that one operation removes."""
MAX_RENEWERS: Final = 10_000
NAMES_REQUESTER_FROM: Final = 3
"""The version of CreateDelegationToken and DescribeDelegationToken from which responses name the requester."""
_FOREVER_MS: Final = 2**63 - 1


def owner_of(request: CreateDelegationTokenRequest, requester: str) -> str:
    """The principal that a new token speaks for."""
    if request.owner_principal_name:
        return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
    return requester


def new_response(
    request: CreateDelegationTokenRequest, requester: str, version: int
) -> CreateDelegationTokenResponse:
    """A response that names the owner and, where the version can, the requester, and no token yet."""
    kind, _, name = owner_of(request, requester).partition(":")
    response = CreateDelegationTokenResponse(principal_type=kind, principal_name=name)
    if version >= NAMES_REQUESTER_FROM:
        requester_kind, _, requester_name = requester.partition(":")
        response.token_requester_principal_type = requester_kind
        response.token_requester_principal_name = requester_name
    return response


def _why_disabled(image: MetadataImage, settings: Settings) -> ErrorCode:
    if settings.token_key is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if image.metadata_version < DELEGATION_TOKENS_FROM:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def create_token(
    image: MetadataImage,
    request: CreateDelegationTokenRequest,
    settings: Settings,
    requester: str,
    now_ms: int,
    random_uuid: bytes,
    version: int = NAMES_REQUESTER_FROM,
) -> ControllerResult[CreateDelegationTokenResponse]:
    """Make a token. Its secret follows from its id and the cluster's key."""
    response = new_response(request, requester, version)
    response.error_code = _why_disabled(image, settings)
    if response.error_code == ErrorCode.NONE and len(request.renewers) > MAX_RENEWERS:
        response.error_code = ErrorCode.INVALID_REQUEST
    if response.error_code == ErrorCode.NONE and any(r.principal_type != "User" for r in request.renewers):
        response.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE
    if response.error_code != ErrorCode.NONE or settings.token_key is None:
        return ControllerResult([], response)
    lifetime_ms = settings.token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_ms = min(now_ms + lifetime_ms, _FOREVER_MS)
    expiry_ms = min(max_ms, now_ms + settings.token_expiry_ms)
    token_id = uuid_to_str(random_uuid)
    response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms = (
        now_ms,
        expiry_ms,
        max_ms,
    )
    response.token_id, response.hmac = token_id, settings.token_key.hmac(token_id)
    record = DelegationTokenRecord(
        owner=owner_of(request, requester),
        requester=requester,
        renewers=[f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=max_ms,
        expiration_timestamp=expiry_ms,
        token_id=token_id,
    )
    return ControllerResult([record], response)


def renew_token(
    image: MetadataImage,
    request: RenewDelegationTokenRequest,
    settings: Settings,
    requester: str,
    now_ms: int,
) -> ControllerResult[RenewDelegationTokenResponse]:
    """Let a token live longer, up to its longest life."""
    response = RenewDelegationTokenResponse(error_code=_why_disabled(image, settings))
    if response.error_code != ErrorCode.NONE or settings.token_key is None:
        return ControllerResult([], response)
    token = settings.token_key.find(bytes(request.hmac), image.tokens)
    if token is None:
        response.error_code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    elif is_expired(token, now_ms):
        response.error_code = ErrorCode.DELEGATION_TOKEN_EXPIRED
    elif not _may_renew(token, requester):
        response.error_code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    else:
        period_ms = settings.token_expiry_ms
        if request.renew_period_ms > 0:
            period_ms = min(period_ms, request.renew_period_ms)
        response.expiry_timestamp_ms = min(token.max_timestamp, now_ms + period_ms)
        return ControllerResult([_record(token, response.expiry_timestamp_ms)], response)
    return ControllerResult([], response)


def expire_token(
    image: MetadataImage,
    request: ExpireDelegationTokenRequest,
    settings: Settings,
    requester: str,
    now_ms: int,
) -> ControllerResult[ExpireDelegationTokenResponse]:
    """Let a token end sooner; with a negative period, now."""
    response = ExpireDelegationTokenResponse(error_code=_why_disabled(image, settings))
    if response.error_code != ErrorCode.NONE or settings.token_key is None:
        return ControllerResult([], response)
    token = settings.token_key.find(bytes(request.hmac), image.tokens)
    if token is None:
        response.error_code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    elif not _may_renew(token, requester):
        response.error_code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    elif request.expiry_time_period_ms < 0:
        response.expiry_timestamp_ms = now_ms
        return ControllerResult([RemoveDelegationTokenRecord(token_id=token.token_id)], response)
    elif is_expired(token, now_ms):
        response.error_code = ErrorCode.DELEGATION_TOKEN_EXPIRED
    else:
        response.expiry_timestamp_ms = min(token.max_timestamp, now_ms + request.expiry_time_period_ms)
        return ControllerResult([_record(token, response.expiry_timestamp_ms)], response)
    return ControllerResult([], response)


def sweep_expired_tokens(image: MetadataImage, now_ms: int) -> ControllerResult[bool]:
    """Remove expired tokens. The response says whether there may be more."""
    expired = [token_id for token_id, token in image.tokens.items() if is_expired(token, now_ms)][:MAX_SWEPT]
    records = [RemoveDelegationTokenRecord(token_id=token_id) for token_id in expired]
    return ControllerResult(list(records), len(expired) == MAX_SWEPT)


def is_expired(token: DelegationToken, now_ms: int) -> bool:
    """Whether nobody can log in with the token any more."""
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def _may_renew(token: DelegationToken, principal: str) -> bool:
    return principal == token.owner or principal in token.renewers


def _record(token: DelegationToken, expiration_ms: int) -> DelegationTokenRecord:
    fields = token._asdict() | {"renewers": list(token.renewers), "expiration_timestamp": expiration_ms}
    return DelegationTokenRecord(**fields)
