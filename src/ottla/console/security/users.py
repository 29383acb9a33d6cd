"""The users file: names, scrypt hashes of passwords, and roles."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.console.security.roles import Principal, Role
from ottla.errors import ApiException, ErrorCode

if TYPE_CHECKING:
    from ottla.console.security.oidc import Oidc

_N, _R, _P = 2**14, 8, 1
_MEMORY: Final = 64 << 20
_PREFIX: Final = "scrypt"
MAX_PASSWORD: Final = 1024


def hash_password(password: str) -> str:
    """`scrypt$salt$key`, for the users file."""
    salt = secrets.token_bytes(16)
    return f"{_PREFIX}${base64.b64encode(salt).decode()}${base64.b64encode(_derive(password, salt)).decode()}"


def _derive(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=_N, r=_R, p=_P, maxmem=_MEMORY, dklen=32)


def password_fits(password: str, stored: str) -> bool:
    """Whether a password has this hash. Takes the same time for a hash that cannot be read."""
    kind, _, rest = stored.partition("$")
    salt_text, _, key_text = rest.partition("$")
    try:
        salt, key = base64.b64decode(salt_text, validate=True), base64.b64decode(key_text, validate=True)
    except ValueError:
        salt, key = b"", b""
    found = _derive(password[:MAX_PASSWORD], salt or b"no user has this salt")
    return hmac.compare_digest(found, key) and kind == _PREFIX and bool(salt)


@dataclass(frozen=True, slots=True)
class Users:
    """Who may sign in."""

    principals: dict[str, Principal]
    hashes: dict[str, str] = field(repr=False)
    oidc: Oidc | None = None
    """The issuer that people may sign in with, beside the users of the file."""

    @classmethod
    def load(cls, path: Path, *, read_only: bool) -> Users:
        """Read a users file; ApiException that names the mistake."""
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ApiException(ErrorCode.INVALID_REQUEST, f"{path} is not TOML: {error}") from None
        roles = {name: Role.of(name, fields) for name, fields in document.get("roles", {}).items()}
        principals: dict[str, Principal] = {}
        hashes: dict[str, str] = {}
        for name, fields in document.get("users", {}).items():
            wanted = fields.get("roles", [])
            missing = [role for role in wanted if role not in roles]
            if missing:
                raise ApiException(
                    ErrorCode.INVALID_REQUEST,
                    f"{path}: user {name} has the role '{missing[0]}', which is not there",
                )
            principals[name] = Principal(name, tuple(roles[role] for role in wanted), read_only)
            hashes[name] = str(fields.get("password", ""))
        oidc = None
        if "oidc" in document:
            from ottla.console.security.oidc import Oidc

            oidc = Oidc.of(document["oidc"], roles, read_only=read_only)
        if not principals and oidc is None:
            raise ApiException(
                ErrorCode.INVALID_REQUEST,
                f"{path} has no users; `ottla console passwd NAME` prints a line for one",
            )
        return cls(principals, hashes, oidc)

    def check(self, name: str, password: str) -> Principal | None:
        """The principal, if the password fits. An unknown name takes as long as a wrong password."""
        fits = password_fits(password, self.hashes.get(name, ""))
        return self.principals.get(name) if fits else None
