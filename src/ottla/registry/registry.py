"""What the registry does: register, look up, delete, configure. Reads ask the state; writes go through the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.json_types import Json, JsonObject
from ottla.registry import contracts, names, records
from ottla.registry.ahead import Job, Verdicts, Workbench
from ottla.registry.errors import (
    InvalidSchema,
    RegistryError,
    incompatible,
    invalid_schema,
    invalid_version,
    not_permitted,
    schema_not_found,
    store_failed,
    subject_not_found,
    version_not_found,
)
from ottla.registry.formats import TYPES, Formats, Parsed, Source
from ottla.registry.limits import MAX_REFERENCES, MAX_SCHEMA_BYTES
from ottla.registry.log import SchemasLog
from ottla.registry.state import Content, Context, Reference, Reserved, State, Version

_logger = logging.getLogger(__name__)

LEVELS: Final = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
_MAX_VERSION: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Proposal:
    """A schema as a client sends it."""

    text: str
    type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: JsonObject | None = None
    rule_set: JsonObject | None = None
    id: int = -1
    version: int = 0


class Registry:
    """The operations. `may_write` says whether this instance is the leader right now."""

    def __init__(self, state: State, log: SchemasLog, may_write: Callable[[], bool]) -> None:
        self.state = state
        self.log = log
        self.may_write = may_write
        self.formats = Formats()
        self.workbench = Workbench(self.formats)
        self.default_level = "BACKWARD"

    # -- parsing

    def parse(self, subject: str, proposal: Proposal, *, lenient: bool = False) -> Parsed:
        """The parsed proposal; 42201 where it, or a reference, is invalid."""
        if proposal.type not in TYPES:
            raise invalid_schema(f"there is no schema type {proposal.type[:40]}; use {', '.join(TYPES)}")
        try:
            source = self._source(subject, proposal.type, proposal.text, proposal.references)
            return self.formats.parse(source, lenient=lenient)
        except (InvalidSchema, RecursionError) as error:
            raise invalid_schema(error) from None

    def parse_version(self, one: Version) -> Parsed:
        """A registered version, parsed again: what an older registry accepted is not refused here."""
        return self.parse(one.subject, _held(one.content), lenient=True)

    async def ahead(
        self,
        subject: str,
        proposal: Proposal,
        *,
        lenient: bool = False,
        same: Sequence[Version] = (),
        compared: Sequence[Version] = (),
        level: str = "NONE",
    ) -> Verdicts:
        """Parse and compare what a request is about to ask for, where that takes long in another thread."""
        if proposal.type not in TYPES:
            return Verdicts()
        try:
            source = self._source(subject, proposal.type, proposal.text, proposal.references)
            old = self._sources(same), self._sources(compared)
            job = Job(source, lenient, *old, level.removesuffix("_TRANSITIVE"))
            await self.workbench.run(job)
        except (InvalidSchema, RecursionError) as error:
            raise invalid_schema(error) from None
        return job.verdicts

    def _sources(self, versions: Sequence[Version]) -> list[tuple[Content, Source]]:
        found = []
        for one in versions:
            content = one.content
            try:
                source = self._source(one.subject, content.type, content.text, content.references)
            except InvalidSchema:
                # Who needs this version learns of it there.
                continue
            found.append((content, source))
        return found

    def _unlike(self, proposal: Proposal, versions: Sequence[Version], *, normalize: bool) -> list[Version]:
        """The versions whose meaning has to be known to find a schema among them."""
        if not normalize and proposal.type == "AVRO":
            return []
        return [one for one in versions if one.content.type == proposal.type and not one.content.meaning]

    def _meaning(self, one: Version) -> bytes:
        """Equal for versions whose texts differ in spelling only; no other is equal to one that cannot be parsed."""
        if not one.content.meaning:
            try:
                one.content.meaning = self.parse_version(one).meaning()
            except RegistryError:
                return b""
        return one.content.meaning

    def _source(self, subject: str, kind: str, text: str, references: Sequence[Reference]) -> Source:
        budget = [MAX_REFERENCES, MAX_SCHEMA_BYTES]
        return self._resolve(subject, kind, text, references, (), budget, {})

    def _resolve(
        self,
        subject: str,
        kind: str,
        text: str,
        references: Sequence[Reference],
        path: tuple[tuple[str, int], ...],
        budget: list[int],
        done: dict[tuple[str, int], Source],
    ) -> Source:
        budget[1] -= len(text)
        if budget[1] < 0:
            raise InvalidSchema(f"with its references it has more than {MAX_SCHEMA_BYTES} characters")
        found = []
        for one in references:
            place = (names.within(one.subject, subject), one.version)
            if place in path:
                raise InvalidSchema(f"the references go in a circle at {one.subject} version {one.version}")
            source = done.get(place)
            if source is None:
                budget[0] -= 1
                if budget[0] < 0:
                    raise InvalidSchema(f"it reaches more than {MAX_REFERENCES} schemas by references")
                version = self._referenced(*place)
                content = version.content
                source = self._resolve(
                    place[0], content.type, content.text, content.references, (*path, place), budget, done
                )
                done[place] = source
            found.append((one.name, source))
        return Source(kind, text, tuple(found))

    def _referenced(self, subject: str, version: int) -> Version:
        versions = self.state.versions(subject, deleted=version != -1)
        if version == -1 and versions:
            return versions[-1]
        for one in versions:
            if one.version == version:
                return one
        raise InvalidSchema(f"the referenced schema {subject} version {version} does not exist")

    # -- questions

    async def find(
        self, subject: str, proposal: Proposal, *, normalize: bool, deleted: bool = False
    ) -> Version:
        """The version of a subject that is this schema; 40401 or 40403 if there is none."""
        versions = self.state.versions(subject, deleted=deleted)
        if not versions:
            raise subject_not_found(subject)
        await self.ahead(
            subject, proposal, lenient=True, same=self._unlike(proposal, versions, normalize=normalize)
        )
        return self.found(subject, proposal, normalize=normalize, deleted=deleted)

    def found(self, subject: str, proposal: Proposal, *, normalize: bool, deleted: bool = False) -> Version:
        """The same at once, on the event loop."""
        versions = self.state.versions(subject, deleted=deleted)
        if not versions:
            raise subject_not_found(subject)
        parsed = self.parse(subject, proposal, lenient=True)
        found = self._match(versions, proposal, parsed, normalize=normalize)
        if found is None:
            raise schema_not_found()
        return found

    def _match(
        self, versions: Sequence[Version], proposal: Proposal, parsed: Parsed, *, normalize: bool
    ) -> Version | None:
        """The newest version with the same content. Without metadata or rules a client means any."""
        meaning = parsed.meaning() if normalize or proposal.type != "AVRO" else None
        for one in reversed(versions):
            content = one.content
            if content.type != proposal.type:
                continue
            if not self._same_contract(proposal, one):
                continue
            if tuple(content.references) != tuple(proposal.references):
                continue
            if content.text in (proposal.text, parsed.text):
                return one
            # Texts of Protobuf that differ in spaces and comments mean the same, and so do JSON objects whose keys
            # stand in another order.
            if meaning is not None and self._meaning(one) == meaning:
                return one
        return None

    def _same_contract(self, proposal: Proposal, one: Version) -> bool:
        """Whether metadata and rules, as they were sent or as settings complete them, are those of a version."""
        if proposal.metadata is None and proposal.rule_set is None:
            return True
        content = one.content
        metadata, rule_set = self._contract(one.subject, proposal, one)
        return (
            proposal.metadata is None
            or contracts.same(proposal.metadata, content.metadata)
            or contracts.same(metadata, content.metadata)
        ) and (
            proposal.rule_set is None
            or contracts.same(proposal.rule_set, content.rule_set)
            or contracts.same(rule_set, content.rule_set)
        )

    def _contract(
        self, subject: str, proposal: Proposal, before: Version | None
    ) -> tuple[JsonObject | None, JsonObject | None]:
        """Metadata and rules of a new schema: the defaults, then its own or the last version's, then the overrides."""

        def setting(name: str) -> Json:
            return self.state.setting(self.state.configs, subject, name)

        metadata, rule_set = proposal.metadata, proposal.rule_set
        if before is not None:
            metadata = before.content.metadata if metadata is None else metadata
            rule_set = before.content.rule_set if rule_set is None else rule_set
        return (
            contracts.merged_metadata([setting("defaultMetadata"), metadata, setting("overrideMetadata")]),
            contracts.merged_rule_set([setting("defaultRuleSet"), rule_set, setting("overrideRuleSet")]),
        )

    def _in_group(
        self, subject: str, metadata: JsonObject | None, versions: Sequence[Version]
    ) -> Sequence[Version]:
        """The versions of the same compatibility group; all where no group is configured."""
        group = self.state.setting(self.state.configs, subject, "compatibilityGroup")
        if not group:
            return versions
        own = contracts.group_of(metadata, group)
        return [one for one in versions if contracts.group_of(one.content.metadata, group) == own]

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """A version by its number; -1 is the latest. 40401 or 40402 if there is none."""
        versions = self.state.versions(subject, deleted=deleted)
        if not versions:
            raise subject_not_found(subject)
        if number == -1:
            return versions[-1]
        for one in versions:
            if one.version == number:
                return one
        raise version_not_found(number)

    def level(self, subject: str | None) -> str:
        found = self.state.setting(self.state.configs, subject, "compatibilityLevel")
        return str(found or self.default_level)

    def mode(self, subject: str | None) -> str:
        glob = self.state.modes.get(None, {}).get("mode")
        if glob == "READONLY_OVERRIDE":
            return "READONLY_OVERRIDE"
        return str(self.state.setting(self.state.modes, subject, "mode") or "READWRITE")

    async def check_compatibility(
        self, subject: str, proposal: Proposal, version: int | None, *, normalize: bool
    ) -> list[str]:
        """The incompatibilities with one version, or by the subject's level with those that it names for None."""
        versions: Sequence[Version]
        if version is None:
            versions = self._comparable(subject, proposal)
            level = self.level(subject)
        else:
            await self.ahead(subject, proposal)
            versions = [self.version(subject, version)]
            level = self.level(subject).removesuffix("_TRANSITIVE")
        verdicts = await self.ahead(subject, proposal, compared=_reached(level, versions), level=level)
        return self._compared(level, self.parse(subject, proposal), versions, verdicts)

    def _comparable(self, subject: str, proposal: Proposal) -> Sequence[Version]:
        """The versions that a new schema may be compared with."""
        every = self.state.versions(subject)
        metadata, _ = self._contract(subject, proposal, every[-1] if every else None)
        return self._in_group(subject, metadata, every)

    def _compared(
        self, level: str, parsed: Parsed, versions: Sequence[Version], verdicts: Verdicts
    ) -> list[str]:
        """The incompatibilities of a new schema with versions, oldest first, by a level."""
        plain = level.removesuffix("_TRANSITIVE")
        for one in _reached(level, versions):
            found = verdicts.of(one.content, plain)
            if found is None:
                try:
                    found = self.formats.compare_by(plain, parsed, self.parse_version(one), verdicts.budget)
                except (InvalidSchema, RecursionError) as error:
                    raise invalid_schema(error) from None
            if found:
                return [*found, f"{{oldSchemaVersion: {one.version}}}", f"{{compatibility: '{level}'}}"]
        return []

    # -- registration

    async def existing(self, subject: str, proposal: Proposal, *, normalize: bool) -> Version | None:
        """The version that makes a registration unnecessary."""
        unlike = self._unlike(proposal, self.state.versions(subject), normalize=normalize)
        await self.ahead(subject, proposal, same=unlike)
        return self._existing(subject, proposal, self.parse(subject, proposal), normalize=normalize)

    def _existing(
        self, subject: str, proposal: Proposal, parsed: Parsed, *, normalize: bool
    ) -> Version | None:
        found = self._match(self.state.versions(subject), proposal, parsed, normalize=normalize)
        if found is None or proposal.id in (-1, found.id):
            return found
        return None

    def normalizes(self, subject: str) -> bool:
        return bool(self.state.setting(self.state.configs, subject, "normalize"))

    async def register(self, subject: str, proposal: Proposal, *, normalize: bool) -> Version:
        """Register a schema under a subject, and return its version, which may have been there before."""
        normalize = normalize or self.normalizes(subject)
        level, versions = self.level(subject), self._comparable(subject, proposal)
        verdicts = await self.ahead(
            subject,
            proposal,
            same=self._unlike(proposal, self.state.versions(subject), normalize=normalize),
            compared=_reached(level, versions) if proposal.id < 0 else (),
            level=level,
        )
        parsed = self.parse(subject, proposal)
        decided: list[Version] = []

        def decide(reserved: Reserved) -> list[records.Pair]:
            found = self._existing(subject, proposal, parsed, normalize=normalize)
            if found is not None:
                decided.append(found)
                return []
            self._check_mode(subject, proposal)
            one = self._new_version(subject, proposal, parsed, reserved, verdicts, normalize=normalize)
            decided.append(one)
            return [(records.schema_key(subject, one.version), one.value())]

        # An import says which id it takes; nobody else takes one meanwhile.
        await self.log.change(decide, self.may_write, subject if proposal.id < 0 else None)
        one = decided[-1]
        held = self.state.subjects.get(subject, {}).get(one.version, one)
        if held.id != one.id:
            raise store_failed(
                f"another registry wrote version {one.version} of {subject} at the same time; try again"
            )
        return held

    def _check_mode(self, subject: str, proposal: Proposal) -> None:
        mode = self.mode(subject)
        if mode.startswith("READONLY"):
            raise not_permitted(f"Subject {subject} is in read-only mode")
        if proposal.id >= 0 and mode != "IMPORT":
            raise not_permitted(f"Subject {subject} is not in import mode")
        if proposal.id < 0 and mode == "IMPORT":
            raise not_permitted(f"Subject {subject} is in import mode, which needs an id with each schema")

    def _new_version(
        self,
        subject: str,
        proposal: Proposal,
        parsed: Parsed,
        reserved: Reserved,
        verdicts: Verdicts,
        *,
        normalize: bool,
    ) -> Version:
        every = self.state.versions(subject, deleted=True)
        importing = proposal.id >= 0
        live: Sequence[Version] = [one for one in every if not one.deleted]
        metadata, rule_set = proposal.metadata, proposal.rule_set
        if not importing:
            metadata, rule_set = self._contract(subject, proposal, live[-1] if live else None)
            live = self._in_group(subject, metadata, live)
            found = self._compared(self.level(subject), parsed, live, verdicts)
            if found:
                raise incompatible(subject, found)
        text = parsed.normalized if normalize else parsed.text
        if len(text.encode()) > MAX_SCHEMA_BYTES:
            raise RegistryError(422, 42209, f"The schema is larger than {MAX_SCHEMA_BYTES} bytes")
        content = Content(proposal.type, text, proposal.references, metadata, rule_set)
        number = every[-1].version + 1 if every else 1
        if proposal.version > 0 and importing:
            number = proposal.version
        elif 0 < proposal.version != number:
            raise invalid_schema(f"version {proposal.version} is not the next version, which is {number}")
        schema_id = self._id_for(subject, content, proposal.id, reserved)
        return Version(subject, number, schema_id, content, guid=content.guid())

    def _id_for(self, subject: str, content: Content, wanted: int, reserved: Reserved) -> int:
        name = names.context_of(subject)
        context = self.state.contexts.get(name, Context())
        fingerprint = content.fingerprint()
        if wanted < 0:
            known = context.ids.get(fingerprint, reserved.known(name, fingerprint))
            if known is None:
                known = max(context.max_id, reserved.max_ids.get(name, 0)) + 1
            reserved.take(name, fingerprint, known)
            return known
        held = context.by_id.get(wanted)
        if held is not None and held.fingerprint() != fingerprint:
            raise RegistryError(422, 42207, f"Overwrite new schema with id {wanted} is not permitted.")
        return wanted

    async def formatted(self, subject: str, content: Content, wanted: str) -> str:
        """A schema's text in another form: `serialized` (Protobuf) or `resolved` (with its references)."""
        proposal = _held(content)
        await self.ahead(subject, proposal, lenient=True)
        return self.formats.formatted(self.parse(subject, proposal, lenient=True), wanted)

    async def write(self, decide: Callable[[], Sequence[records.Pair]]) -> None:
        """Write what a decision on the current state says."""
        await self.log.change(lambda _: decide(), self.may_write)

    async def take_over(self) -> None:
        """Write a NOOP and read up to it: after that the state has every record of earlier leaders, and the last."""
        await self.log.take_over(self.may_write)


def _held(content: Content) -> Proposal:
    """A registered schema as a client would send it."""
    return Proposal(content.text, content.type, content.references)


def _reached(level: str, versions: Sequence[Version]) -> list[Version]:
    """The versions that a level compares with, newest first."""
    if level == "NONE":
        return []
    return list(reversed(versions)) if level.endswith("_TRANSITIVE") else list(versions[-1:])


def parse_version_number(text: str) -> int:
    """A version in a URL: a number from 1, or -1 for `latest`."""
    if text in ("latest", "-1"):
        return -1
    if text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= _MAX_VERSION:
        return int(text)
    raise invalid_version(text[:40])
