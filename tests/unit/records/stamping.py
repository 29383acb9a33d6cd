"""Changes of a batch's header that tests make, with a new checksum."""

from __future__ import annotations

from ottla.records.batch import HEADER_SIZE, pack_header, read_header, with_timestamps


def stamp_max_timestamp(batch: bytearray, pos: int, timestamp_type: int, max_timestamp: int) -> None:
    """Set timestamp type and max timestamp of the batch at `pos`."""
    header = read_header(batch, pos)
    body = memoryview(batch)[pos + HEADER_SIZE : pos + header.size_in_bytes]
    batch[pos : pos + HEADER_SIZE] = pack_header(
        with_timestamps(header, bytes(body), timestamp_type, max_timestamp)
    )
