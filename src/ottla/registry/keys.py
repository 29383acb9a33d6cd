"""The DEK registry: keys that encrypt data (DEK), themselves encrypted by keys of a key management service (KEK).

The registry keeps encrypted keys only. It never sees one that is not, and never talks to a key management service.
"""

from __future__ import annotations

import base64
import binascii
import time
import unicodedata
from collections.abc import Callable
from typing import Final

from ottla.json_types import Json, JsonObject
from ottla.registry import names, records
from ottla.registry.errors import RegistryError
from ottla.registry.extras import DekId, Extras, dek_key, kek_key
from ottla.registry.limits import MAX_DEKS, MAX_KEKS, MAX_KEY_BYTES, MAX_KEY_TEXT_CHARS, MAX_KMS_PROPERTIES

ALGORITHMS: Final = ("AES128_GCM", "AES256_GCM", "AES256_SIV")
DEFAULT_ALGORITHM: Final = "AES256_GCM"
_NOT_FOUND, _NOT_DELETED, _DELETED = 40470, 40471, 40472
_EXISTS, _TOO_MANY = 40971, 40972
_INVALID, _IN_USE = 42271, 42272
_MAX_VERSION: Final = 2**31 - 1


def not_found(what: str) -> RegistryError:
    return RegistryError(404, _NOT_FOUND, f"{what} not found.")


def invalid(reason: str) -> RegistryError:
    return RegistryError(422, _INVALID, f"Invalid key: {reason}")


def unreachable() -> RegistryError:
    return invalid("this registry cannot reach a key management service, which shared keys need")


def too_many(limit: int, what: str) -> RegistryError:
    return RegistryError(
        409, _TOO_MANY, f"Too many keys: the registry has {limit} {what}, and takes no more."
    )


class Keys:
    """KEKs and DEKs: questions to the state, and writes by the leader."""

    def __init__(self, extras: Extras, now_ms: Callable[[], int] | None = None) -> None:
        self._extras = extras
        self.state = extras.state
        self._now_ms = now_ms or (lambda: int(time.time() * 1000))

    # -- KEKs

    def kek(self, name: str, *, deleted: bool) -> JsonObject:
        """A KEK; 40470 if there is none, or if it is deleted and the request does not want those."""
        found = self.state.keks.get(name)
        if found is None or (found.get("deleted") and not deleted):
            raise not_found(f"Key {name}")
        return found

    def kek_names(self, *, deleted: bool, prefixes: list[str]) -> list[str]:
        """The names in order; with prefixes only those that encrypt keys of such subjects."""
        used = {
            kek for kek, subject, *_ in self.state.deks if any(subject.startswith(one) for one in prefixes)
        }
        return [
            name
            for name, kek in sorted(self.state.keks.items())
            if (deleted or not kek.get("deleted")) and (not prefixes or name in used)
        ]

    async def register_kek(self, body: JsonObject) -> JsonObject:
        """Register a KEK. 40971 for a name that is taken; one that was deleted comes back when it is the same."""
        wanted: JsonObject = {
            "name": _name(body, "name"),
            "kmsType": _name(body, "kmsType"),
            "kmsKeyId": _name(body, "kmsKeyId"),
            **_changeable(body),
        }
        wanted = {**wanted, "shared": wanted.get("shared", False), **_deleted(body)}
        name = str(wanted["name"])
        out: list[JsonObject] = []

        def decide() -> list[records.Pair]:
            held = self.state.keks.get(name)
            if held is None and len(self.state.keks) >= MAX_KEKS:
                raise too_many(MAX_KEKS, "KEKs")
            if held is not None and not _turns(
                held, wanted, ("kmsType", "kmsKeyId", "kmsProps", "doc", "shared")
            ):
                raise _exists(f"Key {name}", held)
            if held is not None and wanted.get("deleted"):
                self._check_unused(name, permanent=False)
            out[:] = [{**wanted, "ts": self._now_ms()}]
            return [(kek_key(name), records.value(out[0]))]

        await self._extras.write(decide)
        return out[0]

    async def update_kek(self, name: str, body: JsonObject) -> JsonObject:
        """Change the properties, the description or `shared` of a KEK."""
        wanted = _changeable(body)
        out: list[JsonObject] = []

        def decide() -> list[records.Pair]:
            held = self.kek(name, deleted=False)
            out[:] = [{**held, **wanted, "ts": self._now_ms()}]
            return [(kek_key(name), records.value(out[0]))]

        await self._extras.write(decide)
        return out[0]

    async def delete_kek(self, name: str, *, permanent: bool) -> None:
        """Delete a KEK that no DEK uses any more, at first so that it can come back."""

        def decide() -> list[records.Pair]:
            held = self.kek(name, deleted=True)
            self._check_unused(name, permanent=permanent)
            return self._deletion(kek_key(name), held, f"Key {name}", permanent=permanent)

        await self._extras.write(decide)

    def _check_unused(self, name: str, *, permanent: bool) -> None:
        users = [one for place, one in self.state.deks.items() if place[0] == name]
        if any(permanent or not one.get("deleted") for one in users):
            raise RegistryError(422, _IN_USE, f"Key {name} still has DEKs; delete them first.")

    async def undelete_kek(self, name: str) -> None:
        def decide() -> list[records.Pair]:
            return self._undeletion(kek_key(name), self.kek(name, deleted=True))

        await self._extras.write(decide)

    # -- DEKs

    def subjects(self, kek: str, *, deleted: bool) -> list[str]:
        """The subjects that have DEKs under a KEK."""
        self.kek(kek, deleted=True)
        places = [
            place
            for place, dek in self.state.deks.items()
            if place[0] == kek and (deleted or not dek.get("deleted"))
        ]
        return sorted({subject for _, subject, *_ in places})

    def versions(self, kek: str, subject: str, algorithm: str, *, deleted: bool) -> list[int]:
        """The versions of a DEK; 40470 if there is none."""
        found = [
            place[3]
            for place, dek in self.state.deks.items()
            if place[:3] == (kek, subject, algorithm) and (deleted or not dek.get("deleted"))
        ]
        if not found:
            raise not_found(f"Key of {subject} under {kek}")
        return sorted(found)

    def dek(self, kek: str, subject: str, algorithm: str, version: int, *, deleted: bool) -> JsonObject:
        """A version of a DEK; -1 is the latest."""
        if version == -1:
            version = self.versions(kek, subject, algorithm, deleted=deleted)[-1]
        found = self.state.deks.get((kek, subject, algorithm, version))
        if found is None or (found.get("deleted") and not deleted):
            raise not_found(f"Key of {subject} under {kek}, version {version},")
        return found

    async def register_dek(self, kek: str, subject: str, body: JsonObject, *, rewrap: bool) -> JsonObject:
        """Register an encrypted DEK. Of two that race for a version the second gets 40971, and reads the first.

        With `rewrap` it takes the place of the one that is there: the same key, encrypted by a new one of the KEK.
        """
        algorithm = check_algorithm(body.get("algorithm") or DEFAULT_ALGORITHM)
        version = body.get("version") or 1
        if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= _MAX_VERSION:
            raise RegistryError(422, 42202, "The version of a key is a number between 1 and 2^31-1.")
        material = _material(body.get("encryptedKeyMaterial"))
        place = (kek, subject, algorithm, version)
        wanted: JsonObject = {
            "kekName": kek,
            "subject": subject,
            "version": version,
            "algorithm": algorithm,
            "encryptedKeyMaterial": material,
            **_deleted(body),
        }
        out: list[JsonObject] = []

        def decide() -> list[records.Pair]:
            self.kek(kek, deleted=bool(wanted.get("deleted")))
            held = self.state.deks.get(place)
            if held is None and len(self.state.deks) >= MAX_DEKS:
                raise too_many(MAX_DEKS, "DEKs")
            if held is not None and not rewrap and not _turns(held, wanted, ("encryptedKeyMaterial",)):
                raise _exists(f"Key of {subject} under {kek}, version {version},", held)
            out[:] = [{**wanted, "ts": self._now_ms()}]
            return [(dek_key(place), records.value(out[0]))]

        await self._extras.write(decide)
        return out[0]

    async def delete_deks(
        self, kek: str, subject: str, algorithm: str, version: int | None, *, permanent: bool
    ) -> None:
        """Delete one version of a DEK, or all for None."""

        def decide() -> list[records.Pair]:
            pairs: list[records.Pair] = []
            for place, held in self._places(kek, subject, algorithm, version):
                if version is None and bool(held.get("deleted")) != permanent:
                    if permanent:
                        raise _not_deleted(f"Key of {subject} under {kek}, version {place[3]},")
                    continue
                what = f"Key of {subject} under {kek}, version {place[3]},"
                pairs += self._deletion(dek_key(place), held, what, permanent=permanent)
            return pairs

        await self._extras.write(decide)

    async def undelete_deks(self, kek: str, subject: str, algorithm: str, version: int | None) -> None:
        """Bring deleted versions of a DEK back. Its KEK comes first."""

        def decide() -> list[records.Pair]:
            pairs: list[records.Pair] = []
            for place, held in self._places(kek, subject, algorithm, version):
                if self.kek(kek, deleted=True).get("deleted"):
                    raise RegistryError(404, _DELETED, f"Key {kek} must be undeleted first.")
                pairs += self._undeletion(dek_key(place), held)
            return pairs

        await self._extras.write(decide)

    def _places(
        self, kek: str, subject: str, algorithm: str, version: int | None
    ) -> list[tuple[DekId, JsonObject]]:
        every = self.versions(kek, subject, algorithm, deleted=True)
        numbers = every if version is None else [every[-1] if version == -1 else version]
        return [
            ((kek, subject, algorithm, number), self.dek(kek, subject, algorithm, number, deleted=True))
            for number in numbers
        ]

    def _deletion(self, key: bytes, held: JsonObject, what: str, *, permanent: bool) -> list[records.Pair]:
        if not permanent:
            return [] if held.get("deleted") else [(key, records.value({**held, "deleted": True}))]
        if not held.get("deleted"):
            raise _not_deleted(what)
        return [(key, None)]

    @staticmethod
    def _undeletion(key: bytes, held: JsonObject) -> list[records.Pair]:
        if not held.get("deleted"):
            return []
        return [(key, records.value({name: value for name, value in held.items() if name != "deleted"}))]


def _turns(held: JsonObject, wanted: JsonObject, compared: tuple[str, ...]) -> bool:
    """Whether a key comes back, or is deleted, by being registered: it is the same but for being deleted."""
    same = all((held.get(name) or None) == (wanted.get(name) or None) for name in compared)
    return same and bool(held.get("deleted")) != bool(wanted.get("deleted"))


def _exists(what: str, held: JsonObject) -> RegistryError:
    gone = "; it is deleted: undelete it, or delete it for good" if held.get("deleted") else ""
    return RegistryError(409, _EXISTS, f"{what} already exists{gone}.")


def _not_deleted(what: str) -> RegistryError:
    return RegistryError(404, _NOT_DELETED, f"{what} was not deleted first before being permanently deleted.")


def check_algorithm(given: Json) -> str:
    if given not in ALGORITHMS:
        raise invalid(f"there is no algorithm {str(given)[:40]}; use one of {', '.join(ALGORITHMS)}")
    return str(given)


def check_subject(given: Json) -> str:
    """The subject of a DEK, which needs no schemas."""
    if not isinstance(given, str):
        raise invalid("a DEK has a subject")
    return names.check(given)


def _name(body: JsonObject, key: str) -> str:
    found = body.get(key)
    if not isinstance(found, str) or not found or len(found) > MAX_KEY_TEXT_CHARS:
        raise invalid(f"a KEK has a {key} of 1 to {MAX_KEY_TEXT_CHARS} characters")
    if any(unicodedata.category(char) == "Cc" for char in found):
        raise invalid(f"the {key} has control characters")
    return found


def _changeable(body: JsonObject) -> JsonObject:
    out: JsonObject = {}
    properties = body.get("kmsProps")
    if properties is not None:
        if not isinstance(properties, dict) or len(properties) > MAX_KMS_PROPERTIES:
            raise invalid(f"kmsProps is an object of at most {MAX_KMS_PROPERTIES} texts")
        for name, value in properties.items():
            if not isinstance(value, str) or len(name) + len(value) > MAX_KEY_TEXT_CHARS:
                raise invalid(f"a property in kmsProps is a text of at most {MAX_KEY_TEXT_CHARS} characters")
        out["kmsProps"] = properties
    doc = body.get("doc")
    if doc is not None:
        if not isinstance(doc, str) or len(doc) > MAX_KEY_TEXT_CHARS:
            raise invalid(f"doc is a text of at most {MAX_KEY_TEXT_CHARS} characters")
        out["doc"] = doc
    shared = body.get("shared")
    if shared is not None:
        if not isinstance(shared, bool):
            raise invalid("shared is true or false")
        if shared:
            raise unreachable()
        out["shared"] = shared
    return out


def _deleted(body: JsonObject) -> JsonObject:
    """The mark of a key that is registered as deleted, as copies of another registry's keys are."""
    given = body.get("deleted")
    if given is not None and not isinstance(given, bool):
        raise invalid("deleted is true or false")
    return {"deleted": True} if given else {}


def _material(given: Json) -> str:
    if not isinstance(given, str) or not given:
        raise invalid("a DEK comes with its encryptedKeyMaterial: this registry makes no keys")
    if len(given) > MAX_KEY_BYTES * 2:
        raise invalid(f"its encryptedKeyMaterial has more than {MAX_KEY_BYTES} bytes")
    try:
        decoded = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("its encryptedKeyMaterial is not base64") from None
    if not 0 < len(decoded) <= MAX_KEY_BYTES:
        raise invalid(f"its encryptedKeyMaterial has 1 to {MAX_KEY_BYTES} bytes")
    return given
