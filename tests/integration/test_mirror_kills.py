"""A mirror that is killed in the middle, and one that wakes up after another took over: nothing lost, nothing twice."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from integration.mirror_world import (
    assert_same_records,
    connect,
    copy_once,
    keys,
    make_topic,
    mirror_process,
    produce,
    transactions,
    write_file,
)
from ottla.errors import ApiException
from ottla.mirror.config import mirror_config
from ottla.mirror.mirror import Mirror
from ottla.pipeline.fetching import LATEST, READ_UNCOMMITTED, list_offsets
from ottla.pipeline.writer import Place

DEADLINE_S = 120.0


@pytest.fixture
def world(start_ottla_broker):
    source, target = start_ottla_broker("source"), start_ottla_broker("target")
    make_topic(source.bootstrap, "orders", 2)
    make_topic(source.bootstrap, "paid", 1)
    return source.bootstrap, target.bootstrap


class Writer(threading.Thread):
    """Writes to both topics until it shall end."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.ended = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.ended.is_set():
            codec = ("none", "lz4", "zstd", "gzip", "snappy")[number % 5]
            produce(self.bootstrap, "orders", 400, codec=codec, start=1000 * number)
            transactions(self.bootstrap, "paid", 3, size=10)
            number += 1


def written(cluster) -> int:
    """How many offsets the target holds; 0 before its topics are made."""
    if not {"A.orders", "A.paid"} <= {one.name for one in cluster.metadata(None).topics}:
        return 0
    places = [Place("A.orders", 0), Place("A.orders", 1), Place("A.paid", 0)]
    found = list_offsets(cluster, dict.fromkeys(places, LATEST), isolation=READ_UNCOMMITTED)
    return sum(found.values())


def wait_until(condition, process) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert process.poll() is None, "the mirror ended by itself"
        assert time.monotonic() < deadline
        process.poll()
        threading.Event().wait(0.02)


@pytest.mark.slow
def test_a_mirror_that_is_killed_again_and_again(world, tmp_path):
    source, target = world
    file = write_file(tmp_path / "mm2.properties", keys(source, target, tasks__max="2"))
    cluster = connect(target)
    writer = Writer(source)
    writer.start()
    try:
        for number in range(4):
            before = written(cluster)
            with (tmp_path / f"mirror-{number}.log").open("wb") as log:
                process = mirror_process(file, log)
            wait_until(lambda before=before: written(cluster) > before + 600, process)
            process.kill()
            process.wait()
    finally:
        writer.ended.set()
        writer.join(DEADLINE_S)
    copy_once(keys(source, target, tasks__max="2"))
    assert assert_same_records(source, "orders", target, "A.orders") > 1000
    assert_same_records(source, "paid", target, "A.paid")
    cluster.close()


@pytest.mark.slow
def test_a_mirror_that_wakes_up_after_another_took_over_is_refused(world, tmp_path):
    source, target = world
    file = write_file(tmp_path / "mm2.properties", keys(source, target))
    cluster = connect(target)
    with (tmp_path / "mirror.log").open("wb") as log:
        process = mirror_process(file, log)
    produce(source, "orders", 100)
    wait_until(lambda: written(cluster) >= 100, process)
    process.send_signal(signal.SIGSTOP)
    produce(source, "orders", 300, start=1000)
    copy_once(keys(source, target))
    produce(source, "orders", 100, start=5000)
    process.send_signal(signal.SIGCONT)
    assert process.wait(DEADLINE_S) == 1
    assert "another process took" in (tmp_path / "mirror.log").read_text()
    copy_once(keys(source, target))
    assert assert_same_records(source, "orders", target, "A.orders") == 500
    cluster.close()


@pytest.mark.slow
def test_brokers_of_both_sides_are_killed_while_a_mirror_runs(start_ottla_broker):
    source, target = start_ottla_broker("source"), start_ottla_broker("target")
    make_topic(source.bootstrap, "orders", 2)
    given = keys(source.bootstrap, target.bootstrap, tasks__max="2")
    work = Mirror(mirror_config(given))
    work.start()
    cluster = connect(target.bootstrap)

    def arrived(count: int) -> bool:
        try:
            places = dict.fromkeys((Place("A.orders", 0), Place("A.orders", 1)), LATEST)
            return sum(list_offsets(cluster, places, isolation=READ_UNCOMMITTED).values()) >= count
        except ApiException:
            return False

    try:
        for number, broker in enumerate((target, source, target)):
            produce(source.bootstrap, "orders", 500, codec="lz4", start=1000 * number)
            if number:
                broker.kill()
                broker.start()
            deadline = time.monotonic() + DEADLINE_S
            while not arrived(500 * (number + 1)):
                assert time.monotonic() < deadline
                threading.Event().wait(0.05)
    finally:
        work.stop()
        cluster.close()
    assert not work.failures, work.failures
    copy_once(given)
    assert assert_same_records(source.bootstrap, "orders", target.bootstrap, "A.orders") == 1500
