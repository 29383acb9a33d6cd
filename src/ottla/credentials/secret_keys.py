"""Which settings hold secrets, by their names: the one list for brokers, tools, Connect, pipelines and pages.

Kafka's own tables say it by type (PASSWORD); a test holds this list to them. Names that nobody has declared, such as
those of a connector, are judged by their words.
"""

from __future__ import annotations

import re
from typing import Final

_BOUNDARY: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS: Final = re.compile(r"[._\-]+")

_ANYWHERE: Final = frozenset({"password", "passwd", "passphrase", "secret", "secrets"})
_AT_THE_END: Final = frozenset({"token", "credential", "credentials", "pem", "jaas"})
"""Elsewhere these words belong to a place, a time or a name: `token.endpoint.url`."""
_ENDINGS: Final = (
    ("api", "key"),
    ("private", "key"),
    ("keystore", "key"),
    ("secret", "key"),
    ("credentials", "json"),
    ("certificate", "chain"),
    ("truststore", "certificates"),
    ("jaas", "config"),
    ("oauthbearer", "config"),
    ("basic", "auth", "user", "info"),
)
_LOCATIONS: Final = frozenset(
    {"file", "location", "path", "url", "class", "provider", "ms", "seconds", "iterations"}
)
"""A name with such an ending says where a secret is, or how long it lasts, and is none itself."""


def holds_secret(name: str) -> bool:
    """Whether the value of a setting is a password, a token, a private key or a text with one in it."""
    words = [word.lower() for word in _SEPARATORS.split(_BOUNDARY.sub(".", name)) if word]
    if not words or words[-1] in _LOCATIONS:
        return False
    if words[-1] in _AT_THE_END or not _ANYWHERE.isdisjoint(words):
        return True
    return any(tuple(words[-len(ending) :]) == ending for ending in _ENDINGS)
