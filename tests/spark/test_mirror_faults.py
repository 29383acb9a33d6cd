"""`make test-mirror-faults`: driver, executors, Python workers and brokers killed while gigabytes are mirrored.

The lanes run on a standalone Spark cluster of two workers. `make test` has the short form without Spark
(tests/integration/test_mirror_kills.py); OTTLA_MIRROR_GB and OTTLA_MIRROR_KILLS say how much this one does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from integration.mirror_world import CODECS, connect, keys, make_topic, transactions, write_file
from ottla.errors import ApiException
from ottla.pipeline.fetching import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchLimits,
    OffsetRange,
    fetch_ranges,
    list_offsets,
)
from ottla.pipeline.standalone import StandaloneCluster
from ottla.pipeline.writer import Place
from ottla.records.batch import iter_records
from ottla.testing.ports import free_ports
from spark.killing import Job, children_of, kill, python_workers, report_kills

pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(7200),
    pytest.mark.skipif("OTTLA_MIRROR_GB" not in os.environ, reason="long: make test-mirror-faults"),
]

GB = float(os.environ.get("OTTLA_MIRROR_GB", "0.2"))
KILLS = int(os.environ.get("OTTLA_MIRROR_KILLS", "6"))
_VALUE = 10_000
_PARTITIONS = 4
_QUIET_S = 900.0
_STARTS = "mirror A->B starts"
_COPIES = r"A->B  [1-9][0-9,]* records"


def fill(bootstrap: str, count: int) -> None:
    """Records that do not compress, so that every byte is copied, in all codecs."""
    block = os.urandom(1 << 22)
    share = count // len(CODECS)
    for which, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "linger.ms": 20,
                "batch.size": 500_000,
                "queue.buffering.max.kbytes": 100_000,
            }
        )
        for number in range(which * share, (which + 1) * share):
            at = number * 4099 % (len(block) - _VALUE)
            while True:
                try:
                    producer.produce("orders", block[at : at + _VALUE], key=b"%d" % number)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(300) == 0


def digests(bootstrap: str, topic: str) -> dict[int, tuple[int, str]]:
    """The number of committed records of each partition, and a digest of all of them in order."""
    cluster = connect(bootstrap)
    try:
        places = [Place(topic, one) for one in cluster.retrying(lambda: cluster.leaders(topic))]
        starts = list_offsets(cluster, dict.fromkeys(places, EARLIEST), isolation=READ_UNCOMMITTED)
        ends = list_offsets(cluster, dict.fromkeys(places, LATEST), isolation=READ_COMMITTED)
        sums = {place.partition: hashlib.sha256() for place in places}
        counts: Counter[int] = Counter()
        wanted = [OffsetRange(*place, starts[place], ends[place]) for place in places]
        for part in fetch_ranges(cluster, wanted, limits=FetchLimits(stall_s=120)):
            for at, header in part.batches:
                for one in iter_records(part.data, at, header):
                    if one.offset >= part.start:
                        key, value = one.key or b"", one.value or b""
                        rest = (one.key is None, one.value is None, tuple(one.headers), one.timestamp)
                        for piece in (b"%d %d " % (len(key), len(value)), key, value, repr(rest).encode()):
                            sums[part.partition].update(piece)
                        counts[part.partition] += 1
        return {number: (counts[number], found.hexdigest()) for number, found in sums.items()}
    finally:
        cluster.close()


class Trickle(threading.Thread):
    """Small transactions, some of them aborted, all the while."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(1.0):
            # Its broker is killed now and then: it tries again.
            with contextlib.suppress(KafkaException):
                transactions(self.bootstrap, "paid", 2, size=10)


def test_gigabytes_while_everything_is_killed(
    start_ottla_broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_PROGRESS_INTERVAL_S", "1")
    source, target = start_ottla_broker("source"), start_ottla_broker("target")
    make_topic(source.bootstrap, "orders", _PARTITIONS)
    make_topic(source.bootstrap, "paid")
    count = int(GB * 1e9) // _VALUE
    began = time.monotonic()
    fill(source.bootstrap, count)
    print(f"{count:,} records filled in {time.monotonic() - began:.0f} s", flush=True)
    given = keys(source.bootstrap, target.bootstrap, tasks__max="2", mirror__cycle__ms="3000")
    given["ottla.spark.conf.spark.executor.memory"] = "600m"
    file = write_file(tmp_path / "mm2.properties", given)
    command = [sys.executable, "-m", "ottla", "mirror", "run", str(file)]
    # The driver that takes over from a sleeping one shall leave the others something to copy.
    brief = write_file(tmp_path / "brief.properties", given | {"mirror.cycle.ms": "200"})
    port, web_port = free_ports(2)
    trickle = Trickle(source.bootstrap)
    done: Counter[str] = Counter()
    with StandaloneCluster(
        workers=2, cores=1, memory="700m", port=port, web_port=web_port, directory=tmp_path / "cluster"
    ) as cluster:
        on_spark = Job([*command, "--master", cluster.master], tmp_path / "driver.log")
        on_spark.start()
        trickle.start()
        strikes = cycle(
            ("Python worker", "executor", "driver", "target broker", "paused driver", "source broker")
        )
        spread: set[int] = set()
        try:
            copied = 0
            for number in range(KILLS):
                # Always further than at the last strike: the driver that is struck is one that copies.
                wanted = copied + (count - copied) // (KILLS - number + 1)
                copied = _wait_for(target.bootstrap, on_spark, wanted)
                spread |= {pid for pid in cluster.executor_pids() if any(map(children_of, children_of(pid)))}
                what = next(strikes)
                if what == "Python worker":
                    done[what] += _kill_first(lambda: python_workers(cluster))
                elif what == "executor":
                    done[what] += _kill_first(cluster.executor_pids)
                elif what == "driver":
                    on_spark.kill()
                    on_spark.start()
                    done[what] += 1
                elif what == "paused driver":
                    _pause(on_spark, [*command[:-1], str(brief)], target.bootstrap, tmp_path)
                    on_spark.start()
                    done[what] += 1
                else:
                    broker = target if what == "target broker" else source
                    broker.kill()
                    broker.start()
                    done[what] += 1
            _wait_for(target.bootstrap, on_spark, count)
        finally:
            trickle.ended.set()
            trickle.join(120)
            on_spark.kill()
    last = Job([*command, "--once"], tmp_path / "last.log").start()
    assert last.wait(900) == 0, last.output()[-4000:]
    taken = time.monotonic() - began
    print(f"{GB} GB, {count:,} records, killed {dict(done)}, {taken:.0f} s", flush=True)
    assert len(spread) > 1, "lanes ran on both workers"
    assert done.total() == KILLS, "each strike hit a process"
    found = digests(source.bootstrap, "orders")
    assert found == digests(target.bootstrap, "A.orders")
    assert digests(source.bootstrap, "paid") == digests(target.bootstrap, "A.paid")
    assert sum(number for number, _ in found.values()) == count // len(CODECS) * len(CODECS)
    report_kills(done)


def _kill_first(find: Callable[[], list[int]]) -> bool:
    """Kills the first process of some; right after another strike there may be none yet."""
    deadline = time.monotonic() + _QUIET_S
    while time.monotonic() < deadline:
        if any(kill(pid) for pid in find()[:1]):
            return True
        threading.Event().wait(0.05)
    return False


def _pause(job: Job, command: list[str], bootstrap: str, folder: Path) -> None:
    """The driver sleeps, another one takes over and is killed, and the sleeper is refused when it wakes up."""
    # One that still starts would take over itself when it wakes up.
    _wait_for(bootstrap, job, 0, says=_COPIES)
    job.signal(signal.SIGSTOP)
    # Its lanes on Spark may still write; the other driver shuts them out before it copies.
    other = Job([*command, "--master", "none"], folder / f"other-{job.starts}.log").start()
    try:
        _wait_for(bootstrap, other, 0, says=_COPIES)
    finally:
        other.kill()
    job.signal(signal.SIGCONT)
    assert job.wait(600) == 1, job.output()[-4000:]
    assert "another process took" in job.output()
    job.kill()


def _held(bootstrap: str) -> int:
    """How many offsets the copy has; -1 while its broker does not answer."""
    cluster = connect(bootstrap)
    places = dict.fromkeys((Place("A.orders", number) for number in range(_PARTITIONS)), LATEST)
    try:
        return sum(list_offsets(cluster, places, isolation=READ_UNCOMMITTED).values())
    except ApiException:
        return -1
    finally:
        cluster.close()


def _wait_for(bootstrap: str, job: Job, wanted: int, *, says: str = "") -> int:
    """Waits until the copy holds so many offsets, and the job has said something since it started."""
    most, deadline = -1, time.monotonic() + _QUIET_S
    while most < wanted or not re.search(says, job.output().rpartition(_STARTS)[2]):
        assert job.poll() is None, f"the mirror ended by itself:\n{job.output()[-4000:]}"
        assert time.monotonic() < deadline, f"{most} of {wanted}:\n{job.output()[-4000:]}"
        now = _held(bootstrap)
        if now > most:
            most, deadline = now, time.monotonic() + _QUIET_S
        threading.Event().wait(0.05)
    return most
