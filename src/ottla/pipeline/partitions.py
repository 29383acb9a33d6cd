"""Chooses partitions for whole Arrow columns of keys, with murmur2 as Java's producer does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from ottla.client.partitioners import murmur2

if TYPE_CHECKING:
    import pyarrow as pa

_MIX: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
_POSITIVE: Final = np.uint32(0x7FFFFFFF)
_LONG_KEY: Final = 512
"""Keys longer than this are rare and hashed one by one."""

KEYLESS_RUN: Final = 500
"""This many records without a key go to one partition before the next partition gets some."""


def murmur2_column(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """The hash of each key of an Arrow binary array; a null has the hash of an empty key."""
    count = len(keys)
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + count + 1].astype(
        np.int64
    )
    data = keys.buffers()[2]
    sizes = np.diff(offsets)
    # Words are read past the end of the last key; the mask removes those bytes.
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    raw = np.concatenate([raw[: offsets[-1]], np.zeros(4, np.uint8)])
    long_ones = np.flatnonzero(sizes > _LONG_KEY)
    short = np.minimum(sizes, _LONG_KEY)
    with np.errstate(over="ignore"):
        hashes = _hash(raw, offsets[:-1], short)
    for at in long_ones.tolist():
        hashes[at] = murmur2(raw[offsets[at] : offsets[at + 1]].tobytes())
    return hashes


def _hash(
    raw: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    hashes = _SEED ^ sizes.astype(np.uint32)
    words = sizes >> 2
    everyone = np.arange(len(sizes))
    for word in range(int(words.max(initial=0))):
        rows = everyone if int(words.min(initial=0)) > word else np.flatnonzero(words > word)
        k = _words(raw, starts[rows] + 4 * word) * _MIX
        k ^= k >> np.uint32(24)
        hashes[rows] = (hashes[rows] * _MIX) ^ (k * _MIX)
    left = (sizes & 3).astype(np.uint32)
    rows = np.flatnonzero(left)
    if len(rows):
        mask = (np.uint32(1) << (left[rows] * np.uint32(8))) - np.uint32(1)
        tail = _words(raw, starts[rows] + 4 * words[rows]) & mask
        hashes[rows] = (hashes[rows] ^ tail) * _MIX
    hashes ^= hashes >> np.uint32(13)
    hashes *= _MIX
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _words(raw: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """The four bytes at each position, lowest first."""
    word = raw[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= raw[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def choose_partitions(keys: pa.Array | None, rows: int, partitions: int, turn: int) -> npt.NDArray[np.int32]:
    """A partition for each record; runs of records without a key go round the partitions, from `turn` on."""
    runs = ((turn + np.arange(rows) // KEYLESS_RUN) % partitions).astype(np.int32)
    if keys is None or keys.null_count == rows:
        return runs
    chosen = ((murmur2_column(keys) & _POSITIVE) % np.uint32(partitions)).astype(np.int32)
    if keys.null_count:
        missing = keys.is_null().to_numpy(zero_copy_only=False)
        chosen[missing] = runs[: int(missing.sum())]
    return chosen
