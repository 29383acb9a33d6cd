"""Hostile input: everything that reads bytes on its own, then a broker process on both its listeners: `make fuzz`."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from fuzz import hostile_peer
from fuzz.counting import ALL_TARGETS, FRAMES, go_on, lying_quorums, pieces
from fuzz.frames import good_request, mutate
from fuzz.harness import Report, run_all
from ottla.testing.cluster import Cluster
from ottla.testing.process import BrokerProcess
from ottla.testing.tally import TallyError, open_tally
from ottla.wire import decode_prefix, messages

TOPIC = "fuzzed"
WITNESS = "witness"
FRAMES_PER_CONNECTION = 50
MAX_RSS_MB = 400


def served_apis(address: tuple[str, int]) -> list[tuple[int, int, int]]:
    """(key, lowest, highest version) of what the broker says it serves."""
    with socket.create_connection(address, 60) as connection:
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        body = stream.read(size)
    response, _ = decode_prefix(messages.ApiVersionsResponse, 0, body, 4)
    apis = [(api.api_key, api.min_version, api.max_version) for api in response.api_keys]
    return [(key, 3 if key == 0 else low, high) for key, low, high in apis]


def throw(address: tuple[str, int], frames: list[bytes]) -> None:
    """Send frames down one connection; the broker may answer, or hang up at the first bad one."""
    with socket.create_connection(address, 60) as connection, contextlib.suppress(ConnectionError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"".join(frames))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def frame(rng: random.Random, body: bytearray) -> bytes:
    """Mostly an honest length in front; now and then one that lies."""
    size = len(body) if rng.random() < 0.97 else rng.choice((0, -1, 1, 1 << 20, 2**31 - 1, len(body) + 1))
    return struct.pack(">i", size) + body


def serves_still(broker: BrokerProcess, offset: int) -> None:
    """A record goes in and comes out: the broker is whole."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(WITNESS, b"%d" % offset, partition=0)
    assert producer.flush(60) == 0, f"the broker does not take records any more\n{broker.log[-3000:]}"
    # It commits nothing: on one node there is no topic for offsets by default, and closing would wait for it.
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(WITNESS, 0, offset)])
    message = consumer.poll(60)
    assert message is not None and message.value() == b"%d" % offset, broker.log[-3000:]
    consumer.close()


def rss_mb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 >> 20


def fuzz(broker: BrokerProcess, count: int, seed: int, controller: tuple[str, int] | None = None) -> None:
    """Every API and version that the broker serves; with `controller` its controller listener too."""
    rng = random.Random(seed)
    doors = [(broker.host, broker.port), *([controller] if controller else [])]
    apis = {door: served_apis(door) for door in doors}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 1, 1), NewTopic(WITNESS, 1, 1)]).values():
        future.result(60)
    checks = 0
    for first in range(0, count, FRAMES_PER_CONNECTION):
        door = rng.choice(doors)
        frames = []
        for _ in range(FRAMES_PER_CONNECTION):
            body = good_request(rng, apis[door], TOPIC)
            frames.append(frame(rng, mutate(rng, body) if rng.random() < 0.8 else body))
        # A broken frame ends its connection, so most go alone.
        for group in [frames] if rng.random() < 0.1 else [[one] for one in frames]:
            throw(door, group)
        if first // FRAMES_PER_CONNECTION % 100 == 0:
            serves_still(broker, checks)
            checks += 1
            assert rss_mb(broker.pid) < MAX_RSS_MB, "the broker's memory grows with hostile input"
    serves_still(broker, checks)


@contextlib.contextmanager
def fuzzed_broker(directory: Path) -> Iterator[tuple[BrokerProcess, tuple[str, int]]]:
    """A broker that is its own controller, and where its controller listener is."""
    cluster = Cluster(
        directory, 1, settings={"auto.create.topics.enable": "false", "default.replication.factor": 1}
    )
    place = cluster.plans[1].controller
    assert place is not None
    try:
        cluster.start()
        yield cluster.nodes[1], (place.host, place.port)
        assert cluster.stop(1) == 0, cluster.log(1)
        assert "Traceback" not in cluster.log(1), cluster.log(1)[-5000:]
    finally:
        cluster.kill_all()


def print_report(report: Report) -> None:
    outcomes = ", ".join(f"{count} {name}" for name, count in report.outcomes.most_common())
    print(
        f"{report.target:20} {report.cases:8} cases  slowest {report.slowest_s * 1000:5.1f} ms"
        f"  beside its input {report.heap_bytes / 1024:6.0f} KiB  {outcomes}",
        flush=True,
    )


def frames_to_a_broker(seed: int) -> int:
    """Send the frames of a seed to a broker of their own; returns their number."""
    with (
        tempfile.TemporaryDirectory(prefix="ottla-fuzz-") as directory,
        fuzzed_broker(Path(directory)) as (broker, controller),
    ):
        fuzz(broker, FRAMES, seed, controller)
    return FRAMES


OTHERS = {"lying controllers": lying_quorums, "frames to a broker": frames_to_a_broker}


def counted(count: int, jobs: int) -> int:
    """Go on with the cases of this build; returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return go_on(pieces(count, ALL_TARGETS, tuple(OTHERS)), open_tally(), OTHERS, jobs, _say)
    except TallyError as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--count", type=int, default=2_000_000, help="cases over all targets")
    words.add_argument("--frames", type=int, default=50_000, help="frames to a running broker")
    words.add_argument("--quorums", type=int, default=300, help="quorums with liars in them")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument(
        "--continue",
        action="store_true",
        dest="go_on",
        help="run what this build has not run yet, and count it",
    )
    words.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="with --continue: side by side")
    given = words.parse_args()
    if given.go_on:
        sys.exit(counted(given.count, given.jobs))
    logging.disable(logging.CRITICAL)
    run_all(ALL_TARGETS, given.count, given.seed, print_report)
    lies = sum(
        hostile_peer.run(seed, 40, dynamic=seed % 2 == 1).lies
        for seed in range(given.seed, given.seed + given.quorums)
    )
    print(f"{'lying controllers':20} {lies:8} lies in {given.quorums} quorums")
    with tempfile.TemporaryDirectory() as directory, fuzzed_broker(Path(directory)) as (broker, controller):
        fuzz(broker, given.frames, given.seed, controller)
        print(f"{given.frames} frames later the broker serves; {rss_mb(broker.pid)} MB")


if __name__ == "__main__":
    main()
