"""Associations: which subject holds the keys or values of a resource, mostly a topic, by other names.

The rules and numbers are those that Confluent publishes: its API description, and the mock registries of its clients
for Java and Go.
"""

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
STRONG, WEAK = "STRONG", "WEAK"
LIFECYCLES: Final = (STRONG, WEAK)
_KINDS: Final = {"topic": ("key", "value")}
"""The kinds of associations that each type of resource has."""
_EXISTS, _TOO_MANY, _INVALID = 40911, 40912, 42212
_SUBJECT_TAKEN, _SUBJECT_STRONG, _NO_SCHEMA, _FROZEN = 40904, 40905, 40907, 40908

ProposalOf: TypeAlias = "Callable[[JsonObject], Proposal]"
"""Reads a schema in a request's body."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a question asks for: the type of the resource, kinds of associations, a lifecycle. Empty is any."""

    resource_type: str = ""
    kinds: tuple[str, ...] = ()
    lifecycle: str = ""

    def takes(self, one: JsonObject) -> bool:
        return (
            self.resource_type in ("", one["resourceType"])
            and (not self.kinds or one["associationType"] in self.kinds)
            and self.lifecycle in ("", one["lifecycle"])
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """An association as a client asks for it, with the schema to register first, if it brings one."""

    place: AssociationId
    subject: str
    resource: JsonObject
    lifecycle: str | None
    frozen: bool | None
    schema: Proposal | None
    normalize: bool

    def is_as(self, held: JsonObject) -> bool:
        """Whether what is held is what is asked for."""
        return (
            held["subject"] == self.subject
            and self.lifecycle in (None, held["lifecycle"])
            and self.frozen in (None, held["frozen"])
        )

    def document(self, held: JsonObject | None) -> JsonObject:
        """The association as it will stand. What an update does not say stays as it is."""
        before = held or {"lifecycle": WEAK, "frozen": False}
        return {
            "subject": self.subject,
            **self.resource,
            "associationType": self.place[2],
            "lifecycle": self.lifecycle or before["lifecycle"],
            "frozen": before["frozen"] if self.frozen is None else self.frozen,
        }


def invalid(reason: str) -> RegistryError:
    return RegistryError(422, _INVALID, f"Invalid association: {reason}")


def _exists(reason: str) -> RegistryError:
    return RegistryError(409, _EXISTS, f"Association already exists: {reason}")


def _frozen(place: AssociationId) -> RegistryError:
    return RegistryError(
        409, _FROZEN, f"The association of the {place[2]} of the resource {place[0]} is frozen."
    )


class Associations:
    """Questions to the state, and writes by the leader."""

    def __init__(self, registry: Registry, extras: Extras) -> None:
        self._registry = registry
        self._extras = extras
        self.state = extras.state

    def of_name(self, namespace: str, name: str, wanted: Filter) -> list[JsonObject]:
        """The associations of a resource by its name; `-` stands for every namespace."""
        return [
            one
            for one in self._filtered(wanted)
            if one["resourceName"] == name and namespace in (ANY_NAMESPACE, one["resourceNamespace"])
        ]

    def of_id(self, resource: str, wanted: Filter) -> list[JsonObject]:
        """The associations of a resource by its id."""
        return [one for one in self._filtered(wanted) if one["resourceId"] == resource]

    def of_subject(self, subject: str, wanted: Filter) -> list[JsonObject]:
        """The associations of a subject."""
        return [one for one in self._filtered(wanted) if one["subject"] == subject]

    def _filtered(self, wanted: Filter) -> list[JsonObject]:
        return [one for _, one in sorted(self.state.associations.items()) if wanted.takes(one)]

    async def write(self, wanted: list[Wanted], *, update: bool, dry_run: bool) -> list[JsonObject]:
        """Register the schemas that come along, then write the associations, and return them."""

        def check() -> list[JsonObject]:
            if len(self.state.associations) + len(wanted) > MAX_ASSOCIATIONS:
                raise RegistryError(
                    409,
                    _TOO_MANY,
                    f"The registry has {MAX_ASSOCIATIONS} associations, and takes no more.",
                )
            for one in wanted:
                held = self.state.associations.get(one.place)
                if one.schema is None and not self._registry.state.versions(one.subject):
                    raise RegistryError(
                        409, _NO_SCHEMA, f"The subject {one.subject} has no schema; send one along."
                    )
                if held is None:
                    self._check_new(one)
                else:
                    self._check_change(one, held, update=update)
                self._check_subject(one, held)
            return [one.document(self.state.associations.get(one.place)) for one in wanted]

        for one in wanted:
            if one.schema is not None:
                await self._registry.ahead(one.subject, one.schema, lenient=True)
        out = check()
        if dry_run:
            return out
        for one in wanted:
            if one.schema is not None:
                await self._registry.register(one.subject, one.schema, normalize=one.normalize)

        def decide() -> list[records.Pair]:
            out[:] = check()
            return [
                (association_key(one.place), records.value(document))
                for one, document in zip(wanted, out, strict=True)
                if self.state.associations.get(one.place) != document
            ]

        await self._extras.write(decide)
        return out

    def _check_new(self, one: Wanted) -> None:
        if not one.frozen:
            return
        if one.lifecycle != STRONG:
            raise invalid("a frozen association has the lifecycle STRONG")
        if one.schema is None:
            raise invalid("a new association that is frozen brings its schema")
        # The schema itself may be there: a request that failed after it was registered is sent again.
        versions = self._registry.state.versions(one.subject)
        if len(versions) > 1 or (versions and not self._holds(one)):
            raise invalid(f"the subject {one.subject} has other schemas, so the association cannot be frozen")

    def _check_change(self, one: Wanted, held: JsonObject, *, update: bool) -> None:
        if one.is_as(held):
            if not update and one.schema is not None and not self._holds(one):
                raise _exists(f"the {one.place[2]} of the resource {one.place[0]} has another schema.")
        elif not update:
            raise _exists(f"the {one.place[2]} of the resource {one.place[0]} has one.")
        elif held["subject"] != one.subject:
            raise invalid(f"its subject is {held['subject']}, and cannot be changed")
        elif one.frozen not in (None, held["frozen"]):
            raise invalid("whether it is frozen cannot be changed")
        elif held["frozen"]:
            raise _frozen(one.place)

    def _check_subject(self, one: Wanted, held: JsonObject | None) -> None:
        """A strong association has its subject alone."""
        others = [
            each
            for place, each in self.state.associations.items()
            if each["subject"] == one.subject and place != one.place
        ]
        if others and one.document(held)["lifecycle"] == STRONG:
            text = (
                f"The subject {one.subject} has another association, and a strong one must be the only one."
            )
            raise RegistryError(409, _SUBJECT_TAKEN, text)
        if any(each["lifecycle"] == STRONG for each in others):
            text = f"The subject {one.subject} has a strong association, which must be the only one."
            raise RegistryError(409, _SUBJECT_STRONG, text)

    def _holds(self, one: Wanted) -> bool:
        """Whether the subject has the schema that comes along."""
        assert one.schema is not None
        try:
            self._registry.found(one.subject, one.schema, normalize=one.normalize)
        except RegistryError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def delete(self, resource: str, wanted: Filter, *, cascade: bool, dry_run: bool) -> None:
        """Delete associations of a resource; with `cascade` the subjects of strong ones too (softly)."""
        subjects: set[str] = set()

        def decide() -> list[records.Pair]:
            gone = self.of_id(resource, wanted)
            if not gone:
                raise RegistryError(404, 404, f"The resource {resource} has no such associations.")
            places = [(resource, str(one["resourceType"]), str(one["associationType"])) for one in gone]
            for place, one in zip(places, gone, strict=True):
                if one["frozen"] and not cascade:
                    raise _frozen(place)
            subjects.clear()
            subjects.update(str(one["subject"]) for one in gone if cascade and one["lifecycle"] == STRONG)
            return [(association_key(place), None) for place in places]

        if dry_run:
            decide()
            return
        await self._extras.write(decide)
        for subject in sorted(subjects):
            if self._registry.state.versions(subject):
                await changes.delete_subject(self._registry, subject, permanent=False)


def check_lifecycle(given: str) -> str:
    if given and given not in LIFECYCLES:
        raise invalid(f"its lifecycle is one of {', '.join(LIFECYCLES)}")
    return given


def read_request(body: JsonObject, proposal_of: ProposalOf) -> list[Wanted]:
    """The associations that a body asks for."""
    resource: JsonObject = {
        key: _text(body, key) for key in ("resourceName", "resourceNamespace", "resourceId")
    }
    kind = str(body.get("resourceType") or "topic")
    if kind not in _KINDS:
        raise invalid(f"resourceType is one of {', '.join(_KINDS)}")
    given = body.get("associations")
    if not isinstance(given, list) or not 1 <= len(given) <= len(_KINDS[kind]):
        raise invalid(f"the body has 1 to {len(_KINDS[kind])} associations")
    wanted = [_wanted(one, {**resource, "resourceType": kind}, proposal_of) for one in given]
    if len({one.place for one in wanted}) < len(wanted):
        raise invalid("two of the associations have the same associationType")
    return wanted


def _wanted(given: Json, resource: JsonObject, proposal_of: ProposalOf) -> Wanted:
    if not isinstance(given, dict):
        raise invalid("each of the associations is an object")
    kind = str(resource["resourceType"])
    association = str(given.get("associationType") or "value")
    if association not in _KINDS[kind]:
        raise invalid(f"associationType of a {kind} is one of {', '.join(_KINDS[kind])}")
    frozen, schema = given.get("frozen"), given.get("schema")
    if frozen is not None and not isinstance(frozen, bool):
        raise invalid("frozen is true or false")
    if schema is not None and not isinstance(schema, dict):
        raise invalid("its schema is an object")
    lifecycle = check_lifecycle(str(given.get("lifecycle") or ""))
    if frozen and lifecycle == WEAK:
        raise invalid("a frozen association has the lifecycle STRONG")
    return Wanted(
        (str(resource["resourceId"]), kind, association),
        names.check(_text(given, "subject")),
        resource,
        lifecycle or None,
        frozen,
        None if schema is None else proposal_of(schema),
        given.get("normalize") is True,
    )


def _text(body: JsonObject, key: str) -> str:
    found = body.get(key)
    if not isinstance(found, str) or not 0 < len(found) <= MAX_SUBJECT_CHARS:
        raise invalid(f"{key} is a text of 1 to {MAX_SUBJECT_CHARS} characters")
    return found
