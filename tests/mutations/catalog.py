"""The list of mutations: each breaks one promise in the source, and names the tests that must notice it.

The lists are TOML files in `lists`. A mutation replaces a text that stands once in its file.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SOURCE = "src/ottla"


class TextNotFound(Exception):
    """The text to replace does not stand exactly once in its file: the mutation has to be written again."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of the source that breaks one promise."""

    name: str
    promise: str
    file: str
    """Below `src/ottla`."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Test files, folders or single tests, the cheapest that notice it."""

    @property
    def path(self) -> str:
        return f"{SOURCE}/{self.file}"

    def apply(self, text: str) -> str:
        """Return the broken source. Raises TextNotFound."""
        count = text.count(self.old)
        if count != 1:
            raise TextNotFound(f"{self.name}: its text stands {count} times in {self.file}: {self.old!r}")
        return text.replace(self.old, self.new)


def load(folder: Path = HERE / "lists") -> list[Mutation]:
    """Read all lists, in the order of their names."""
    found: list[Mutation] = []
    for file in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(file.read_text())["mutation"]:
            found.append(Mutation(**{**entry, "tests": tuple(entry["tests"])}))
    return found
