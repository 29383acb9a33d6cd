"""Configuration providers: `${file:PATH:KEY}`, `${directory:PATH:FILE}` and `${env:NAME}` in the place of values.

`config.providers` of the static file names them, with Kafka's classes and parameters. Nothing else is ever loaded,
and nothing that a client sends chooses a provider or its limits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.config.errors import ConfigError
from ottla.config.properties import parse_properties

PREFIX: Final = "config.providers."
_NAMES_KEY: Final = "config.providers"
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_FILE, _DIRECTORY, _ENVIRONMENT = "FileConfigProvider", "DirectoryConfigProvider", "EnvVarConfigProvider"
_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")
MAX_BYTES: Final = 1 << 20
"""The largest file that a provider reads."""


def is_reference(text: str) -> bool:
    """Whether a value is one reference to a provider and nothing else."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def has_reference(text: str, provider: str) -> bool:
    """Whether a value names something of this provider."""
    return any(found[1] == provider for found in _REFERENCE.finditer(text))


class Providers:
    """The providers that a configuration names. Raises ConfigError for one that it cannot have."""

    __slots__ = ("_kinds", "_texts")

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._kinds: dict[str, str] = {}
        for name in filter(None, (word.strip() for word in texts.get(_NAMES_KEY, "").split(","))):
            key = f"{PREFIX}{name}.class"
            kind = texts.get(key, "").strip().removeprefix(_PACKAGE)
            if kind not in (_FILE, _DIRECTORY, _ENVIRONMENT):
                expected = ", ".join(_PACKAGE + each for each in (_FILE, _DIRECTORY, _ENVIRONMENT))
                raise ConfigError.bad_value(key, texts.get(key), f"one of {expected}")
            self._kinds[name] = kind

    def resolve(self, key: str, text: str) -> str:
        """The value of a key with each reference replaced. Text that names no known provider stays."""
        if not self._kinds or "${" not in text:
            return text

        def value(match: re.Match[str]) -> str:
            name, path, item = match.groups()
            if name not in self._kinds:
                return match[0]
            try:
                return self._value(name, path, item)
            except ValueError as error:
                raise ConfigError(
                    f"Cannot resolve {match[0]} of configuration {key}: {error}", key=key
                ) from None
            except OSError as error:
                reason = error.strerror or "it cannot be read"
                raise ConfigError(
                    f"Cannot resolve {match[0]} of configuration {key}: {reason}", key=key
                ) from None

        return _REFERENCE.sub(value, text)

    def _value(self, name: str, path: str | None, item: str) -> str:
        kind = self._kinds[name]
        if kind == _ENVIRONMENT:
            allowed = self._parameter(name, "allowlist.pattern")
            if path or (allowed and re.fullmatch(allowed, item) is None):
                raise ValueError(f"{PREFIX}{name}.param.allowlist.pattern does not allow it")
            if item not in os.environ:
                raise ValueError(f"there is no environment variable {item}")
            return os.environ[item]
        if not path:
            raise ValueError("it names no path")
        self._check_path(name, path)
        if kind == _FILE:
            found = parse_properties(_read(Path(path)))
            if item not in found:
                raise ValueError(f"the file has no key {item}")
            return found[item]
        if not item or item != os.path.basename(item) or item in (".", ".."):
            raise ValueError(f"{item} is not the name of a file in that directory")
        self._check_path(name, os.path.join(path, item))
        return _read(Path(path) / item)

    def _check_path(self, name: str, path: str) -> None:
        """Refuse what is outside of `allowed.paths`, links followed."""
        allowed = self._parameter(name, "allowed.paths")
        if not allowed:
            return
        real = os.path.realpath(path)
        roots = [os.path.realpath(word.strip()) for word in allowed.split(",") if word.strip()]
        if not any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots):
            raise ValueError(f"{PREFIX}{name}.param.allowed.paths does not allow it")

    def _parameter(self, name: str, parameter: str) -> str:
        return self._texts.get(f"{PREFIX}{name}.param.{parameter}", "").strip()


def _read(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"the file is larger than {MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("the file is not UTF-8 text") from None


def resolved(texts: Mapping[str, str]) -> dict[str, str]:
    """All values of a properties file, with the references of its own providers replaced."""
    providers = Providers(texts)
    return {
        key: text if key.startswith(_NAMES_KEY) else providers.resolve(key, text)
        for key, text in texts.items()
    }
