"""AlterUserScramCredentials: adding, changing and removing the SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.controller.result import NO_ERROR, ApiError, ControllerResult
from ottla.credentials.scram_keys import MAX_ITERATIONS, MIN_ITERATIONS, derive_keys
from ottla.errors import ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.wire.classes import WireMessage
from ottla.wire.enums import ScramMechanism
from ottla.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

MAX_USERS: Final = 10_000

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_TWICE: Final = ApiError(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)


def alter_user_scram_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> ControllerResult[AlterUserScramCredentialsResponse]:
    """AlterUserScramCredentialsRequest -> AlterUserScramCredentialsResponse: each user by itself."""
    deletions: dict[str, _Deletion] = {}
    upsertions: dict[str, _Upsertion] = {}
    errors: dict[str, ApiError] = {}
    too_many = len(request.deletions) + len(request.upsertions) > MAX_USERS
    for deletion in request.deletions:
        if deletion.name in errors:
            continue
        if deletions.pop(deletion.name, None) is not None:
            errors[deletion.name] = _TWICE
            continue
        error = _TOO_MANY if too_many else _why_not_deleted(image, deletion)
        if error.failed:
            errors[deletion.name] = error
        else:
            deletions[deletion.name] = deletion
    for upsertion in request.upsertions:
        name = upsertion.name
        if name in errors:
            continue
        if deletions.pop(name, None) is not None or upsertions.pop(name, None) is not None:
            errors[name] = _TWICE
            continue
        error = _TOO_MANY if too_many else _why_not_set(upsertion)
        if error.failed:
            errors[name] = error
        else:
            upsertions[name] = upsertion
    records: list[WireMessage] = [
        RemoveUserScramCredentialRecord(name=each.name, mechanism=each.mechanism)
        for each in deletions.values()
    ]
    records += [_record(each) for each in upsertions.values()]
    outcomes: Mapping[str, ApiError] = {
        **dict.fromkeys(deletions, NO_ERROR),
        **dict.fromkeys(upsertions, NO_ERROR),
        **errors,
    }
    result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    return ControllerResult(
        records,
        AlterUserScramCredentialsResponse(
            results=[
                result(user=name, error_code=error.code, error_message=error.message)
                for name, error in outcomes.items()
            ]
        ),
    )


_TOO_MANY: Final = ApiError(
    ErrorCode.INVALID_REQUEST, f"A request may alter the credentials of {MAX_USERS} users at most"
)


def _why_not_deleted(image: MetadataImage, deletion: _Deletion) -> ApiError:
    error = _why_not_named(deletion.name, deletion.mechanism)
    if not error.failed and (deletion.mechanism, deletion.name) not in image.scram:
        return ApiError(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    return error


def _why_not_set(upsertion: _Upsertion) -> ApiError:
    error = _why_not_named(upsertion.name, upsertion.mechanism)
    if error.failed:
        return error
    if upsertion.iterations < MIN_ITERATIONS:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > MAX_ITERATIONS:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return NO_ERROR


def _why_not_named(name: str, mechanism: int) -> ApiError:
    if not name:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        return ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return NO_ERROR


def _record(upsertion: _Upsertion) -> UserScramCredentialRecord:
    """The record with keys derived from the salted password: the password's own hash is not kept."""
    keys = derive_keys(ScramMechanism(upsertion.mechanism).hash_name, upsertion.salted_password)
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=upsertion.mechanism,
        salt=upsertion.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=upsertion.iterations,
    )
