"""Workers and the broker are killed and paused while a file grows: each line arrives once, the copy equals the file."""

from __future__ import annotations

import os
import random
import signal
import threading

import pytest

from chaos.connect_workers import LONG, WorkerProcess, broker_process
from integration.connect_rest import STRINGS, eventually
from ottla import KafkaConsumer
from ottla.testing.ports import free_ports

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("OTTLA_CONNECT_KILLS", "5"))
PATIENCE_S = 180


def keys(bootstrap, port):
    return {
        **STRINGS,
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "group.id": "kills",
        "config.storage.topic": "kills-configs",
        "offset.storage.topic": "kills-offsets",
        "status.storage.topic": "kills-status",
        "offset.storage.partitions": "2",
        "heartbeat.interval.ms": "300",
        "session.timeout.ms": "6000",
        "ottla.cycle.max.bytes": "2000",
        "ottla.poll.interval.ms": "5",
    }


def started(broker, folder):
    (port,) = free_ports(1)
    return WorkerProcess(folder, port, keys(broker.bootstrap, port)).start().ready()


def position(worker):
    code, answer = worker.rest.call("GET", "/connectors/grow/offsets")
    return answer["offsets"][0]["offset"]["position"] if code == 200 and answer["offsets"] else 0


def read(bootstrap, count):
    """The lines of the topic: so many, and those that come after them within a moment."""
    consumer = KafkaConsumer(
        "grow", bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    found = []
    while came := consumer.poll(1000 * PATIENCE_S if len(found) < count else 1000):
        found += [record.value.decode() for records in came.values() for record in records]
    consumer.close()
    return found


@pytest.mark.parametrize("apache", [False, True] if LONG else [False], ids=["ottla", "apache"][: 1 + LONG])
def test_each_line_arrives_once_though_workers_are_killed_and_paused(tmp_path, apache):
    source, copy = tmp_path / "in.txt", tmp_path / "out.txt"
    source.touch()
    drawn = random.Random(7)
    written = threading.Event()
    lines = 0

    def write():
        nonlocal lines
        with source.open("a", buffering=1) as file:
            while not written.wait(0.002):
                file.write(f"line {lines}\n")
                lines += 1

    with broker_process(tmp_path, apache=apache) as broker:
        workers = [started(broker, tmp_path) for _ in range(2)]
        writer = threading.Thread(target=write)
        try:
            rest = workers[0].rest
            rest.create("grow", connector_class="FileStreamSource", file=str(source), topic="grow")
            rest.create("copy", connector_class="FileStreamSink", file=str(copy), topics="grow")
            writer.start()
            for number in range(ROUNDS):
                before = copy.stat().st_size if copy.exists() else 0
                eventually(
                    lambda before=before: copy.exists() and copy.stat().st_size > before + 200, PATIENCE_S
                )
                victim = drawn.choice(workers)
                if number % 5 == 2:
                    broker.kill()
                    broker.start()
                elif number % 2:
                    # Longer than the session: the others take over, and it wakes as a zombie.
                    victim.signal(signal.SIGSTOP)
                    other = workers[1 - workers.index(victim)]
                    before = position(other.ready())
                    eventually(lambda other=other, before=before: position(other) > before + 200, PATIENCE_S)
                    victim.signal(signal.SIGCONT)
                else:
                    victim.kill()
                    victim.start()
            written.set()
            writer.join()
            eventually(lambda: copy.read_bytes() == source.read_bytes(), PATIENCE_S)
        finally:
            written.set()
            for one in workers:
                one.signal(signal.SIGCONT)
                one.kill()
        assert read(broker.bootstrap, lines) == [f"line {number}" for number in range(lines)]
