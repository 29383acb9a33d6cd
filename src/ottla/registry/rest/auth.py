"""Basic authentication and roles from a TOML file: who may read, write or administer which subjects."""

from __future__ import annotations

import asyncio
import base64
import binascii
import fnmatch
import hashlib
import hmac
import secrets
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.registry import names
from ottla.registry.errors import RegistryError
from ottla.registry.rest.places import subject_at

VERBS: Final = ("read", "write", "admin")
"""What a role may do: read schemas; register and delete them; change levels and modes."""
_N, _R, _P = 2**14, 8, 1
_MAX_HEADER: Final = 2_000
_REMEMBERED: Final = 1_000
_LOGINS: Final = 2
"""Passwords that are hashed at the same time."""


class UsersFileError(Exception):
    """The file of users is not readable as one."""


@dataclass(frozen=True, slots=True)
class Role:
    """Verbs on subjects that fit one of the patterns."""

    subjects: tuple[str, ...]
    verbs: frozenset[str]

    def allows(self, verb: str, subject: str | None) -> bool:
        if verb not in self.verbs:
            return False
        if subject is None:
            return "*" in self.subjects
        return any(fnmatch.fnmatchcase(subject, pattern) for pattern in self.subjects)


@dataclass(slots=True)
class Users:
    """The users of a file. Passwords are kept as scrypt hashes."""

    hashes: dict[str, str] = field(repr=False)
    roles: dict[str, tuple[Role, ...]]
    _seen: dict[bytes, str] = field(default_factory=dict, repr=False)
    _logins: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LOGINS), repr=False)
    _salt: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)

    async def authenticate(self, header: str) -> str:
        """The user of an Authorization header; 401 without a valid one. A header that was right once is remembered."""
        kind, _, token = header.partition(" ")
        if kind.lower() != "basic" or len(token) > _MAX_HEADER:
            raise _unauthorized()
        digest = hmac.digest(self._salt, token.encode(), "sha256")
        known = self._seen.get(digest)
        if known is not None:
            return known
        async with self._logins:
            # A hash takes some hundredths of a second, on purpose: guesses keep no others waiting.
            name = await asyncio.to_thread(self._checked, token)
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[digest] = name
        return name

    def _checked(self, token: str) -> str:
        try:
            name, _, password = base64.b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            raise _unauthorized() from None
        stored = self.hashes.get(name)
        # An unknown name costs as much time as a wrong password.
        right = _matches(stored or hash_password("", b"\0" * 16), password)
        if stored is None or not right:
            raise _unauthorized()
        return name

    def authorize(self, user: str, method: str, segments: tuple[str, ...], context: str) -> None:
        """403 where no role of the user allows the request."""
        verb, subject = needed(method, segments, context)
        if subject is None and verb == "read":
            allowed = any("read" in role.verbs for role in self.roles[user])
        else:
            allowed = any(role.allows(verb, subject) for role in self.roles[user])
        if not allowed:
            about = f"the subject {subject}" if subject else "the whole registry"
            raise RegistryError(403, 40301, f"The user {user} may not {verb} {about}.")


def needed(method: str, segments: tuple[str, ...], context: str) -> tuple[str, str | None]:
    """The verb that a request needs, and the subject that it is about; None for the whole registry."""
    area = segments[0] if segments else ""
    at = subject_at(segments)
    subject: str | None = None
    if at is not None:
        subject = segments[at]
        subject = subject if subject.startswith(":.") else names.qualify(context, subject)
        subject = names.normalize(subject)
    if method == "GET" or area == "compatibility" or (area, method, len(segments)) == ("subjects", "POST", 2):
        return "read", subject
    return ("admin" if area in ("config", "mode") else "write"), subject


def load(path: Path) -> Users:
    """The users of a TOML file."""
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsersFileError(f"the file of users {path} cannot be read: {error}") from None
    roles = {name: _role(name, given, path) for name, given in document.get("roles", {}).items()}
    hashes: dict[str, str] = {}
    granted: dict[str, tuple[Role, ...]] = {}
    for name, given in document.get("users", {}).items():
        stored, wanted = given.get("password"), given.get("roles", [])
        if not isinstance(stored, str) or not stored.startswith("scrypt:"):
            raise UsersFileError(
                f"{path}: the user {name} needs a password as `ottla registry passwd` prints it"
            )
        missing = [one for one in wanted if one not in roles]
        if missing:
            raise UsersFileError(f"{path}: the user {name} has the role {missing[0]}, which is not defined")
        hashes[name], granted[name] = stored, tuple(roles[one] for one in wanted)
    if not hashes:
        raise UsersFileError(f"{path}: there are no users")
    return Users(hashes, granted)


def _role(name: str, given: object, path: Path) -> Role:
    if not isinstance(given, dict):
        raise UsersFileError(f"{path}: the role {name} is not a table")
    verbs, subjects = given.get("verbs", []), given.get("subjects", ["*"])
    for one in (verbs, subjects):
        if not isinstance(one, list) or not all(isinstance(each, str) for each in one):
            raise UsersFileError(f"{path}: the verbs and subjects of the role {name} are lists of texts")
    wrong = [one for one in verbs if one not in VERBS]
    if wrong:
        raise UsersFileError(f"{path}: the role {name} has the verb {wrong[0]}; verbs are {', '.join(VERBS)}")
    return Role(tuple(subjects), frozenset(verbs))


def hash_password(password: str, salt: bytes | None = None) -> str:
    """A password as it stands in the file."""
    salt = secrets.token_bytes(16) if salt is None else salt
    return f"scrypt:{salt.hex()}:{_scrypt(password, salt).hex()}"


def _matches(stored: str, password: str) -> bool:
    _, salt, digest = stored.split(":")
    return hmac.compare_digest(_scrypt(password, bytes.fromhex(salt)).hex(), digest)


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=_N, r=_R, p=_P, dklen=32)


def _unauthorized() -> RegistryError:
    return RegistryError(401, 40101, "The request needs a user and a password of this registry.")
