"""Encodes a record batch around a section of records: compression, the header of 61 bytes, the checksum."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from ottla.records.codecs import compress

if TYPE_CHECKING:
    from ottla.pipeline.columns import Section

_FRONT: Final = struct.Struct(">qiibI")
_UNDER_CRC: Final = struct.Struct(">hiqqqhii")
_LENGTH_WITHOUT_BODY: Final = 49
_MAGIC: Final = 2
_TRANSACTIONAL: Final = 0x10


def encode_batch(
    section: Section,
    *,
    producer_id: int,
    epoch: int,
    sequence: int,
    compression: int = 0,
    transactional: bool = False,
) -> tuple[bytes, bytes | memoryview]:
    """The batch's header and its body: two buffers, so that an uncompressed body is not copied."""
    body = compress(compression, section.body) if compression else section.body
    under_crc = _UNDER_CRC.pack(
        compression | (_TRANSACTIONAL if transactional else 0),
        section.count - 1,
        section.base_timestamp,
        section.max_timestamp,
        producer_id,
        epoch,
        sequence,
        section.count,
    )
    crc = crc32c(body, crc32c(under_crc))
    return _FRONT.pack(0, _LENGTH_WITHOUT_BODY + len(body), -1, _MAGIC, crc) + under_crc, body
