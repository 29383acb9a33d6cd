"""`offsets=identical` on Ottla targets: every record keeps its offset, whatever gaps the source has."""

from __future__ import annotations

import threading
import time

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, Producer

from integration.mirror_world import (
    commit,
    committed,
    connect,
    copy_once,
    keys,
    make_topic,
    produce,
    records,
    transactions,
    write_file,
)
from ottla.admin.partitions import delete_records
from ottla.cli.main import main
from ottla.mirror.config import mirror_config
from ottla.mirror.flow import Flow
from ottla.mirror.runners import ThreadRunner
from ottla.pipeline.writer import Place

pytestmark = pytest.mark.slow
DEADLINE_S = 60.0


@pytest.fixture
def world(start_ottla_broker):
    source = start_ottla_broker("source", {"log.cleaner.backoff.ms": 50})
    return source.bootstrap, start_ottla_broker("target").bootstrap


def fill_compacted(bootstrap: str) -> None:
    """A compacted topic with holes in its batches."""
    make_topic(
        bootstrap,
        "state",
        cleanup_policy="compact",
        internal_segment_bytes="20000",
        min_cleanable_dirty_ratio="0.01",
    )
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": "lz4", "batch.num.messages": 100}
    )
    for number in range(2000):
        key = b"key-%d" % (number % 500 if number % 3 else 5000 + number)
        producer.produce("state", key=key, value=b"v%d" % number * 10)
    assert producer.flush(60) == 0
    deadline = time.monotonic() + DEADLINE_S
    while not 0 < len(records(bootstrap, "state")[0]) < 1800:
        assert time.monotonic() < deadline, "the source was not compacted"
        threading.Event().wait(0.1)


def test_every_record_keeps_its_offset(world, tmp_path):
    source, target = world
    make_topic(source, "orders", 2)
    produce(source, "orders", 100, codec="lz4")
    transactions(source, "orders", 6)
    cluster = connect(source)
    delete_records(cluster, {("orders", 0): 20})
    cluster.close()
    fill_compacted(source)
    given = keys(source, target, offsets="identical", topics="orders,state", tasks__max="2")
    copy_once(given)

    # A driver that is lost in the middle costs no offset: nobody has to be fenced by a marker.
    flow = Flow(mirror_config(given).flow("A", "B"), ThreadRunner(most_lanes=2))
    flow.prepare()
    produce(source, "orders", 60, start=5000)
    flow.cycle(threading.Event(), flow.ends())
    flow.close(clean=False)
    produce(source, "orders", 60, start=6000)
    ends = {number: part[-1][0] for number, part in records(source, "orders").items()}
    commit(source, "billing", {Place("orders", number): end - 10 for number, end in ends.items()})
    copy_once(given)
    assert records(target, "A.orders") == records(source, "orders")
    copies = dict(records(target, "A.state")[0])
    left = records(source, "state")[0]
    assert left and [copies.get(at) for at, _ in left] == [one for _, one in left]
    assert committed(target, "billing") == {Place("A.orders", one): end - 10 for one, end in ends.items()}

    failures: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": target})
    producer.produce("A.orders", b"mine", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0
    assert failures[0] is not None and failures[0].code() == KafkaError.INVALID_RECORD

    # After the switch the copy takes records of producers.
    file = write_file(tmp_path / "mm2.properties", given)
    done = CliRunner().invoke(main, ["mirror", "failover", str(file), "A", "B"])
    assert done.exit_code == 0, done.output
    produce(target, "A.orders", 10, start=9000)
    held = [sum(map(len, records(*one).values())) for one in ((source, "orders"), (target, "A.orders"))]
    assert held[1] == held[0] + 10
