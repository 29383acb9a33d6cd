"""Keeps secrets out of everything that is shown: values of providers, and of keys that hold passwords."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.connect.config.definitions import HIDDEN
from ottla.credentials.secret import hide_login
from ottla.credentials.secret_keys import holds_secret

_SHORTEST: Final = 4
"""Shorter secrets are not looked for in texts: they would be found in every word."""


def masked(config: Mapping[str, str]) -> dict[str, str]:
    """A configuration for logs and pages."""
    return {
        key: HIDDEN if holds_secret(key) and value else hide_login(value) for key, value in config.items()
    }


class Redactor:
    """Replaces known secrets in texts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = sorted({one for one in secrets if len(one) >= _SHORTEST}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, found))) if found else None

    def __call__(self, text: str) -> str:
        return self._pattern.sub(HIDDEN, text) if self._pattern is not None else text


def secrets_of(resolved: Mapping[str, str], from_providers: Iterable[str]) -> Redactor:
    """The redactor of a connector's configuration."""
    named = [value for key, value in resolved.items() if value and holds_secret(key)]
    return Redactor([*named, *from_providers])
