"""Reads what requests carry: pages of lists, and schemas in bodies."""

from __future__ import annotations

from typing import TypeVar

from ottla.json_types import Json, JsonObject
from ottla.registry.contracts import check_metadata, check_rule_set
from ottla.registry.errors import RegistryError, invalid_schema
from ottla.registry.registry import Proposal
from ottla.registry.rest.http import Request
from ottla.registry.state import Reference

T = TypeVar("T")


def page(request: Request, found: list[T]) -> list[T]:
    offset, limit = max(0, request.number("offset", 0)), request.number("limit", -1)
    return found[offset:] if limit < 0 else found[offset : offset + limit]


def proposal(body: JsonObject) -> Proposal:
    """The schema in a request's body."""
    text = body.get("schema")
    if not isinstance(text, str):
        raise invalid_schema("the body has no schema: send it as a string under the key 'schema'")
    if not text.strip():
        raise RegistryError(422, 42201, "Empty schema")
    given = body.get("references") or []
    if not isinstance(given, list):
        raise invalid_schema("references must be a list")
    return Proposal(
        text,
        str(body.get("schemaType") or "AVRO").upper(),
        tuple(_reference(one) for one in given),
        check_metadata(body.get("metadata")),
        check_rule_set(body.get("ruleSet")),
        _number(body, "id", -1),
        _number(body, "version", 0),
    )


def _reference(given: Json) -> Reference:
    if isinstance(given, dict):
        name, subject, version = given.get("name"), given.get("subject"), given.get("version")
        if isinstance(name, str) and isinstance(subject, str) and isinstance(version, int):
            return Reference(name, subject, version)
    raise invalid_schema("a reference has a name, a subject and a version")


def _number(body: JsonObject, key: str, default: int) -> int:
    found = body.get(key)
    if found is None:
        return default
    if not isinstance(found, int) or isinstance(found, bool) or abs(found) >= 2**31:
        raise invalid_schema(f"{key} must be a number")
    return found
