"""The public keys of token issuers (RFC 7517), from a file or an HTTPS address, renewed in a thread beside logins.

A login never waits: it sees the keys that are there. The old keys stay while a renewal fails.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.credentials.errors import CredentialsError
from ottla.credentials.http_fetch import MAX_DOCUMENT_BYTES, check_url, fetch, file_path, printable

if TYPE_CHECKING:
    from jwt import PyJWK

_logger = logging.getLogger(__name__)

URL_KEY: Final = "sasl.oauthbearer.jwks.endpoint.url"
MAX_KEYS: Final = 1000
UNKNOWN_KEY_PAUSE_S: Final = 10.0
"""Tokens with unknown keys make us ask again, at most once in this time however many they are."""
ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
_OF_TYPE: Final = {"RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("EdDSA",)}
_OF_CURVE: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


class SigningKey:
    """One public key, and the algorithms that it may verify."""

    __slots__ = ("algorithms", "key")

    def __init__(self, key: PyJWK, algorithms: frozenset[str]) -> None:
        self.key = key
        self.algorithms = algorithms


def parse_keys(text: bytes) -> dict[str, SigningKey]:
    """The signing keys of a JWK set by `kid`. Keys that cannot verify signatures are left out."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    try:
        entries = json.loads(text)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CredentialsError("the JWK set is no JSON object with keys") from None
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise CredentialsError(f"the JWK set has no list of at most {MAX_KEYS} keys")
    found: dict[str, SigningKey] = {}
    for entry in entries:
        algorithms = _algorithms(entry)
        if not algorithms:
            continue
        if entry["kid"] in found:
            raise CredentialsError(f"the JWK set has the kid {printable(entry['kid'])} twice")
        try:
            found[entry["kid"]] = SigningKey(PyJWK(entry, algorithm=min(algorithms)), algorithms)
        except (PyJWTError, ValueError, TypeError, KeyError):
            _logger.warning("The key %s of the JWK set cannot be used", printable(entry["kid"]))
    if not found:
        raise CredentialsError("the JWK set has no public key with a kid that verifies signatures")
    return found


def _algorithms(entry: object) -> frozenset[str]:
    """What a key may verify: its own `alg`, or all of its type. Nothing for secret keys and keys that encrypt."""
    if not isinstance(entry, dict) or not isinstance(entry.get("kid"), str) or not entry["kid"]:
        return frozenset()
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return frozenset()
    prefixes = _OF_TYPE.get(str(entry.get("kty")))
    if prefixes is None:
        return frozenset()
    fitting = {name for name in ALGORITHMS if name.startswith(prefixes)}
    if entry.get("kty") == "EC":
        fitting &= {_OF_CURVE.get(str(entry.get("crv")), "")}
    if "alg" in entry:
        fitting &= {str(entry["alg"])}
    return frozenset(fitting)


class KeySet:
    """The keys of one address. Threads renew it; logins only look."""

    def __init__(
        self,
        url: str,
        refresh_s: float,
        now: Callable[[], float],
        context: ssl.SSLContext | None = None,
        run: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`now` is monotonic. `run` runs a renewal; by default in a thread of its own."""
        self._url = url
        self._file = Path(file_path(url)) if check_url(URL_KEY, url) == "file" else None
        self._refresh_s = refresh_s
        self._now = now
        self._context = context
        self._run = run or _in_thread
        self._keys: Mapping[str, SigningKey] = {}
        self._stamp: tuple[int, int, int] | None = None
        self._renewed_at = -refresh_s
        self._asked_at = -UNKNOWN_KEY_PAUSE_S
        self._running = threading.Lock()

    def start(self) -> None:
        """Load a file now, or raise; ask an address in a thread, so that a node starts while it is down."""
        if self._file is not None:
            self._stamp = self._file_stamp()
            self._keys = self._load()
            self._renewed_at = self._now()
        else:
            self._renew()

    def find(self, kid: str) -> SigningKey | None:
        """A key by its id. Begins a renewal where the set is old or does not have the key."""
        now = self._now()
        if self._file is not None:
            if self._file_stamp() != self._stamp:
                self._renew()
        elif now - self._renewed_at >= self._refresh_s or (
            kid not in self._keys and now - self._asked_at >= UNKNOWN_KEY_PAUSE_S
        ):
            self._renew()
        return self._keys.get(kid)

    def _renew(self) -> None:
        if not self._running.acquire(blocking=False):
            return
        self._asked_at = self._now()
        try:
            self._run(self._renew_now)
        except RuntimeError:
            self._running.release()
            raise

    def _renew_now(self) -> None:
        try:
            stamp = self._file_stamp()
            self._keys = self._load()
            self._stamp = stamp
            self._renewed_at = self._now()
        except CredentialsError as error:
            # The file is not read again before it changes, and the address after a pause.
            self._stamp = self._file_stamp()
            self._renewed_at = self._now() - self._refresh_s + UNKNOWN_KEY_PAUSE_S
            _logger.error("The keys of %s cannot be renewed, the old ones stay: %s", URL_KEY, error)
        finally:
            self._running.release()

    def _load(self) -> dict[str, SigningKey]:
        if self._file is None:
            return parse_keys(fetch(self._url, context=self._context))
        try:
            with self._file.open("rb") as file:
                data = file.read(MAX_DOCUMENT_BYTES + 1)
        except OSError as error:
            raise CredentialsError(f"{self._file} cannot be read: {error.strerror}") from None
        if len(data) > MAX_DOCUMENT_BYTES:
            raise CredentialsError(f"{self._file} is larger than {MAX_DOCUMENT_BYTES} bytes")
        return parse_keys(data)

    def _file_stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._file.stat() if self._file is not None else None
        except OSError:
            return None
        return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="jwks-renewal", daemon=True).start()
