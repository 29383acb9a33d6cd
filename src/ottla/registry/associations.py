"""Associations: which subject holds the keys or values of a resource, mostly a topic, by other names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from ottla.json_types import Json, JsonObject
from ottla.registry import changes, names, records
from ottla.registry.errors import RegistryError
from ottla.registry.extras import AssociationId, Extras, association_key
from ottla.registry.limits import MAX_ASSOCIATIONS, MAX_SUBJECT_CHARS
from ottla.registry.registry import Proposal, Registry

ANY_NAMESPACE: Final = "-"
LIFECYCLES: Final = ("STRONG", "WEAK")
_MAX_IN_REQUEST: Final = 20

ProposalOf: TypeAlias = "Callable[[JsonObject], Proposal]"
"""Reads a schema in a request's body."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An association as a client asks for it, with the schema to register first, if it brings one."""

    place: AssociationId
    document: JsonObject
    schema: Proposal | None
    normalize: bool


def invalid(reason: str) -> RegistryError:
    return RegistryError(422, 422, f"Invalid association: {reason}")


class Associations:
    """Questions to the state, and writes by the leader."""

    def __init__(self, registry: Registry, extras: Extras) -> None:
        self._registry = registry
        self._extras = extras
        self.state = extras.state

    def of_name(self, namespace: str, name: str, kind: str, associations: list[str]) -> list[JsonObject]:
        """The associations of a resource by its name; `-` stands for every namespace."""
        return [
            one
            for one in self._filtered(kind, associations)
            if one["resourceName"] == name and namespace in (ANY_NAMESPACE, one["resourceNamespace"])
        ]

    def of_id(self, resource: str, kind: str, associations: list[str]) -> list[JsonObject]:
        """The associations of a resource by its id."""
        return [one for one in self._filtered(kind, associations) if one["resourceId"] == resource]

    def of_subject(self, subject: str, kind: str, associations: list[str]) -> list[JsonObject]:
        """The associations of a subject."""
        return [one for one in self._filtered(kind, associations) if one["subject"] == subject]

    def _filtered(self, kind: str, associations: list[str]) -> list[JsonObject]:
        return [
            one
            for (_, its_kind, association), one in sorted(self.state.associations.items())
            if kind in ("", its_kind) and (not associations or association in associations)
        ]

    async def create(self, wanted: list[Wanted], *, replace: bool) -> None:
        """Register the schemas that come along, then write the associations."""

        def check() -> None:
            if len(self.state.associations) + len(wanted) > MAX_ASSOCIATIONS:
                raise invalid(f"the registry has {MAX_ASSOCIATIONS} associations, and takes no more")
            for one in wanted:
                held = self.state.associations.get(one.place)
                if held is None or held == one.document:
                    continue
                if not replace or held.get("frozen"):
                    raise RegistryError(
                        409,
                        409,
                        f"The {one.place[2]} of the resource {one.place[0]} is associated with another subject, or is"
                        " frozen.",
                    )

        check()
        for one in wanted:
            subject = str(one.document["subject"])
            if one.schema is not None:
                await self._registry.register(subject, one.schema, normalize=one.normalize)
            elif not self._registry.state.versions(subject):
                raise invalid(f"the subject {subject} has no schema; send one along")

        def decide() -> list[records.Pair]:
            check()
            return [
                (association_key(one.place), records.value(one.document))
                for one in wanted
                if self.state.associations.get(one.place) != one.document
            ]

        await self._extras.write(decide)

    async def delete(self, resource: str, kind: str, associations: list[str], *, cascade: bool) -> None:
        """Delete associations of a resource; with `cascade` the subjects of strong ones too (softly)."""
        subjects: list[str] = []

        def decide() -> list[records.Pair]:
            gone = self.of_id(resource, kind, associations)
            subjects[:] = [str(one["subject"]) for one in gone if one["lifecycle"] == "STRONG"]
            return [
                (association_key((resource, str(one["resourceType"]), str(one["associationType"]))), None)
                for one in gone
            ]

        await self._extras.write(decide)
        for subject in sorted(set(subjects)) if cascade else ():
            if self._registry.state.versions(subject):
                await changes.delete_subject(self._registry, subject, permanent=False)


def read_request(body: JsonObject, proposal_of: ProposalOf) -> list[Wanted]:
    """The associations that a body asks for."""
    resource = {key: _text(body, key) for key in ("resourceName", "resourceNamespace", "resourceId")}
    kind = _text({"resourceType": "topic", **body}, "resourceType")
    given = body.get("associations")
    if not isinstance(given, list) or not 1 <= len(given) <= _MAX_IN_REQUEST:
        raise invalid(f"the body has 1 to {_MAX_IN_REQUEST} associations")
    return [_wanted(one, resource, kind, proposal_of) for one in given]


def _wanted(given: Json, resource: dict[str, str], kind: str, proposal_of: ProposalOf) -> Wanted:
    if not isinstance(given, dict):
        raise invalid("each of the associations is an object")
    association = _text({"associationType": "value", **given}, "associationType")
    lifecycle = given.get("lifecycle") or "WEAK"
    frozen = given.get("frozen") or False
    if lifecycle not in LIFECYCLES or not isinstance(frozen, bool):
        raise invalid(f"its lifecycle is one of {', '.join(LIFECYCLES)}, and frozen is true or false")
    schema = given.get("schema")
    if schema is not None and not isinstance(schema, dict):
        raise invalid("its schema is an object")
    document: JsonObject = {
        "subject": names.check(_text(given, "subject")),
        **resource,
        "resourceType": kind,
        "associationType": association,
        "lifecycle": lifecycle,
        "frozen": frozen,
    }
    return Wanted(
        (resource["resourceId"], kind, association),
        document,
        None if schema is None else proposal_of(schema),
        given.get("normalize") is True,
    )


def _text(body: JsonObject, key: str) -> str:
    found = body.get(key)
    if not isinstance(found, str) or not 0 < len(found) <= MAX_SUBJECT_CHARS:
        raise invalid(f"{key} is a text of 1 to {MAX_SUBJECT_CHARS} characters")
    return found
