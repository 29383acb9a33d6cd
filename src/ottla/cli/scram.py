"""SCRAM credentials on a command line: `SCRAM-SHA-256=[name=alice,password=secret]`, as a metadata record."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import Final

from ottla.credentials.scram_keys import DEFAULT_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS, derive_keys
from ottla.errors import ApiException, ErrorCode
from ottla.wire import messages

_WORD: Final = re.compile(r"(?P<mechanism>SCRAM-SHA-(?:256|512))=\[(?P<fields>.*)\]$")
_FIELD: Final = re.compile(r'\s*(?P<key>[a-z]+)=(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,]*))\s*(?:,|$)')
_MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}


def parse_scram(word: str) -> messages.UserScramCredentialRecord:
    """The UserScramCredentialRecord of one `--add-scram`."""
    found = _WORD.match(word)
    if found is None:
        raise _invalid("expected SCRAM-SHA-256=[name=...,password=...] or the same with SCRAM-SHA-512")
    number, digest = _MECHANISMS[found["mechanism"]]
    fields = _fields(found["fields"])
    name = fields.pop("name", "")
    iterations = _iterations(fields.pop("iterations", str(DEFAULT_ITERATIONS)))
    salt = _decoded(fields.pop("salt")) if "salt" in fields else secrets.token_bytes(32)
    password, salted = fields.pop("password", None), fields.pop("saltedpassword", None)
    if not name or fields:
        raise _invalid("expected a name, and besides only password, saltedpassword, iterations and salt")
    if salted is not None and password is None:
        key = _decoded(salted)
    elif password is not None and salted is None:
        key = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    else:
        raise _invalid("expected either password or saltedpassword")
    keys = derive_keys(digest, key)
    return messages.UserScramCredentialRecord(
        name=name,
        mechanism=number,
        salt=salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=iterations,
    )


def _fields(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _FIELD.match(text, position)
        if match is None:
            raise _invalid("expected key=value fields separated by commas")
        found[match["key"]] = match["plain"] if match["quoted"] is None else match["quoted"]
        position = match.end()
    return found


def _iterations(text: str) -> int:
    if not text.isdecimal() or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise _invalid(f"expected iterations between {MIN_ITERATIONS} and {MAX_ITERATIONS}")
    return int(text)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise _invalid("expected salt and saltedpassword in base64") from None


def _invalid(expected: str) -> ApiException:
    # The value holds a secret: it is not repeated.
    return ApiException(ErrorCode.INVALID_CONFIG, f"Invalid value for --add-scram: {expected}")
