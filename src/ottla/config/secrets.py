"""Keys whose values must not be shown, and the texts of a configuration, whose `repr` and pickles hold none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

from ottla.config.definitions import BROKER_KEYS
from ottla.config.synonyms import base_of_listener_key
from ottla.credentials.secret import HIDDEN
from ottla.credentials.secret_keys import holds_secret


def is_secret(name: str) -> bool:
    """Whether the value of a key is a password, a private key or a JAAS text."""
    definition = BROKER_KEYS.get(base_of_listener_key(name) or name)
    return holds_secret(name) if definition is None else definition.sensitive


class ConfigTexts(Mapping[str, str]):
    """The text of each key as it was given. It never changes."""

    __slots__ = ("_texts",)

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)

    def __getitem__(self, key: str) -> str:
        return self._texts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        shown = {key: HIDDEN if is_secret(key) else text for key, text in self._texts.items()}
        return f"ConfigTexts({shown})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a node's configuration must not leave the process: it may hold passwords")
