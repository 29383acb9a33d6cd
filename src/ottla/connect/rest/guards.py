"""What stands before the routes of REST: TLS, logins, headers of answers, and what browsers of other sites may do."""

from __future__ import annotations

import base64
import binascii
import csv
import hmac
import os
import re
import shlex
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.connect.failures import ConfigInvalid
from ottla.connect.properties import parse
from ottla.credentials.errors import CredentialsError
from ottla.credentials.jaas import parse_file

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ottla.connect.config.worker import WorkerConfig

EXTENSIONS: Final = "rest.extension.classes"
HEADERS: Final = "response.http.headers.config"
LOGINS: Final = "ottla.rest.logins.file"
_BASIC: Final = "BasicAuthSecurityRestExtension"
_PREFIX: Final = "listeners.https."
_JAAS: Final = "-Djava.security.auth.login.config="
_ENTRY: Final = "KafkaConnect"
_ACTIONS: Final = ("set", "add", "setDate", "addDate")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def tls_keys(originals: Mapping[str, str]) -> dict[str, str]:
    """The `ssl.*` keys of REST: those with the prefix of its listeners if there is one, else the worker's own."""
    own = {key[len(_PREFIX) :]: value for key, value in originals.items() if key.startswith(_PREFIX)}
    return own or {key: value for key, value in originals.items() if key.startswith("ssl.")}


def server_tls(config: WorkerConfig) -> ssl.SSLContext | None:
    """The TLS of `https` listeners; None if there is none. ConfigInvalid says which key is wrong."""
    if all(one.scheme != "https" for one in (*config.listeners, *(config.admin_listeners or ()))):
        return None
    # Certificates are read by a large library, which most workers do not need.
    from ottla.credentials.contexts import TlsConfig, server_context

    try:
        tls = TlsConfig.of(tls_keys(config.originals))
        if tls.keystore is None:
            raise ConfigInvalid(f"an https listener needs {_PREFIX}ssl.keystore.location")
        return server_context(tls, datetime.now(UTC))[0]
    except CredentialsError as error:
        raise ConfigInvalid(f"{_PREFIX}{error}") from None


def client_tls(config: WorkerConfig) -> ssl.SSLContext | bool:
    """How this worker checks another one that it forwards to; True for the certificates that the system trusts."""
    keys = tls_keys(config.originals)
    if not any(key.startswith("ssl.truststore.") for key in keys):
        return True
    from ottla.credentials.contexts import TlsConfig, client_context

    try:
        return client_context(TlsConfig.of(keys), datetime.now(UTC))
    except CredentialsError as error:
        raise ConfigInvalid(f"{_PREFIX}{error}") from None


# -- logins


def logins(config: WorkerConfig, environment: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """The passwords by user that Kafka's extension would ask for; None if everybody may use REST.

    They are in the properties file that the entry KafkaConnect of the JAAS file names (`KAFKA_OPTS` says where that
    is), or in the one that `ottla.rest.logins.file` names.
    """
    extensions = [one.strip() for one in config.originals.get(EXTENSIONS, "").split(",") if one.strip()]
    for one in extensions:
        if one.rpartition(".")[2] != _BASIC:
            raise ConfigInvalid(
                f"{EXTENSIONS}: {one} is written in Java and cannot run here; only {_BASIC} is known to Ottla"
            )
    path = config.originals.get(LOGINS)
    if path is None and not extensions:
        return None
    if path is None:
        path = _file_of_jaas(os.environ if environment is None else environment)
    try:
        found = parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigInvalid(f"the file of logins {path} cannot be read: {reason}") from None
    if not found:
        # Kafka lets everybody in then. Nobody who turned logins on wants that.
        raise ConfigInvalid(f"the file of logins {path} has no line like user=password")
    return found


def _file_of_jaas(environment: Mapping[str, str]) -> str:
    for word in shlex.split(environment.get("KAFKA_OPTS", "")):
        if word.startswith(_JAAS):
            path = word[len(_JAAS) :]
            break
    else:
        raise ConfigInvalid(
            f"{_BASIC} needs a file of logins: name it in {LOGINS}, or a JAAS file with KAFKA_OPTS={_JAAS}..."
        )
    try:
        entries = parse_file(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, CredentialsError) as error:
        raise ConfigInvalid(f"the JAAS file {path} cannot be used: {error}") from None
    for module in entries.get(_ENTRY, ()):
        if "file" in module.options:
            return module.options["file"]
    raise ConfigInvalid(f"the JAAS file {path} has no entry {_ENTRY} with an option file=")


class BasicLogin:
    """Answers 401 unless a request names a user and its password."""

    def __init__(self, app: ASGIApp, passwords: Mapping[str, str]) -> None:
        self._app = app
        self._passwords = passwords

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http" or self._knows(dict(scope["headers"]).get(b"authorization", b"")):
            await self._app(scope, receive, send)
            return
        from starlette.responses import PlainTextResponse

        refused = PlainTextResponse(
            "User cannot access the resource.", 401, {"WWW-Authenticate": 'Basic realm="Connect"'}
        )
        await refused(scope, receive, send)

    def _knows(self, header: bytes) -> bool:
        kind, _, given = header.partition(b" ")
        if kind.lower() != b"basic":
            return False
        try:
            user, _, password = base64.b64decode(given.strip(), validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        known = self._passwords.get(user)
        # Compared even for unknown users, so that the time says nothing.
        same = hmac.compare_digest((known or "").encode(), password.encode())
        return same and known is not None


# -- headers of answers


def header_rules(text: str) -> list[tuple[str, str, str]]:
    """Kafka's rules `[action] [name]:[value]`, separated by commas; one in quotes may hold commas.

    >>> header_rules('set X-Frame-Options: DENY, "add Cache-Control: no-cache, no-store"')
    [('set', 'X-Frame-Options', 'DENY'), ('add', 'Cache-Control', 'no-cache, no-store')]
    """
    rules = []
    for rule in next(csv.reader([text], skipinitialspace=True), []):
        if not rule.strip():
            continue
        action, _, header = rule.strip().partition(" ")
        name, colon, value = header.strip().partition(":")
        good = action in _ACTIONS and colon and _NAME.fullmatch(name.strip()) and value.isprintable()
        if not good or not value.isascii():
            raise ConfigInvalid(
                f"Invalid value {text} for configuration {HEADERS}: a rule looks like 'set X-Frame-Options: DENY'; "
                f"its action is one of {', '.join(_ACTIONS)}"
            )
        if action.endswith("Date") and not value.strip().isdigit():
            raise ConfigInvalid(
                f"Invalid value {text} for configuration {HEADERS}: {value.strip()} is no time in ms"
            )
        rules.append((action, name.strip(), value.strip()))
    return rules


class AnswerHeaders:
    """Adds headers to every answer."""

    def __init__(self, app: ASGIApp, rules: list[tuple[str, str, str]]) -> None:
        self._app = app
        self._rules = [(action, name.encode(), _value(action, value)) for action, name, value in rules]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                for action, name, value in self._rules:
                    if action.startswith("set"):
                        headers = [one for one in headers if one[0].lower() != name.lower()]
                    headers.append((name, value))
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, with_headers)


def _value(action: str, value: str) -> bytes:
    if action.endswith("Date"):
        value = format_datetime(datetime.fromtimestamp(int(value) / 1000, UTC), usegmt=True)
    return value.encode("ascii")
