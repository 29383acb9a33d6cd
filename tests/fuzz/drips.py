"""`make drips`: the p99 of good clients beside thousands of connections that send a byte now and then.

It is measured in turns, alone and beside them, on one broker; at most twice is the promise. A figure from a busy
machine says nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import multiprocessing.synchronize
import resource
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from ottla.records.batch import build_batch
from ottla.records.record import Record
from ottla.testing.process import BrokerProcess
from ottla.testing.raw_client import RawClient
from ottla.testing.tally import TallyError, open_tally
from ottla.wire import messages

TOPIC = "good"
MOST_TIMES = 2.0
_PER_ADDRESS = 2000
_SPARE_DESCRIPTORS = 500
_BYTE_EACH_S = 2.0
_GOOD_EACH_S = 0.002
_ROUNDS = 5
_SETTINGS: dict[str, object] = {"socket.listen.backlog.size": 4096, "connections.max.idle.ms": 600_000}
"""Longer than the run: otherwise the broker closes them, which is a test of its own."""


def drip(host: str, port: int, count: int, ready: object, end: multiprocessing.synchronize.Event) -> None:
    """Hold so many connections in this process, and send a byte of an announced request on each again and again."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    opened = []
    for number in range(count):
        sock = socket.socket()
        sock.bind((f"127.0.0.{2 + number // _PER_ADDRESS}", 0))
        sock.connect((host, port))
        sock.sendall(struct.pack(">i", 10_000))
        opened.append(sock)
    ready.set()  # type: ignore[attr-defined]
    while not end.is_set():
        # Spread over the time, as slow clients are.
        for first in range(0, count, 100):
            for sock in opened[first : first + 100]:
                sock.send(b"\0")
            if end.wait(_BYTE_EACH_S * 100 / count):
                break


@contextlib.contextmanager
def dripping(broker: BrokerProcess, count: int) -> Iterator[None]:
    ready, end = multiprocessing.Event(), multiprocessing.Event()
    child = multiprocessing.Process(target=drip, args=(broker.host, broker.port, count, ready, end))
    child.start()
    try:
        if not ready.wait(120):
            raise RuntimeError(f"{count} connections could not be opened")
        yield
        if not child.is_alive():
            raise RuntimeError("the slow connections ended before the measurement")
    finally:
        end.set()
        child.join(60)


def p99_ms(broker: BrokerProcess, count: int) -> float:
    """Produce and read metadata in turns at a steady pace; the 99th percentile of the times."""
    request = messages.ProduceRequest
    took: list[float] = []
    pace = threading.Event()
    with RawClient(broker.host, broker.port) as client:
        for number in range(count):
            batch = bytes(build_batch([Record(0, 1_700_000_000_000, None, b"x" * 100, [])]))
            asked = (
                request(
                    acks=1,
                    timeout_ms=10_000,
                    topic_data=[
                        request.TopicProduceData(
                            name=TOPIC, partition_data=[request.PartitionProduceData(index=0, records=batch)]
                        )
                    ],
                )
                if number % 2
                else messages.MetadataRequest(topics=[])
            )
            began = time.perf_counter()
            client.ask(asked, 9 if number % 2 else 12)
            took.append(time.perf_counter() - began)
            pace.wait(_GOOD_EACH_S)
    return sorted(took)[int(len(took) * 0.99)] * 1000


def measure(connections: int, requests: int, rounds: int = _ROUNDS) -> tuple[float, float]:
    """Return the p99 in ms, alone and beside slow connections: the medians of rounds in turns."""
    alone, beside = [], []
    with (
        tempfile.TemporaryDirectory(prefix="ottla-drips-") as directory,
        BrokerProcess(
            Path(directory) / "data",
            settings={
                **_SETTINGS,
                "max.connections": connections + 100,
                "max.connections.per.ip": connections,
            },
        ) as broker,
    ):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
        p99_ms(broker, requests)
        for _ in range(rounds):
            alone.append(p99_ms(broker, requests))
            with dripping(broker, connections):
                beside.append(p99_ms(broker, requests))
    return sorted(alone)[rounds // 2], sorted(beside)[rounds // 2]


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m fuzz.drips", description=__doc__)
    words.add_argument("--connections", type=int, default=5000)
    words.add_argument("--requests", type=int, default=2000, help="of good clients, in each turn")
    given = words.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < given.connections + _SPARE_DESCRIPTORS:
        sys.exit(
            f"needs {given.connections + _SPARE_DESCRIPTORS} open files, the limit is {hard}: raise ulimit -Hn"
        )
    began = time.monotonic()
    try:
        tally = open_tally()
        alone, beside = measure(given.connections, given.requests)
        text = f"p99 {alone:.2f} ms alone, {beside:.2f} ms beside {given.connections} slow connections"
        failures = [] if beside <= MOST_TIMES * alone else [f"{text}: more than {MOST_TIMES:g} times"]
        tally.add(
            "drips",
            str(given.connections),
            {
                "connections": given.connections,
                "p99 alone (us)": alone * 1000,
                "p99 beside (us)": beside * 1000,
            },
            failures=failures,
            seconds=time.monotonic() - began,
        )
    except TallyError as error:
        sys.exit(str(error))
    print(f"{text}: {beside / alone:.2f}x")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
