"""The routes of the DEK registry and of associations."""

from __future__ import annotations

from typing import Final

from ottla.json_types import Json, JsonObject
from ottla.registry import names
from ottla.registry.associations import Associations, Filter, check_lifecycle, invalid, read_request
from ottla.registry.extras import Extras
from ottla.registry.keys import DEFAULT_ALGORITHM, Keys, check_algorithm, check_subject, unreachable
from ottla.registry.registry import Registry, parse_version_number
from ottla.registry.rest.bodies import page, proposal
from ottla.registry.rest.http import Answer, Handler, Request, Routes
from ottla.registry.rest.places import subject_of

_KEKS: Final = "/dek-registry/v1/keks"
_DEKS: Final = f"{_KEKS}/{{}}/deks"
_DEK: Final = f"{_DEKS}/{{}}"
_VERSION: Final = f"{_DEK}/versions/{{}}"
_FIRST_VERSION: Final = 1


def _nothing() -> Answer:
    return Answer(status=204, raw=b"")


class ExtraApi:
    """The handlers. Those of `writes` run on the leader only."""

    def __init__(self, registry: Registry, extras: Extras, routes: Routes, writes: set[Handler]) -> None:
        self.extras = extras
        self._state = registry.state
        self.keys = Keys(extras)
        self.associations = Associations(registry, extras)
        self.handlers: set[Handler] = set()
        """All of them: they need the topic of the extras."""
        reads: tuple[tuple[str, str, Handler], ...] = (
            ("GET", _KEKS, self.keks),
            ("GET", f"{_KEKS}/{{}}", self.kek),
            ("GET", _DEKS, self.dek_subjects),
            ("GET", _DEK, self.dek),
            ("GET", f"{_DEK}/versions", self.dek_versions),
            ("GET", _VERSION, self.dek),
            ("GET", "/associations/resources/{}", self.by_resource),
            ("GET", "/associations/resources/{}/{}", self.by_name),
            ("GET", "/associations/subjects/{}", self.by_subject),
        )
        for method, pattern, handler in reads:
            routes.add(method, pattern, handler)
            self.handlers.add(handler)
        changes: tuple[tuple[str, str, Handler], ...] = (
            ("POST", _KEKS, self.register_kek),
            ("PUT", f"{_KEKS}/{{}}", self.update_kek),
            ("DELETE", f"{_KEKS}/{{}}", self.delete_kek),
            ("POST", f"{_KEKS}/{{}}/undelete", self.undelete_kek),
            ("POST", f"{_KEKS}/{{}}/test", self.test_kek),
            ("POST", _DEKS, self.register_dek),
            ("POST", _DEK, self.register_dek),
            ("DELETE", _DEK, self.delete_deks),
            ("POST", f"{_DEK}/undelete", self.undelete_deks),
            ("DELETE", _VERSION, self.delete_deks),
            ("POST", f"{_VERSION}/undelete", self.undelete_deks),
            ("POST", "/associations", self.create_associations),
            ("PUT", "/associations/resources/{}", self.update_associations),
            ("DELETE", "/associations/resources/{}", self.delete_associations),
        )
        for method, pattern, handler in changes:
            routes.add(method, pattern, handler)
            self.handlers.add(handler)
            writes.add(handler)

    # -- KEKs

    async def keks(self, request: Request, words: tuple[str, ...]) -> Json:
        prefixes = [value for name, value in request.pairs if name == "subjectPrefix"]
        return [*page(request, self.keys.kek_names(deleted=request.flag("deleted"), prefixes=prefixes))]

    async def kek(self, request: Request, words: tuple[str, ...]) -> Json:
        return self.keys.kek(words[0], deleted=request.flag("deleted"))

    async def register_kek(self, request: Request, words: tuple[str, ...]) -> Json:
        return await self.keys.register_kek(request.document())

    async def update_kek(self, request: Request, words: tuple[str, ...]) -> Json:
        return await self.keys.update_kek(words[0], request.document())

    async def delete_kek(self, request: Request, words: tuple[str, ...]) -> Answer:
        await self.keys.delete_kek(words[0], permanent=request.flag("permanent"))
        return _nothing()

    async def undelete_kek(self, request: Request, words: tuple[str, ...]) -> Answer:
        await self.keys.undelete_kek(words[0])
        return _nothing()

    async def test_kek(self, request: Request, words: tuple[str, ...]) -> Json:
        self.keys.kek(words[0], deleted=False)
        raise unreachable()

    # -- DEKs

    def _subject(self, request: Request, given: Json) -> str:
        if isinstance(given, str) and not given.startswith(":."):
            given = names.qualify(request.context, given)
        return check_subject(given)

    def _place(self, request: Request, words: tuple[str, ...]) -> tuple[str, str, str]:
        algorithm = check_algorithm(request.query.get("algorithm") or DEFAULT_ALGORITHM)
        return words[0], self._subject(request, words[1]), algorithm

    async def dek_subjects(self, request: Request, words: tuple[str, ...]) -> Json:
        return [*page(request, self.keys.subjects(words[0], deleted=request.flag("deleted")))]

    async def dek_versions(self, request: Request, words: tuple[str, ...]) -> Json:
        place = self._place(request, words)
        return [*page(request, self.keys.versions(*place, deleted=request.flag("deleted")))]

    async def dek(self, request: Request, words: tuple[str, ...]) -> Json:
        version = parse_version_number(words[2]) if len(words) > 2 else _FIRST_VERSION
        return self.keys.dek(*self._place(request, words), version, deleted=request.flag("deleted"))

    async def register_dek(self, request: Request, words: tuple[str, ...]) -> Json:
        body = request.document()
        subject = self._subject(request, words[1] if len(words) > 1 else body.get("subject"))
        if len(words) == 1:
            subject = subject_of(subject, request.context, self._state, "aliasForDeks")
        return await self.keys.register_dek(words[0], subject, body, rewrap=request.flag("rewrap"))

    async def delete_deks(self, request: Request, words: tuple[str, ...]) -> Answer:
        version = parse_version_number(words[2]) if len(words) > 2 else None
        place = self._place(request, words)
        await self.keys.delete_deks(*place, version, permanent=request.flag("permanent"))
        return _nothing()

    async def undelete_deks(self, request: Request, words: tuple[str, ...]) -> Answer:
        version = parse_version_number(words[2]) if len(words) > 2 else None
        await self.keys.undelete_deks(*self._place(request, words), version)
        return _nothing()

    # -- associations

    @staticmethod
    def _filter(request: Request) -> Filter:
        kinds = tuple(value for name, value in request.pairs if name == "associationType")
        lifecycle = check_lifecycle(request.query.get("lifecycle", ""))
        return Filter(request.query.get("resourceType", ""), kinds, lifecycle)

    async def by_resource(self, request: Request, words: tuple[str, ...]) -> Json:
        return [*page(request, self.associations.of_id(words[0], self._filter(request)))]

    async def by_name(self, request: Request, words: tuple[str, ...]) -> Json:
        return [*page(request, self.associations.of_name(words[0], words[1], self._filter(request)))]

    async def by_subject(self, request: Request, words: tuple[str, ...]) -> Json:
        found = self.associations.of_subject(self._subject(request, words[0]), self._filter(request))
        return [*page(request, found)]

    async def create_associations(self, request: Request, words: tuple[str, ...]) -> Json:
        return await self._associate(request, request.document(), update=False)

    async def update_associations(self, request: Request, words: tuple[str, ...]) -> Json:
        body = {"resourceId": words[0], **request.document()}
        if body["resourceId"] != words[0]:
            raise invalid("the resourceId of the path and that of the body differ")
        return await self._associate(request, body, update=True)

    async def _associate(self, request: Request, body: JsonObject, *, update: bool) -> JsonObject:
        wanted = read_request(body, proposal)
        made = await self.associations.write(wanted, update=update, dry_run=request.flag("dryRun"))
        own = ("subject", "associationType", "lifecycle", "frozen")
        return {**wanted[0].resource, "associations": [{key: one[key] for key in own} for one in made]}

    async def delete_associations(self, request: Request, words: tuple[str, ...]) -> Answer:
        await self.associations.delete(
            words[0],
            self._filter(request),
            cascade=request.flag("cascadeLifecycle"),
            dry_run=request.flag("dryRun"),
        )
        return _nothing()
