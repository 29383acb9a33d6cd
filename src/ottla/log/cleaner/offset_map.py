"""The offset map of a cleaning: the last offset of each key, in a table of limited memory.

Keys of up to 19 bytes are stored as they are, longer keys as their 20-byte digest, so the two never collide.
"""

from __future__ import annotations

from hashlib import blake2b

ENTRY_BYTES = 192
"""The memory of an entry: key or digest (up to 53 bytes), offset (32), slot of the growing dict (about 104)."""

_DIGEST_BYTES = 20


def key_of(key: bytes) -> bytes:
    """Return the table's key for a record's key."""
    if len(key) < _DIGEST_BYTES:
        return key
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


class OffsetMap:
    """The last offset by key. The map covers the log up to `latest_offset`."""

    __slots__ = ("_limit", "latest_offset", "offsets")

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        self._limit = max(1, int(memory_bytes * load_factor) // ENTRY_BYTES)
        self.offsets: dict[bytes, int] = {}
        """Offsets by `key_of(key)`; the filter's inner loop reads it."""
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
