"""AlterClientQuotas: setting and removing the quotas of users, clients and addresses (KIP-546)."""

from __future__ import annotations

from typing import Final

from ottla.controller.result import NO_ERROR, ApiError, ControllerResult
from ottla.errors import ErrorCode
from ottla.metadata.image import ClientQuotaEntity, MetadataImage
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ClientQuotaRecord,
)

MAX_RECORDS: Final = 10_000

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_TYPES: Final = (_USER, _CLIENT_ID, _IP)
_LONG, _INT = 2.0**63, 2.0**31 - 1
_CLIENT_KEYS: Final[dict[str, float | None]] = {
    "producer_byte_rate": _LONG,
    "consumer_byte_rate": _LONG,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
"""The largest value of each key of users and clients; None for keys that may be fractions."""
_IP_KEYS: Final[dict[str, float | None]] = {"connection_creation_rate": _INT}
_TYPE_NAMES: Final = {_LONG: "a LONG", _INT: "an INT"}
_ROUNDING: Final = 1e-6

_Entry = AlterClientQuotasRequest.EntryData


def alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest
) -> ControllerResult[AlterClientQuotasResponse]:
    """AlterClientQuotasRequest -> AlterClientQuotasResponse: each entity by itself."""
    records: list[ClientQuotaRecord] = []
    outcomes: dict[ClientQuotaEntity, ApiError] = {}
    too_many = sum(len(entry.ops) for entry in request.entries) > MAX_RECORDS
    for entry in request.entries:
        entity = entity_of(entry)
        keys = [op.key for op in entry.ops]
        if entity in outcomes or len(set(keys)) < len(keys):
            outcomes[entity] = _invalid(f"Ignoring duplicate entity {_shown(entity)}")
            continue
        error = _TOO_MANY if too_many else _why_not_altered(entry)
        outcomes[entity] = error
        if not error.failed:
            records += _changes(image, entity, entry)
    response = AlterClientQuotasResponse(
        entries=[_result(entity, error) for entity, error in outcomes.items()]
    )
    return ControllerResult([] if request.validate_only else list(records), response)


def entity_of(entry: _Entry) -> ClientQuotaEntity:
    """The entity of an entry, in the form of the image. Of a type that comes twice the last name counts."""
    return tuple(sorted({part.entity_type: part.entity_name for part in entry.entity}.items()))


_TOO_MANY: Final = ApiError(ErrorCode.INVALID_REQUEST, f"A request may change {MAX_RECORDS} quotas at most")


def _changes(image: MetadataImage, entity: ClientQuotaEntity, entry: _Entry) -> list[ClientQuotaRecord]:
    current = image.client_quotas.get(entity, {})
    records = []
    for op in entry.ops:
        if op.remove:
            if op.key in current:
                records.append(_record(entity, op.key, 0.0, remove=True))
        elif current.get(op.key) != op.value:
            records.append(_record(entity, op.key, op.value, remove=False))
    return records


def _record(entity: ClientQuotaEntity, key: str, value: float, *, remove: bool) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=[ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=value,
        remove=remove,
    )


def _why_not_altered(entry: _Entry) -> ApiError:
    names = {part.entity_type: part.entity_name for part in entry.entity}
    error = _why_not_entity(names)
    if error.failed:
        return error
    keys = _IP_KEYS if _IP in names else _CLIENT_KEYS
    for op in entry.ops:
        if not op.remove:
            error = _why_not_value(keys, op.key, op.value)
            if error.failed:
                return error
    return NO_ERROR


def _why_not_entity(names: dict[str, str | None]) -> ApiError:
    if not names:
        return _invalid("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in _TYPES:
            return _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            return _invalid(f"Empty {kind} not supported")
    if _IP in names and len(names) > 1:
        return _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    return NO_ERROR


def _why_not_value(keys: dict[str, float | None], key: str, value: float) -> ApiError:
    if key not in keys:
        return _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        return _invalid(f"Quota {key} must be greater than 0")
    largest = keys[key]
    if largest is None:
        return NO_ERROR
    if value > largest:
        return _invalid(f"Proposed value for {key} is too large for {_TYPE_NAMES[largest]}.")
    if abs(value % 1.0) > _ROUNDING:
        return _invalid(f"{key} cannot be a fractional value.")
    return NO_ERROR


def _invalid(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, why)


def _shown(entity: ClientQuotaEntity) -> str:
    parts = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{parts}}})"


def _result(entity: ClientQuotaEntity, error: ApiError) -> AlterClientQuotasResponse.EntryData:
    kind = AlterClientQuotasResponse
    return kind.EntryData(
        error_code=error.code,
        error_message=error.message,
        entity=[kind.EntityData(entity_type=each, entity_name=name) for each, name in entity],
    )
