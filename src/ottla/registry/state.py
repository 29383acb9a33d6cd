"""The registry's state: a fold over the records of `_schemas`. Nothing else changes it.

Every instance folds the same records in the same order, and so comes to the same state.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ottla.json_types import Json, JsonObject, as_int, as_list, as_object, as_text
from ottla.registry import names, records
from ottla.registry.fold import Fold, put

_logger = logging.getLogger(__name__)

_ORDER: Final = (
    "subject",
    "version",
    "id",
    "schemaType",
    "references",
    "metadata",
    "ruleSet",
    "schema",
    "deleted",
)
"""The fields of a SCHEMA value, in the order in which Confluent's registry writes them."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses under a name."""

    name: str
    subject: str
    version: int

    def document(self) -> JsonObject:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(slots=True, eq=False)
class Content:
    """A schema apart from its subjects: what an id stands for."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: JsonObject | None = None
    rule_set: JsonObject | None = None
    meaning: bytes = b""
    """A digest of the normalized text, once it is known."""

    def fingerprint(self) -> bytes:
        """Equal for equal content. Half of it, as a UUID, is the schema's guid."""
        rest = records.value(
            {
                "type": self.type,
                "references": [one.document() for one in self.references],
                "metadata": self.metadata,
                "ruleSet": self.rule_set,
            }
        )
        return hashlib.sha256(self.text.encode() + b"\0" + rest).digest()

    def guid(self) -> str:
        return str(uuid.UUID(bytes=self.fingerprint()[:16], version=5))


@dataclass(slots=True, eq=False)
class Version:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    content: Content
    deleted: bool = False
    guid: str = ""
    raw: JsonObject | None = None
    """The record's fields where they are not the known ones in their order: they are given back as they were."""

    def value(self, *, deleted: bool | None = None) -> bytes:
        """The value of this version's record."""
        gone = self.deleted if deleted is None else deleted
        if self.raw is not None:
            return records.value({**self.raw, "deleted": gone})
        content = self.content
        fields: JsonObject = {"subject": self.subject, "version": self.version, "id": self.id}
        if content.type != "AVRO":
            fields["schemaType"] = content.type
        if content.references:
            fields["references"] = [one.document() for one in content.references]
        if content.metadata is not None:
            fields["metadata"] = content.metadata
        if content.rule_set is not None:
            fields["ruleSet"] = content.rule_set
        fields["schema"] = content.text
        fields["deleted"] = gone
        return records.value(fields)


@dataclass(slots=True)
class Context:
    """The ids of one context."""

    by_id: dict[int, Content] = field(default_factory=dict)
    ids: dict[bytes, int] = field(default_factory=dict)
    users: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    """By id: subjects and versions that have it."""
    guids: dict[str, int] = field(default_factory=dict)
    max_id: int = 0


@dataclass(slots=True)
class Reserved:
    """The ids of registrations that are decided and not yet in the state: those of one batch."""

    ids: dict[tuple[str, bytes], int] = field(default_factory=dict)
    """By context and fingerprint."""
    max_ids: dict[str, int] = field(default_factory=dict)

    def known(self, context: str, fingerprint: bytes) -> int | None:
        return self.ids.get((context, fingerprint))

    def take(self, context: str, fingerprint: bytes, schema_id: int) -> None:
        self.ids[context, fingerprint] = schema_id
        self.max_ids[context] = max(self.max_ids.get(context, 0), schema_id)


Settings: TypeAlias = dict[str | None, JsonObject]
"""Settings by subject or context; None is the global scope."""


class State(Fold):
    """All subjects, ids, settings and modes."""

    holds = "schemas"

    def __init__(self) -> None:
        super().__init__()
        self.subjects: dict[str, dict[int, Version]] = {}
        self.contexts: dict[str, Context] = {names.DEFAULT_CONTEXT: Context()}
        self.configs: Settings = {}
        self.modes: Settings = {}
        self.referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}

    # -- the fold

    def _fold(self, key: JsonObject, value: JsonObject | None) -> None:
        match key["keytype"]:
            case "SCHEMA":
                self._schema(as_text(key["subject"]), as_int(key["version"]), value)
            case "CONFIG":
                put(self.configs, _scope(key), value)
            case "MODE":
                put(self.modes, _scope(key), value)
            case "DELETE_SUBJECT" if value is not None:
                last = as_int(value["version"])
                for one in self.subjects.get(as_text(value["subject"]), {}).values():
                    if one.version <= last:
                        one.deleted = True
            case "CLEAR_SUBJECT" if value is not None:
                subject = as_text(value["subject"])
                for one in [each for each in self.subjects.get(subject, {}).values() if each.deleted]:
                    self._remove(one)

    def _schema(self, subject: str, number: int, value: JsonObject | None) -> None:
        known = self.subjects.get(subject, {}).get(number)
        if value is None:
            if known is not None:
                self._remove(known)
            return
        context = self.contexts.setdefault(names.context_of(subject), Context())
        content = _content(value)
        schema_id = as_int(value["id"])
        if known is not None:
            self._remove(known)
        fingerprint = content.fingerprint()
        held = context.by_id.get(schema_id)
        if held is not None:
            if held.fingerprint() != fingerprint:
                _logger.warning("The schema id %d of %s has two contents in _schemas", schema_id, subject)
            else:
                content = held
        context.by_id[schema_id] = content
        context.ids.setdefault(fingerprint, schema_id)
        guid = str(value.get("guid") or content.guid())
        context.guids[guid] = schema_id
        context.users.setdefault(schema_id, set()).add((subject, number))
        context.max_id = max(context.max_id, schema_id)
        in_order = [name for name in _ORDER if name in value] == list(value)
        one = Version(
            subject, number, schema_id, content, bool(value.get("deleted")), guid, None if in_order else value
        )
        self.subjects.setdefault(subject, {})[number] = one
        for reference in content.references:
            place = (names.within(reference.subject, subject), reference.version)
            self.referrers.setdefault(place, set()).add((subject, number))

    def _remove(self, one: Version) -> None:
        versions = self.subjects[one.subject]
        del versions[one.version]
        if not versions:
            del self.subjects[one.subject]
        context = self.contexts[names.context_of(one.subject)]
        users = context.users.get(one.id, set())
        users.discard((one.subject, one.version))
        if not users:
            context.users.pop(one.id, None)
            content = context.by_id.pop(one.id, None)
            context.guids.pop(one.guid, None)
            if content is not None and context.ids.get(content.fingerprint()) == one.id:
                del context.ids[content.fingerprint()]
        for reference in one.content.references:
            place = (names.within(reference.subject, one.subject), reference.version)
            users = self.referrers.get(place, set())
            users.discard((one.subject, one.version))
            if not users:
                self.referrers.pop(place, None)

    # -- questions

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject in order."""
        found = self.subjects.get(subject, {})
        return [found[number] for number in sorted(found) if deleted or not found[number].deleted]

    def references_to(self, subject: str, version: int) -> list[Version]:
        """The versions, deleted ones apart, that reference a version."""
        places = sorted(self.referrers.get((subject, version), ()))
        found = [self.subjects[name][number] for name, number in places]
        return [one for one in found if not one.deleted]

    def setting(self, table: Settings, subject: str | None, name: str) -> Json:
        """A setting in force: of the subject, else of its context, else the global one."""
        for scope in self.scopes(subject):
            found = table.get(scope, {}).get(name)
            if found is not None:
                return found
        return None

    @staticmethod
    def scopes(subject: str | None) -> Iterator[str | None]:
        if subject is not None:
            yield subject
            context = names.context_of(subject)
            if context != names.DEFAULT_CONTEXT:
                yield f":{context}:"
        yield None


def _scope(key: JsonObject) -> str | None:
    found = key.get("subject")
    return None if found is None else as_text(found, "the subject")


def _content(value: JsonObject) -> Content:
    references = []
    for each in as_list(value.get("references") or [], "references"):
        one = as_object(each, "a reference")
        references.append(Reference(as_text(one["name"]), as_text(one["subject"]), as_int(one["version"])))
    metadata, rule_set = value.get("metadata"), value.get("ruleSet")
    return Content(
        as_text(value.get("schemaType") or "AVRO", "schemaType"),
        as_text(value["schema"], "schema"),
        tuple(references),
        None if metadata is None else as_object(metadata, "metadata"),
        None if rule_set is None else as_object(rule_set, "ruleSet"),
    )
