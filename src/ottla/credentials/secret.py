"""A text that must not be shown: no `repr`, no pickling, comparison in constant time."""

from __future__ import annotations

import re
from typing import Final, NoReturn

HIDDEN: Final = "[hidden]"
"""What Kafka prints in the place of a secret."""
_LOGIN: Final = re.compile(r"(?<=://)[^/\s@]+@")


def hide_login(text: str) -> str:
    """A text in which addresses have no user and password: `http://ann:secret@host` is `http://[hidden]@host`."""
    return _LOGIN.sub(f"{HIDDEN}@", text)


class Secret:
    """Holds a password or key. `reveal` is the only way to its text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the call that needs it."""
        return self._text

    def matches(self, other: str) -> bool:
        """Whether the other text is equal, in a time that does not depend on where they differ."""
        # Loaded where a secret is compared: OpenSSL's digests come with it.
        import hmac

        return hmac.compare_digest(self._text.encode(), other.encode())

    def __eq__(self, other: object) -> bool:
        return self.matches(other._text) if isinstance(other, Secret) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret must not leave the process")
