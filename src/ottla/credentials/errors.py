"""What can be wrong with credentials that somebody configured."""

from __future__ import annotations


class CredentialsError(ValueError):
    """A key store, certificate, login module or password cannot be used; the text says why and never quotes it."""
