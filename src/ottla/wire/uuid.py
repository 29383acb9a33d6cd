"""Kafka's UUIDs: sixteen raw bytes on the wire, 22 characters of url-safe base64 for people."""

from __future__ import annotations

import base64
import binascii
from typing import Final

ZERO_UUID: Final = bytes(16)
"""No id."""

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
"""The id of `__cluster_metadata`."""


def uuid_to_str(raw: bytes) -> str:
    """The text form that Kafka's tools print and its files hold."""
    if len(raw) != 16:
        raise ValueError(f"a UUID has 16 bytes, not {len(raw)}")
    return base64.urlsafe_b64encode(raw)[:22].decode("ascii")


def uuid_from_str(text: str) -> bytes:
    """The sixteen bytes of the text form; ValueError for anything else."""
    if len(text) > 24 or "+" in text or "/" in text:
        raise ValueError(f"{text!r} is not a UUID in url-safe base64")
    try:
        raw = base64.b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a UUID in url-safe base64") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} decodes to {len(raw)} bytes; a UUID has 16")
    return raw
