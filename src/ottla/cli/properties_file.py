"""Properties files as Kafka's programs read them. Reading one does not load the table of a node's keys."""

from __future__ import annotations

from pathlib import Path

from ottla.config.errors import ConfigError
from ottla.config.properties import parse_properties


def read_properties(path: str) -> dict[str, str]:
    """The keys of a properties file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"Cannot read the configuration file {path}: {reason}") from None
    return parse_properties(text)


def read_client_properties(path: str) -> dict[str, str]:
    """The keys of a client's properties file, with the references to its providers replaced."""
    found = read_properties(path)
    if not found.get("config.providers"):
        return found
    from ottla.config.providers import resolved

    return resolved(found)
