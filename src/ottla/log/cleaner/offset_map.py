"""The memory of a cleaning: the last offset of each key, in a table that never holds more than it was given.

Keys of up to 19 bytes stand for themselves, longer ones for their 20-byte digest, so that the two never meet.
"""

from __future__ import annotations

from hashlib import blake2b

ENTRY_BYTES = 192
"""What an entry costs: the key or digest (up to 53 bytes), the offset (32), the dict's slot as it grows (about 104)."""

_DIGEST_BYTES = 20


def key_of(key: bytes) -> bytes:
    """What the table knows a record's key by."""
    if len(key) < _DIGEST_BYTES:
        return key
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


class OffsetMap:
    """Last offset by key. `latest_offset` is how far the log has been read into it."""

    __slots__ = ("_limit", "latest_offset", "offsets")

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        self._limit = max(1, int(memory_bytes * load_factor) // ENTRY_BYTES)
        self.offsets: dict[bytes, int] = {}
        """By `key_of` the key; read by the filter's inner loop."""
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def full(self) -> bool:
        return len(self.offsets) >= self._limit

    def put(self, key: bytes, offset: int) -> None:
        self.offsets[key_of(key)] = offset

    def get(self, key: bytes) -> int:
        """The last offset of a key, or -1."""
        return self.offsets.get(key_of(key), -1)

    def read_up_to(self, offset: int) -> None:
        if offset > self.latest_offset:
            self.latest_offset = offset
