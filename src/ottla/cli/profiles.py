"""Profiles: clusters by name with their addresses and credentials, in a file that only its owner can read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla.credentials.secret import hide_login
from ottla.credentials.secret_keys import holds_secret
from ottla.errors import ApiException, ErrorCode

_ONLY_OWNER: Final = 0o600


@dataclass(slots=True)
class Profile:
    """One cluster."""

    bootstrap: str
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Profiles:
    """All profiles of a user, and which of them is the current one."""

    current: str | None = None
    by_name: dict[str, Profile] = field(default_factory=dict)

    def named(self, name: str) -> Profile:
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "there are none yet"
            raise ApiException(
                ErrorCode.INVALID_REQUEST,
                f"there is no profile '{name}' ({known}); `ottla profile set {name} --bootstrap-server"
                " HOST:PORT` makes it",
            )
        return self.by_name[name]


def path() -> Path:
    """The path of the file, under XDG_CONFIG_HOME if that is set."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "ottla" / "profiles.json"


def load() -> Profiles:
    """The profiles of the file; none if there is no file."""
    try:
        document: dict[str, Any] = json.loads(path().read_text())
        return Profiles(
            document.get("current"),
            {name: Profile(**fields) for name, fields in document["profiles"].items()},
        )
    except FileNotFoundError:
        return Profiles()
    except (ValueError, KeyError, TypeError) as error:
        raise ApiException(ErrorCode.INVALID_REQUEST, f"{path()} is damaged: {error}") from None


def save(profiles: Profiles) -> None:
    """Replace the file; it is never readable for other users, not even for a moment."""
    document = {
        "current": profiles.current,
        "profiles": {
            name: {"bootstrap": each.bootstrap, "properties": each.properties}
            for name, each in sorted(profiles.by_name.items())
        },
    }
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = file.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _ONLY_OWNER), "w") as out:
        json.dump(document, out, indent=2)
        out.write("\n")
    fresh.replace(file)


def shown(properties: Mapping[str, str]) -> dict[str, str]:
    """Settings without their secrets, for output."""
    return {key: "(hidden)" if holds_secret(key) else hide_login(value) for key, value in properties.items()}
