"""Records as a Parquet file that is written while it is sent. Needs pyarrow, which is loaded with the first file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_GROUP_RECORDS: Final = 50_000
_GROUP_CHARS: Final = 16 << 20
"""A row group ends at one of the two: readers skip whole groups, and what waits in memory stays small."""


class Cells(NamedTuple):
    """A record as texts, as the page shows it."""

    timestamp: int
    partition: int
    offset: int
    key: str | None
    value: str | None
    headers: Sequence[tuple[str, str | None]]


def is_installed() -> bool:
    """Whether Parquet files can be written here."""
    return find_spec("pyarrow") is not None


class _Sink(io.RawIOBase):
    """Keeps what is written, in order, until somebody takes it."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken


class Parquet:
    """A file with a row per record; headers are an array of key and value, as in Spark's Kafka source."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[Cells] = []
        self._chars = 0

    def add(self, records: Sequence[Cells]) -> bytes:
        """The bytes that can go out: none, until a row group is full."""
        self._waiting += records
        self._chars += sum(len(each.key or "") + len(each.value or "") for each in records)
        if len(self._waiting) >= _GROUP_RECORDS or self._chars >= _GROUP_CHARS:
            self._write()
        return self._sink.take()

    def end(self) -> bytes:
        """The last row group and the footer."""
        self._write()
        assert self._writer is not None
        self._writer.close()
        return self._sink.take()

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        header = pa.struct([("key", pa.string()), ("value", pa.string())])
        schema = pa.schema(
            [
                ("timestamp", pa.timestamp("ms", tz="UTC")),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("key", pa.string()),
                ("value", pa.string()),
                ("headers", pa.list_(header)),
            ]
        )
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")
        rows, self._waiting, self._chars = self._waiting, [], 0
        if not rows:
            return
        columns = dict(zip(Cells._fields, map(list, zip(*rows, strict=True)), strict=True))
        columns["headers"] = [[{"key": name, "value": text} for name, text in each.headers] for each in rows]
        self._writer.write_table(pa.table(columns, schema))
