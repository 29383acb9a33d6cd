"""The connection of resident tasks: messages arrive, nothing can be read on the way, and changes are noticed."""

from __future__ import annotations

import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest

from ottla.connect.run.sealed import SealedConnection

KEY = b"k" * 32


def sealed_pair(
    worker_key: bytes, task_key: bytes
) -> tuple[SealedConnection[str] | OSError, SealedConnection[str] | OSError, Connection, Connection]:
    """Both ends of a connection; what went wrong in place of an end that refuses the other."""
    left, right = Pipe()
    found: dict[str, SealedConnection[str] | OSError] = {}

    def make(name: str, end: Connection, key: bytes) -> None:
        try:
            found[name] = SealedConnection(end, key, worker=name == "worker")
        except OSError as error:
            found[name] = error

    other = threading.Thread(target=make, args=("task", right, task_key))
    other.start()
    make("worker", left, worker_key)
    other.join()
    return found["worker"], found["task"], left, right


def test_messages_arrive_in_order_and_are_not_readable_on_the_way() -> None:
    worker, task, left, right = sealed_pair(KEY, KEY)
    assert isinstance(worker, SealedConnection) and isinstance(task, SealedConnection)
    for text in ("one", "two"):
        worker.send(text)
        assert task.recv() == text
        task.send(text.upper())
        assert worker.recv() == text.upper()
    worker.send("password=geheim")
    frame = right.recv_bytes()
    assert b"geheim" not in frame
    left.send_bytes(frame)
    assert task.recv() == "password=geheim"
    left.send_bytes(frame)  # once more: the number of the frame is another one then
    with pytest.raises(OSError, match="changed on its way"):
        task.recv()


def test_a_changed_frame_and_a_wrong_key_are_refused() -> None:
    worker, task, left, right = sealed_pair(KEY, KEY)
    assert isinstance(worker, SealedConnection) and isinstance(task, SealedConnection)
    worker.send("text")
    frame = bytearray(right.recv_bytes())
    frame[0] ^= 1
    left.send_bytes(bytes(frame))
    with pytest.raises(OSError, match="changed on its way"):
        task.recv()
    for end in sealed_pair(KEY, b"x" * 32)[:2]:
        assert isinstance(end, OSError) and "does not know the key" in str(end)
