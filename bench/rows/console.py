"""The console: start, a list of 10,000 topics, a full sample of a large cluster, search, and a scrape of a broker.

CPU times are the least of several requests, by the clock of the process that answers, so that a round of the sampler
in between does not count. The large cluster has 10,000 topics of four partitions and 2,200 groups, on as many nodes as
the limit of open files asks for.
"""

from __future__ import annotations

import http.client
import json
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from operator import sub
from statistics import median
from urllib.parse import urlsplit

from bench import browser
from bench.clusters import OttlaCluster
from bench.context import Bench
from bench.load.every import create, topics_for
from bench.load.large import LargeCluster
from bench.sheet import OTTLA
from bench.systems import cpu_seconds, rss_mb
from ottla.admin.cluster import Cluster
from ottla.admin.settings import ClusterSettings
from ottla.cli.tools.base import parse_bootstrap
from ottla.console import garbage
from ottla.console.sampler.round import Round, take
from ottla.console.sampler.state import ClusterState
from ottla.testing.ports import free_ports
from ottla.testing.process import BrokerProcess

_ROW = "console"
_STARTS = 5
_REQUESTS = 25
_ROUNDS = 5
_SCRAPED_PARTITIONS = 10_000
_SCRAPES = 6
_SCRAPE_PAUSE_S = 1.1
"""A broker gives the same text again for a second."""
_SETTLE_S = 120.0
_IDLE_SHARE = 0.1
_OTHER_FILES = 2_000
"""What a broker holds open beside a file for each partition."""
_NODES = 3
"""At least so many lead the partitions of the large cluster."""
_SEARCHED_RECORDS = 1_000_000
_FOLLOWED_RECORDS = 2_000_000
_NEEDLE = "needle-in-the-hay"


class ConsoleProcess:
    """`ottla console` on a free port, with the kernel's figures for it."""

    def __init__(self, bootstrap: str) -> None:
        words = [sys.executable, "-m", "ottla", "console", "--listen", "127.0.0.1:0"]
        self.began = time.monotonic()
        self._process = subprocess.Popen(
            [*words, "--bootstrap-server", bootstrap], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        select.select([self._process.stdout], [], [], 60)
        self.url = self._process.stdout.readline().split()[-1]
        self.ready_s = time.monotonic() - self.began
        parts = urlsplit(self.url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)

    @property
    def pid(self) -> int:
        return self._process.pid

    def get(self, path: str) -> bytes:
        """The page at a path of the cluster."""
        return self.ask(f"/c/local{path}")

    def ask(self, path: str) -> bytes:
        return _get(self._connection, path)

    def stop(self) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()


def _get(connection: http.client.HTTPConnection, path: str) -> bytes:
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {body[:300]!r}")
    return body


def console(bench: Bench) -> None:
    tiny = bench.scale.name == "tiny"
    _start(bench)
    _large(bench, LargeCluster(topics=100, groups=22) if tiny else LargeCluster())
    _scrape(bench, 200 if tiny else _SCRAPED_PARTITIONS)
    _search(bench, 20_000 if tiny else _SEARCHED_RECORDS)
    _tail(bench, 20_000 if tiny else _FOLLOWED_RECORDS)


@contextmanager
def _broker(bench: Bench, name: str, **settings: object) -> Iterator[BrokerProcess]:
    data = bench.directory / name
    data.parent.mkdir(parents=True, exist_ok=True)
    broker = BrokerProcess(data, settings={each.replace("_", "."): value for each, value in settings.items()})
    broker.start(timeout_s=120)
    try:
        yield broker
        broker.stop(120)
    finally:
        broker.kill()


def _wait_idle(used: Callable[[], float]) -> None:
    """Wait until brokers have made the logs of new partitions, which goes on after the answer."""
    deadline = time.monotonic() + _SETTLE_S
    while time.monotonic() < deadline:
        before = used()
        time.sleep(1)
        if used() - before < _IDLE_SHARE:
            return
    raise RuntimeError(f"the brokers are still busy after {_SETTLE_S:.0f} s")


def _add(bench: Bench, name: str, unit: str, value: float, *, higher: bool = False) -> None:
    bench.sheet.add(OTTLA, _ROW, name, unit, value, higher=higher)


def _start(bench: Bench) -> None:
    """From exec to the first page on a broker that is there, and the memory after it."""
    with _broker(bench, "console-start") as broker:
        for _ in range(_STARTS):
            started = ConsoleProcess(broker.bootstrap)
            try:
                started.get("/topics")
                _add(bench, "exec to first page", "s", time.monotonic() - started.began)
                _add(bench, "exec to ready", "s", started.ready_s)
                _add(bench, "CPU until the first page", "s", cpu_seconds(started.pid))
                _add(bench, "memory after the first page", "MB", rss_mb(started.pid))
            finally:
                started.stop()


def _scrape(bench: Bench, partitions: int) -> None:
    """The CPU time of a broker for one scrape."""
    (port,) = free_ports(1)
    with _broker(bench, "console-scrape", ottla_http_listen=f"127.0.0.1:{port}") as broker:
        create(broker.bootstrap, topics_for(partitions), 1)
        _wait_idle(lambda: cpu_seconds(broker.pid))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        used: list[float] = []
        for _ in range(_SCRAPES):
            time.sleep(_SCRAPE_PAUSE_S)
            before = cpu_seconds(broker.pid)
            text = _get(connection, "/metrics")
            used.append(cpu_seconds(broker.pid) - before)
        connection.close()
        size = text.count(b"\n")
        _add(bench, f"scrape of {partitions:,} partitions, least CPU", "ms", min(used) * 1000)
        _add(bench, f"scrape of {partitions:,} partitions, median CPU", "ms", median(used) * 1000)
        bench.sheet.note(f"The scrape of {partitions:,} partitions has {size:,} lines.")


def _tail(bench: Bench, records: int) -> None:
    """How fast a topic may grow while a page follows it: every record is counted, and frames keep coming."""
    with _broker(bench, "console-tail") as broker:
        started = ConsoleProcess(broker.bootstrap)
        try:
            for number in range(bench.scale.few_rounds):
                _follow(bench, broker, started, f"tail-{number}", records)
        finally:
            started.stop()


def _follow(bench: Bench, broker: BrokerProcess, started: ConsoleProcess, topic: str, records: int) -> None:
    words = [sys.executable, "-m", "ottla", "producer-perf-test", "--bootstrap-server", broker.bootstrap]
    words += ["--topic", topic, "--record-size", "100", "--throughput", "-1"]
    # The first records make the topic.
    subprocess.run([*words, "--num-records", "1"], check=True, stdout=subprocess.DEVNULL)
    while topic.encode() not in started.get("/topics"):
        time.sleep(0.2)
    parts = urlsplit(started.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    connection.request("GET", f"/c/local/t/{topic}/tail")
    lines = iter(connection.getresponse().readline, b"")
    while not next(lines).startswith(b"retry"):
        pass
    before = cpu_seconds(started.pid)
    with subprocess.Popen([*words, "--num-records", str(records)], stdout=subprocess.DEVNULL) as writing:
        counted, shown, moments = 0, 0, list[float]()
        for line in lines:
            if line.startswith(b"data: "):
                frame = json.loads(line.removeprefix(b"data: "))
                if not frame["count"]:
                    continue
                moments.append(time.monotonic())
                counted += frame["count"]
                shown += len(frame["rows"])
                if counted >= records:
                    break
        assert writing.wait(60) == 0
    connection.close()
    assert counted == records, (counted, records)
    _add(bench, "tail, 100 B records", "records/s", records / (moments[-1] - moments[0]), higher=True)
    _add(bench, "tail, CPU of a million records", "s", (cpu_seconds(started.pid) - before) / records * 1e6)
    _add(bench, "tail, longest time between frames", "ms", 1000 * max(map(sub, moments[1:], moments)))
    _add(bench, "tail, shown", "records/s", shown / (moments[-1] - moments[0]), higher=True)


def _search(bench: Bench, records: int) -> None:
    """A text that is not there, over a whole topic, as the page asks for it: slice after slice."""
    from confluent_kafka import Producer

    with _broker(bench, "console-search") as broker:
        sizes: dict[str, int] = {}
        for codec in ("none", "zstd"):
            producer = Producer(
                {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 50}
            )
            for number in range(records):
                value = f'{{"id": {number}, "customer": "c-{number * 7919 % 99991}", "note": "{"lorem ipsum " * 12}"}}'
                while True:
                    try:
                        producer.produce(f"search-{codec}", value, f"key-{number}")
                        break
                    except BufferError:
                        producer.poll(0.1)
                sizes[codec] = sizes.get(codec, 0) + len(value) + len(f"key-{number}")
            producer.flush(120)
        started = ConsoleProcess(broker.bootstrap)
        try:
            started.get("/topics")
            for codec in sizes:
                for _ in range(bench.scale.few_rounds):
                    took_s, cpu_s = _search_once(started, f"search-{codec}")
                    megabytes = sizes[codec] / 1e6
                    _add(bench, f"search, {codec}", "MB/s", megabytes / took_s, higher=True)
                    _add(bench, f"search, {codec}, a CPU second", "MB", megabytes / cpu_s, higher=True)
        finally:
            started.stop()


def _search_once(started: ConsoleProcess, topic: str) -> tuple[float, float]:
    """Search the topic to its end. Seconds by the clock and of the console's CPU."""
    began, cpu = time.monotonic(), cpu_seconds(started.pid)
    cursor: str | None = ""
    while cursor is not None:
        query = f"q={_NEEDLE}&at=oldest" + (f"&cursor={cursor}" if cursor else "")
        answer = json.loads(started.ask(f"/api/v1/c/local/topics/{topic}/records?{query}"))
        assert not answer["records"]
        cursor = answer["cursor"]
    return time.monotonic() - began, cpu_seconds(started.pid) - cpu


def _large(bench: Bench, shape: LargeCluster) -> None:
    """Pages and samples of 10,000 topics, 40,000 partitions and 2,200 groups."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    nodes = max(_NODES, ceil(shape.partitions / (allowed - _OTHER_FILES)))
    cluster = OttlaCluster(bench.directory / "console-large", nodes, held=False)
    cluster.start()
    try:
        shape.build(cluster.bootstrap)
        _wait_idle(cluster.cpu_seconds)
        bench.sheet.note(f"The {shape.partitions:,} partitions are led by {nodes} nodes on this machine.")
        _sample(bench, cluster, shape)
        started = ConsoleProcess(cluster.bootstrap)
        try:
            _pages(bench, started, shape)
        finally:
            started.stop()
        cluster.stop()
    finally:
        cluster.kill_all()
        cluster.wipe()


def _sample(bench: Bench, cluster: OttlaCluster, shape: LargeCluster) -> None:
    """Full rounds of the sampler, in this process: everything is asked for."""
    settings = ClusterSettings(bootstrap=tuple(parse_bootstrap(cluster.bootstrap)))
    client, state = Cluster(settings), ClusterState("bench")
    figures: list[tuple[float, float, float]] = []
    for number in range(_ROUNDS):
        clock, cpu, theirs = time.monotonic(), time.process_time(), cluster.cpu_seconds()
        with garbage.held_back():
            take(client, state, Round(number, time.time(), full=True))
        figures.append(
            (
                time.monotonic() - clock,
                time.process_time() - cpu,
                cluster.cpu_seconds() - theirs,
            )
        )
    client.close()
    partitions = sum(each.partitions for each in state.topics.values() if not each.internal)
    assert partitions == shape.partitions, (partitions, shape.partitions)
    assert len(state.groups) == shape.groups
    name = f"full sample, {partitions:,} partitions, {shape.groups:,} groups"
    _add(bench, f"{name}, first", "s", figures[0][0])
    for clock, cpu, theirs in figures[1:]:
        _add(bench, name, "s", clock)
        _add(bench, f"{name}, CPU", "s", cpu)
        _add(bench, f"{name}, CPU of the nodes", "s", theirs)


def _pages(bench: Bench, started: ConsoleProcess, shape: LargeCluster) -> None:
    while True:
        try:
            started.get("/topics")
            break
        except RuntimeError:
            time.sleep(0.2)
    for name, path in (
        ("topics: page", "/topics"),
        ("topics: by size", "/topics?sort=size"),
        ("topics: found by name", "/topics?q=large-0777"),
        ("groups: page", "/groups"),
        ("overview", "/"),
    ):
        cpu: list[float] = []
        clock: list[float] = []
        for _ in range(_REQUESTS):
            before, began = cpu_seconds(started.pid), time.monotonic()
            started.get(path)
            cpu.append(cpu_seconds(started.pid) - before)
            clock.append(time.monotonic() - began)
        _add(bench, f"{name}, server CPU", "ms", min(cpu) * 1000)
        _add(bench, f"{name}, answered", "ms", median(clock) * 1000)
    for took_ms in browser.dom_ready_ms(f"{started.url}/c/local/topics", _REQUESTS):
        _add(bench, f"{shape.topics:,} topics, DOM ready in a browser", "ms", took_ms)
    _add(bench, "memory with the large cluster", "MB", rss_mb(started.pid))
