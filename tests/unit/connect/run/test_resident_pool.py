"""Resident tasks that do not answer are given up, and their runs go on elsewhere."""

from __future__ import annotations

import threading
from multiprocessing.connection import Client

import pytest

from ottla.connect.failures import Retriable
from ottla.connect.run import resident_pool
from ottla.connect.run.resident_pool import ResidentPool
from ottla.connect.run.resident_task import PING, _Host
from ottla.connect.run.sealed import SealedConnection


@pytest.fixture
def pool(monkeypatch):
    monkeypatch.setattr(resident_pool, "_ASK_EVERY_S", 0.02)
    monkeypatch.setattr(resident_pool, "_SILENT_S", 2.0)
    found = ResidentPool(lambda: pytest.fail("there is no Spark here"))
    found._started = True
    yield found
    found.close()


def connected(pool):
    address = pool._listen("127.0.0.1").address
    return SealedConnection(Client(address, authkey=pool._key), pool._key, worker=False)


def test_a_silent_task_is_given_up_and_its_run_is_tried_again(pool):
    task = connected(pool)
    run = pool.run(None, threading.Event())
    assert len(pool) == 1
    with pytest.raises(Retriable, match="the resident Spark task was lost"):
        run.start()
    assert len(pool) == 0
    with pytest.raises((EOFError, OSError)):
        while True:
            assert task.recv()[1] in (PING, "start")
    task.close()


def test_a_task_that_answers_is_kept(pool, monkeypatch):
    task = connected(pool)
    asked = threading.Event()
    receive, questions = task.recv, []

    def counted():
        message = receive()
        questions.append(message)
        if len(questions) == 30:
            asked.set()
        return message

    monkeypatch.setattr(task, "recv", counted, raising=False)
    ended: list[BaseException] = []

    def serve():
        try:
            _Host(task).serve(7)
        except (EOFError, OSError) as error:
            ended.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    assert asked.wait(30)
    assert len(pool) == 1
    assert pool._residents[0].attempt == 7
    pool.close()
    thread.join()
    assert ended == []
