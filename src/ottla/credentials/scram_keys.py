"""What a cluster keeps of a SCRAM password (RFC 5802): keys derived from it, never the password."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The mechanisms, with their hash functions by hashlib's names."""
MIN_ITERATIONS: Final = 4096
DEFAULT_ITERATIONS: Final = 8192
"""What our tools choose. Kafka's choose 4096; the client pays for it, once for each login."""
MAX_ITERATIONS: Final = 16384
"""Kafka's bounds for the credentials that it stores."""


class ScramKeys(NamedTuple):
    """The keys that a server needs to verify a client and to prove itself."""

    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "ScramKeys()"


def derive_keys(hash_name: str, salted_password: bytes) -> ScramKeys:
    """The keys of a salted password."""
    client_key = hmac.digest(salted_password, b"Client Key", hash_name)
    return ScramKeys(
        hashlib.new(hash_name, client_key).digest(),
        hmac.digest(salted_password, b"Server Key", hash_name),
    )
