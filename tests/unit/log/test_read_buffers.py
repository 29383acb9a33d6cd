"""Memory for reads: used again when nobody refers to it any more, and never before."""

from __future__ import annotations

import os
from pathlib import Path

from ottla.log.fs import OsFs
from ottla.log.read_buffers import READ_BUFFER_BYTES, ReadBuffers


def test_memory_is_used_again_once_the_last_view_is_gone() -> None:
    buffers = ReadBuffers()
    first = buffers.take(READ_BUFFER_BYTES)
    first[:5] = b"first"
    kept = first[:5]  # the transport holds a part of it
    del first
    second = buffers.take(READ_BUFFER_BYTES)
    second[:5] = b"other"
    assert bytes(kept) == b"first"
    memory = id(kept.obj)
    del kept
    assert id(buffers.take(READ_BUFFER_BYTES).obj) == memory


def test_the_buffer_that_was_used_last_is_used_next() -> None:
    buffers = ReadBuffers()
    views = [buffers.take(READ_BUFFER_BYTES) for _ in range(3)]
    del views
    used = {id(buffers.take(READ_BUFFER_BYTES).obj) for _ in range(5)}
    assert len(used) == 1


def test_only_a_few_buffers_are_kept_and_small_or_huge_reads_get_none() -> None:
    buffers = ReadBuffers()
    views = [buffers.take(READ_BUFFER_BYTES) for _ in range(20)]
    assert len({id(view.obj) for view in views}) == 20
    kept = {id(view.obj) for view in views[:8]}
    del views
    again = [buffers.take(READ_BUFFER_BYTES) for _ in range(8)]
    assert {id(view.obj) for view in again} == kept
    for size in (0, 1000, READ_BUFFER_BYTES + 1):
        assert len(buffers.take(size)) == size
        assert id(buffers.take(size).obj) not in kept


def test_what_was_read_before_stays_as_it_is(tmp_path: Path) -> None:
    """A client that takes its time still gets the bytes that were read for it."""
    file = OsFs().open(str(tmp_path / "log"), create=True)
    pieces = [os.urandom(200_000) for _ in range(20)]
    for piece in pieces:
        file.append([piece])
    slow = [file.pread(200_000, n * 200_000, nowait=True) for n in range(20)]
    for _ in range(3):
        for n in range(20):
            assert bytes(file.pread(200_000, n * 200_000, nowait=True)) == pieces[n]
    assert [bytes(view) for view in slow] == pieces
    file.close()
