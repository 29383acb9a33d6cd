"""The routes of the registry: what each of Confluent's paths asks of the registry, and the shape of its answer."""

from __future__ import annotations

from ottla import __version__
from ottla.json_types import Json, JsonObject
from ottla.registry import changes, names
from ottla.registry.errors import (
    RegistryError,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from ottla.registry.extras import Extras
from ottla.registry.formats import TYPES
from ottla.registry.protobuf.imports import is_text
from ottla.registry.registry import Proposal, Registry, parse_version_number
from ottla.registry.rest.bodies import page, proposal
from ottla.registry.rest.extra_routes import ExtraApi
from ottla.registry.rest.http import Answer, Handler, Request, Routes
from ottla.registry.state import Content, Version

_NOT_SERVED = (
    ("POST", "/subjects/{}/versions/{}/tags", "tags of schemas"),
    ("POST", "/associations:batch", "associations in batches"),
    ("POST", "/associations:batchGet", "associations in batches"),
    ("POST", "/associations:batchMutate", "associations in batches"),
    ("DELETE", "/contexts/{}", "the deletion of contexts: one without subjects may be left as it is"),
    ("GET", "/v1/metadata/deployment", "facts about its deployment"),
)
"""Routes that clients of Confluent's registry know, and what they are for."""


class Api:
    """The handlers. Those that write run on the leader only; `app.py` forwards them elsewhere."""

    def __init__(self, registry: Registry, cluster_id: str, extras: Extras) -> None:
        self.registry = registry
        self.cluster_id = cluster_id
        self.routes = routes = Routes()
        self.writes: set[Handler] = set()
        for method, pattern, handler in (
            ("GET", "/", self.root),
            ("GET", "/subjects", self.subjects),
            ("POST", "/subjects/{}", self.lookup),
            ("GET", "/subjects/{}/versions", self.versions),
            ("GET", "/subjects/{}/versions/{}", self.version),
            ("GET", "/subjects/{}/versions/{}/schema", self.version_schema),
            ("GET", "/subjects/{}/versions/{}/referencedby", self.referenced_by),
            ("GET", "/subjects/{}/metadata", self.by_metadata),
            ("GET", "/schemas", self.schemas),
            ("GET", "/schemas/types", self.types),
            ("GET", "/schemas/ids/{}", self.by_id),
            ("GET", "/schemas/ids/{}/schema", self.text_by_id),
            ("GET", "/schemas/ids/{}/subjects", self.subjects_by_id),
            ("GET", "/schemas/ids/{}/versions", self.versions_by_id),
            ("GET", "/schemas/guids/{}", self.by_guid),
            ("GET", "/schemas/guids/{}/ids", self.ids_by_guid),
            ("POST", "/compatibility/subjects/{}/versions", self.compatibility),
            ("POST", "/compatibility/subjects/{}/versions/{}", self.compatibility),
            ("GET", "/config", self.config),
            ("GET", "/config/{}", self.config),
            ("GET", "/mode", self.mode),
            ("GET", "/mode/{}", self.mode),
            ("GET", "/contexts", self.contexts),
            ("GET", "/v1/metadata/id", self.metadata_id),
            ("GET", "/v1/metadata/version", self.metadata_version),
        ):
            routes.add(method, pattern, handler)
        for method, pattern, handler in (
            ("POST", "/subjects/{}/versions", self.register),
            ("DELETE", "/subjects/{}", self.delete_subject),
            ("DELETE", "/subjects/{}/versions/{}", self.delete_version),
            ("PUT", "/config", self.set_config),
            ("PUT", "/config/{}", self.set_config),
            ("DELETE", "/config", self.delete_config),
            ("DELETE", "/config/{}", self.delete_config),
            ("PUT", "/mode", self.set_mode),
            ("PUT", "/mode/{}", self.set_mode),
            ("DELETE", "/mode", self.delete_mode),
            ("DELETE", "/mode/{}", self.delete_mode),
        ):
            routes.add(method, pattern, handler)
            self.writes.add(handler)
        self.extra = ExtraApi(registry, extras, routes, self.writes)
        for method, pattern, what in _NOT_SERVED:
            routes.add(method, pattern, _not_served(what))

    def changes(self) -> int:
        """Grows with every change, so that kept answers know when they are stale."""
        return self.registry.state.changes + self.extra.extras.state.changes

    def offsets(self) -> list[int]:
        """How far this registry has read its topics: the schemas, and what stands beside them."""
        return [self.registry.state.next_offset, self.extra.extras.state.next_offset]

    async def read_up_to(self, offsets: list[int]) -> None:
        """Wait until this registry has read as far as the leader had, so that a client reads what it wrote here."""
        for log, offset in zip((self.registry.log, self.extra.extras.log), offsets, strict=False):
            if log is not None:
                await log.reach(offset)

    # -- names

    def _subject(self, request: Request, given: str) -> str:
        if request.context != names.DEFAULT_CONTEXT and not given.startswith(":."):
            given = names.qualify(request.context, given)
        return names.check(given)

    def _scope(self, request: Request, words: tuple[str, ...]) -> str | None:
        if not words:
            context = request.context
            return None if context == names.DEFAULT_CONTEXT else f":{context}:"
        return names.check_scope(
            words[0] if words[0].startswith(":.") else names.qualify(request.context, words[0])
        )

    # -- subjects

    async def root(self, request: Request, words: tuple[str, ...]) -> Json:
        return {}

    async def subjects(self, request: Request, words: tuple[str, ...]) -> Json:
        prefix = request.query.get("subjectPrefix", request.query.get("subject", ""))
        state = self.registry.state
        only = request.flag("deletedOnly") or request.flag("deleted_only")
        found = []
        for name in sorted(state.subjects):
            if request.context != names.DEFAULT_CONTEXT and names.context_of(name) != request.context:
                continue
            if prefix and prefix != ":*:" and not name.startswith(prefix):
                continue
            versions = state.subjects[name].values()
            live = any(not one.deleted for one in versions)
            if (not live) if only else (live or request.flag("deleted")):
                found.append(name)
        return page(request, found)

    async def lookup(self, request: Request, words: tuple[str, ...]) -> Json:
        subject = self._subject(request, words[0])
        wanted = proposal(request.document())
        one = await self.registry.find(
            subject,
            wanted,
            normalize=request.flag("normalize") or self.registry.normalizes(subject),
            deleted=request.flag("deleted"),
        )
        return await self._as_sent(await self._document(one, request), one, wanted, request)

    async def versions(self, request: Request, words: tuple[str, ...]) -> Json:
        subject = self._subject(request, words[0])
        only = request.flag("deletedOnly") or request.flag("deleted_only")
        found = self.registry.state.versions(subject, deleted=only or request.flag("deleted"))
        numbers = [one.version for one in found if one.deleted or not only]
        if not numbers:
            raise subject_not_found(subject)
        return page(request, numbers)

    def _version(self, request: Request, words: tuple[str, ...]) -> Version:
        subject = self._subject(request, words[0])
        number = parse_version_number(words[1])
        return self.registry.version(subject, number, deleted=request.flag("deleted"))

    async def version(self, request: Request, words: tuple[str, ...]) -> Json:
        return await self._document(self._version(request, words), request)

    async def version_schema(self, request: Request, words: tuple[str, ...]) -> Answer:
        one = self._version(request, words)
        return _text_answer(await self._shown(one.subject, one.content, request))

    async def referenced_by(self, request: Request, words: tuple[str, ...]) -> Json:
        one = self._version(request, words)
        found = self.registry.state.references_to(one.subject, one.version)
        return page(request, sorted({each.id for each in found}))

    async def by_metadata(self, request: Request, words: tuple[str, ...]) -> Json:
        subject = self._subject(request, words[0])
        keys = [value for name, value in request.pairs if name == "key"]
        values = [value for name, value in request.pairs if name == "value"]
        wanted = dict(zip(keys, values, strict=False))
        versions = self.registry.state.versions(subject, deleted=request.flag("deleted"))
        if not versions:
            raise subject_not_found(subject)
        for one in reversed(versions):
            properties = (one.content.metadata or {}).get("properties")
            if isinstance(properties, dict) and all(
                properties.get(key) == value for key, value in wanted.items()
            ):
                return await self._document(one, request)
        raise schema_not_found()

    # -- schemas

    async def schemas(self, request: Request, words: tuple[str, ...]) -> Json:
        prefix = request.query.get("subjectPrefix", "")
        latest = request.flag("latestOnly")
        found = []
        for name in sorted(self.registry.state.subjects):
            if prefix and prefix != ":*:" and not name.startswith(prefix):
                continue
            if request.context != names.DEFAULT_CONTEXT and names.context_of(name) != request.context:
                continue
            versions = self.registry.state.versions(name, deleted=request.flag("deleted"))
            found += versions[-1:] if latest else versions
        return [await self._document(one, request) for one in page(request, found)]

    async def types(self, request: Request, words: tuple[str, ...]) -> Json:
        return list(TYPES)

    def _by_id(self, request: Request, text: str) -> tuple[str, int, Content]:
        if not (text.isascii() and text.isdigit()):
            raise RegistryError(404, 404, "HTTP 404 Not Found")
        given = request.query.get("subject", "")
        context = names.context_of(given) if given.startswith(":.") else request.context
        held = self.registry.state.contexts.get(context)
        number = int(text[:12])
        content = held.by_id.get(number) if held else None
        if content is None and given and not given.startswith(":."):
            for name, each in self.registry.state.contexts.items():
                users = each.users.get(number, ())
                if any(names.split(subject)[1] == given for subject, _ in users):
                    return name, number, each.by_id[number]
        if content is None:
            raise schema_not_found(number)
        return context, number, content

    async def by_id(self, request: Request, words: tuple[str, ...]) -> Json:
        context, number, content = self._by_id(request, words[0])
        out = _content_document(content, await self._shown(names.qualify(context, "-"), content, request))
        out["guid"] = content.guid()
        if request.flag("fetchMaxId"):
            out["maxId"] = self.registry.state.contexts[context].max_id
        users = sorted(self.registry.state.contexts[context].users.get(number, ()))
        if request.flag("includeSubjects"):
            # Karapace's clients ask so.
            out["subjects"] = sorted({subject for subject, _ in users})
        if request.query.get("subject"):
            wanted = names.split(request.query["subject"])[1]
            mine = [place for place in users if names.split(place[0])[1] == wanted] or users
            if mine:
                out["subject"], out["version"] = mine[-1]
        return out

    async def text_by_id(self, request: Request, words: tuple[str, ...]) -> Answer:
        context, _, content = self._by_id(request, words[0])
        return _text_answer(await self._shown(names.qualify(context, "-"), content, request))

    def _users(self, request: Request, text: str) -> list[tuple[str, int]]:
        context, number, _ = self._by_id(request, text)
        state = self.registry.state
        wanted = request.query.get("subject")
        found = []
        for subject, version in sorted(state.contexts[context].users.get(number, ())):
            if wanted and subject != names.normalize(wanted):
                continue
            if request.flag("deleted") or not state.subjects[subject][version].deleted:
                found.append((subject, version))
        return found

    async def subjects_by_id(self, request: Request, words: tuple[str, ...]) -> Json:
        return page(request, sorted({subject for subject, _ in self._users(request, words[0])}))

    async def versions_by_id(self, request: Request, words: tuple[str, ...]) -> Json:
        found: list[Json] = [
            {"subject": name, "version": number} for name, number in self._users(request, words[0])
        ]
        return page(request, found)

    def _guid(self, given: str) -> list[tuple[str, int]]:
        found = [
            (name, context.guids[given.lower()])
            for name, context in sorted(self.registry.state.contexts.items())
            if given.lower() in context.guids
        ]
        if not found:
            raise schema_not_found(given[:60])
        return found

    async def by_guid(self, request: Request, words: tuple[str, ...]) -> Json:
        context, number = self._guid(words[0])[0]
        content = self.registry.state.contexts[context].by_id[number]
        out = _content_document(content, await self._shown(names.qualify(context, "-"), content, request))
        out["guid"] = words[0].lower()
        return out

    async def ids_by_guid(self, request: Request, words: tuple[str, ...]) -> Json:
        return [{"context": name, "id": number} for name, number in self._guid(words[0])]

    async def _shown(self, subject: str, content: Content, request: Request) -> str:
        """A schema's text in the format that the request asks for."""
        wanted = request.query.get("format", "").lower()
        if wanted not in ("serialized", "resolved", "ignore_extensions", ""):
            raise RegistryError(422, 42212, f"There is no format '{wanted[:40]}' of a schema.")
        if wanted in ("", "ignore_extensions"):
            return content.text
        return await self.registry.formatted(subject, content, wanted)

    async def _document(self, one: Version, request: Request) -> JsonObject:
        out: JsonObject = {
            "subject": one.subject,
            "version": one.version,
            "id": one.id,
            "guid": one.guid,
            **_content_document(one.content, await self._shown(one.subject, one.content, request)),
        }
        if one.deleted:
            out["deleted"] = True
        return out

    # -- compatibility

    async def compatibility(self, request: Request, words: tuple[str, ...]) -> Json:
        subject = self._subject(request, words[0])
        number = parse_version_number(words[1]) if len(words) > 1 else None
        normalize = request.flag("normalize")
        try:
            found = await self.registry.check_compatibility(
                subject, proposal(request.document()), number, normalize=normalize
            )
        except RegistryError as error:
            if error.code == 40401 and number is not None:
                raise version_not_found(words[1]) from None
            raise
        out: JsonObject = {"is_compatible": not found}
        if request.flag("verbose"):
            out["messages"] = found
        return out

    # -- writes

    async def register(self, request: Request, words: tuple[str, ...]) -> Json:
        subject = self._subject(request, words[0])
        wanted = proposal(request.document())
        one = await self.registry.register(subject, wanted, normalize=request.flag("normalize"))
        return await self._registered(one, wanted, request)

    async def _registered(self, one: Version, wanted: Proposal, request: Request) -> JsonObject:
        out: JsonObject = {
            "id": one.id,
            "version": one.version,
            "guid": one.guid,
            **_content_document(one.content, await self._shown(one.subject, one.content, request)),
        }
        return await self._as_sent(out, one, wanted, request)

    async def _as_sent(self, out: JsonObject, one: Version, wanted: Proposal, request: Request) -> JsonObject:
        """An answer about a schema that came as a descriptor is one too: its sender keeps it and reads it so."""
        if wanted.type == "PROTOBUF" and not is_text(wanted.text) and not request.query.get("format"):
            out["schema"] = await self.registry.formatted(one.subject, one.content, "serialized")
        return out

    async def registered_before(self, request: Request, words: tuple[str, ...]) -> JsonObject | None:
        """The answer to a registration of what is there already: any instance may give it."""
        subject = self._subject(request, words[0])
        wanted = proposal(request.document())
        if not self.registry.state.versions(subject):
            return None
        normalize = request.flag("normalize") or self.registry.normalizes(subject)
        one = await self.registry.existing(subject, wanted, normalize=normalize)
        return None if one is None else await self._registered(one, wanted, request)

    async def delete_subject(self, request: Request, words: tuple[str, ...]) -> Json:
        subject = self._subject(request, words[0])
        return await changes.delete_subject(self.registry, subject, permanent=request.flag("permanent"))

    async def delete_version(self, request: Request, words: tuple[str, ...]) -> Json:
        subject = self._subject(request, words[0])
        number = parse_version_number(words[1])
        return await changes.delete_version(
            self.registry, subject, number, permanent=request.flag("permanent")
        )

    # -- settings

    async def config(self, request: Request, words: tuple[str, ...]) -> Json:
        scope = self._scope(request, words)
        return changes.config_document(
            self.registry, scope, default_to_global=request.flag("defaultToGlobal") or not words
        )

    async def set_config(self, request: Request, words: tuple[str, ...]) -> Json:
        return await changes.set_config(self.registry, self._scope(request, words), request.document())

    async def delete_config(self, request: Request, words: tuple[str, ...]) -> Json:
        return await changes.delete_config(self.registry, self._scope(request, words))

    async def mode(self, request: Request, words: tuple[str, ...]) -> Json:
        scope = self._scope(request, words)
        return changes.mode_document(
            self.registry, scope, default_to_global=request.flag("defaultToGlobal") or not words
        )

    async def set_mode(self, request: Request, words: tuple[str, ...]) -> Json:
        mode = request.document().get("mode")
        if not isinstance(mode, str):
            raise RegistryError(422, 42204, "Invalid mode. The body needs a 'mode'.")
        return await changes.set_mode(
            self.registry, self._scope(request, words), mode, force=request.flag("force")
        )

    async def delete_mode(self, request: Request, words: tuple[str, ...]) -> Json:
        return await changes.delete_mode(self.registry, self._scope(request, words))

    # -- the rest

    async def contexts(self, request: Request, words: tuple[str, ...]) -> Json:
        return page(request, sorted(self.registry.state.contexts))

    async def metadata_id(self, request: Request, words: tuple[str, ...]) -> Json:
        return {"scope": {"path": [], "clusters": {"kafka-cluster": self.cluster_id}}, "id": self.cluster_id}

    async def metadata_version(self, request: Request, words: tuple[str, ...]) -> Json:
        return {"version": f"ottla-{__version__}", "commitId": ""}


def _not_served(what: str) -> Handler:
    async def refuse(request: Request, words: tuple[str, ...]) -> Json:
        raise RegistryError(404, 404, f"HTTP 404 Not Found: Ottla's registry does not serve {what}.")

    return refuse


def _content_document(content: Content, text: str) -> JsonObject:
    out: JsonObject = {}
    if content.type != "AVRO":
        out["schemaType"] = content.type
    if content.references:
        out["references"] = [one.document() for one in content.references]
    if content.metadata is not None:
        out["metadata"] = content.metadata
    if content.rule_set is not None:
        out["ruleSet"] = content.rule_set
    out["schema"] = text
    return out


def _text_answer(text: str) -> Answer:
    return Answer(raw=text.encode())
