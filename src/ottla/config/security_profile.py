"""The words of `ottla.security.profile`, for all layers. `security/profile.py` has what the profile looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.config.errors import ConfigError

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

STANDARD: Final = "standard"
STRICT: Final = "strict"
PROFILE_KEY: Final = "ottla.security.profile"


def is_strict(config: BrokerConfig) -> bool:
    """Whether the profile refuses what is not safe. Raises ConfigError for a word that is no profile."""
    text = config.static.get(PROFILE_KEY, STANDARD).strip().lower()
    if text not in (STANDARD, STRICT):
        raise ConfigError.bad_value(PROFILE_KEY, text, f"{STANDARD} or {STRICT}")
    return text == STRICT
