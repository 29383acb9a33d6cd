"""TLS to MySQL and MariaDB by Debezium's keys `database.ssl.*`, as arguments of PyMySQL."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.connect.config.definitions import ConfigDef, ConfigKey
from ottla.connect.failures import TaskFailed
from ottla.credentials.contexts import TlsConfig, client_context
from ottla.credentials.errors import CredentialsError
from ottla.credentials.secret import Secret
from ottla.credentials.stores import StoreSource

_PLAIN: Final = ("disabled", "disable")
_UNVERIFIED: Final = ("required", "trust")
_NAMED: Final = ("verify_identity", "verify-full")
MODES: Final = (*_PLAIN, "preferred", *_UNVERIFIED, "verify_ca", "verify-ca", *_NAMED)
"""Those of Debezium's connector for MySQL and those of its connector for MariaDB."""
_JKS: Final = b"\xfe\xed\xfe\xed"
KEYS: Final = ConfigDef(
    [
        ConfigKey(
            "database.ssl.mode",
            default="preferred",
            documentation="TLS to the database: off, where the server has it, or verified",
            valid=f"[{', '.join(MODES)}]",
        ),
        ConfigKey("database.ssl.keystore", default="", documentation="A certificate to log in with"),
        ConfigKey("database.ssl.keystore.password", "PASSWORD", "", documentation="Its password"),
        ConfigKey("database.ssl.truststore", default="", documentation="The server's authorities"),
        ConfigKey("database.ssl.truststore.password", "PASSWORD", "", documentation="Its password"),
    ]
)


def tls_arguments(values: Mapping[str, object]) -> dict[str, object]:
    """What PyMySQL's `connect` takes. TaskFailed if a store cannot be read."""
    mode = str(values["database.ssl.mode"])
    if mode in _PLAIN:
        return {"ssl_disabled": True}
    config = TlsConfig(
        _store(values, "database.ssl.keystore"),
        _store(values, "database.ssl.truststore"),
        verify_host_name=mode in _NAMED,
    )
    if mode == "preferred" and config.keystore is None:
        # PyMySQL itself asks for TLS, and goes on without it where the server has none.
        return {}
    try:
        context = client_context(config, datetime.datetime.now(datetime.UTC))
    except CredentialsError as error:
        raise TaskFailed(f"database.ssl: {error}") from None
    if mode in ("preferred", *_UNVERIFIED):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return {"ssl": context}


def _store(values: Mapping[str, object], key: str) -> StoreSource | None:
    """A store of PEM, JKS or PKCS12; its first bytes tell which."""
    location = str(values[key] or "")
    if not location:
        return None
    try:
        with Path(location).open("rb") as file:
            start = file.read(len(_JKS))
    except OSError as error:
        raise TaskFailed(f"{key}: {location} cannot be read: {error.strerror}") from None
    password = str(values[f"{key}.password"] or "")
    # A certificate alone may have text before it; the other two forms are binary.
    kind = "JKS" if start == _JKS else "PKCS12" if start[:1] == b"\x30" else "PEM"
    return StoreSource(
        kind, location, Secret(password) if password else None, Secret(password) if password else None
    )
