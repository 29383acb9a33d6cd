"""The lanes of a mirror as Spark tasks: the same records as with threads, also when a job is lost."""

from __future__ import annotations

from integration.mirror_world import assert_same_records, keys, make_topic, produce, records, transactions
from ottla.mirror.config import mirror_config
from ottla.mirror.lanes import LaneOutcome
from ottla.mirror.mirror import Mirror
from ottla.mirror.runners import SparkRunner
from ottla.pipeline.executors import executors, say_if_none


class OneLostJob(SparkRunner):
    """The report of the first job is lost after its lanes have written."""

    lost = 0

    def run(self, shares, ended) -> list[LaneOutcome]:
        found = super().run(shares, ended)
        if self.lost == 0:
            type(self).lost = 1
            return [LaneOutcome(share.lane, (), "the job was lost") for share in shares]
        return found


def test_lanes_run_as_spark_tasks(spark, start_ottla_broker):
    source, target = start_ottla_broker("source").bootstrap, start_ottla_broker("target").bootstrap
    make_topic(source, "orders", 3)
    produce(source, "orders", 600, codec="lz4")
    transactions(source, "orders", 4)
    config = mirror_config(keys(source, target, tasks__max="2"))
    for make in (OneLostJob, SparkRunner):
        work = Mirror(config, once=True, make_runner=lambda _, make=make: make(spark))
        work.start()
        assert work.wait(300)
        assert not work.failures, work.failures
        produce(source, "orders", 10, start=9000)
    assert OneLostJob.lost == 1
    copied = sum(map(len, records(target, "A.orders").values()))
    assert copied == 600 + 60 + 10
    work = Mirror(config, once=True)
    work.start()
    assert work.wait(120)
    assert assert_same_records(source, "orders", target, "A.orders") == 680


def test_a_session_without_executors_says_what_it_waits_for(spark, caplog):
    assert executors(spark) == 0
    say_if_none(spark, 20.0)
    assert (
        "Spark has had no executor for 20 s: no worker of local[2] has 1g of memory and 1 core(s) free"
        in caplog.text
    )
