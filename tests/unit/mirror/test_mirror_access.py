"""Access to copies, MirrorMaker 1's command line, and the lines of progress."""

from __future__ import annotations

import io

import pytest

from ottla.admin.acls import Entry, Pattern
from ottla.mirror.acls import target_acls
from ottla.mirror.config import mirror_config
from ottla.mirror.failures import MirrorError
from ottla.mirror.flow import FlowProgress
from ottla.mirror.groups import Copy, translate
from ottla.mirror.legacy import legacy_keys
from ottla.mirror.runs import Run, RunMap
from ottla.mirror.topics import is_another
from ottla.mirror.watching import Watcher
from ottla.pipeline.writer import Place
from ottla.wire.enums import AclOperation, AclPermissionType, PatternType, ResourceType

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


def topic(name: str, pattern: PatternType = PatternType.LITERAL) -> Pattern:
    return Pattern(ResourceType.TOPIC, name, pattern)


def may(operation: AclOperation, permission: AclPermissionType = ALLOW) -> Entry:
    return Entry("User:alice", "*", operation, permission)


def test_readers_may_read_the_copy_and_writers_may_not_write_to_it():
    keys = {
        "clusters": "A,B",
        "A.bootstrap.servers": "a:1",
        "B.bootstrap.servers": "b:1",
        "A->B.enabled": "true",
    }
    flow = mirror_config(keys).flow("A", "B")
    found = {
        topic("orders"): [
            *(may(AclOperation.READ), may(AclOperation.WRITE), may(AclOperation.ALL)),
            may(AclOperation.WRITE, DENY),
        ],
        topic("other"): [may(AclOperation.READ)],
        topic("ord", PatternType.PREFIXED): [may(AclOperation.READ)],
        Pattern(ResourceType.GROUP, "orders", PatternType.LITERAL): [may(AclOperation.READ)],
    }
    copy = topic("A.orders")
    assert target_acls(flow, found, {"orders"}) == [
        (copy, may(AclOperation.READ)),
        (copy, may(AclOperation.READ)),
        (copy, may(AclOperation.WRITE, DENY)),
    ]


def test_positions_before_the_first_note_are_not_guessed():
    copy = Copy(Place("A.t", 0), 120, 30, RunMap([Run(100, 10, 20)]))
    assert translate(copy, 110, 0) == 20
    assert translate(copy, 130, 0) == 30, "ahead of the copy: it waits at its end"
    assert translate(copy, 50, 0) is None, "the source has it, and another mirror copied it"
    assert translate(copy, 50, 100) == 10, "the source has deleted it: the first record is next"
    assert translate(Copy(Place("A.t", 0), 5, 0, RunMap()), 3, 0) is None


def test_mirrormaker_1_is_a_flow_that_keeps_names():
    consumer = {"bootstrap.servers": "a:1", "group.id": "mm", "security.protocol": "SSL"}
    keys = legacy_keys(consumer, {"bootstrap.servers": "b:1", "acks": "all"}, "orders|paid", 3)
    flow = mirror_config(keys).flow("source", "target")
    assert flow.policy.remote_topic("source", "orders") == "orders"
    assert "paid" in flow.topic_filter()
    assert flow.number("tasks.max") == 3
    assert flow.from_end, "a consumer of MirrorMaker 1 began at the end unless its file said otherwise"
    assert flow.source_settings.security.protocol == "SSL"
    assert not flow.flag("sync.group.offsets.enabled")
    with pytest.raises(MirrorError, match=r"--producer.config has no bootstrap.servers"):
        legacy_keys(consumer, {}, "x", 1)


def test_progress_has_rate_lag_and_time_left():
    times = iter([90.0, 100.0, 110.0])
    out = io.StringIO()
    watcher = Watcher(live=False, out=out, clock=lambda: next(times))
    watcher.show({"A->B": FlowProgress(0, 0, 0, 0, 0)})
    assert out.getvalue() == "A->B  no partitions yet\n"
    watcher.show({"A->B": FlowProgress(2, 0, 0, 0, 5000)})
    watcher.show({"A->B": FlowProgress(2, 1, 2000, 4_000_000, 3000)})
    last = out.getvalue().splitlines()[-1]
    assert last == "A->B  2,000 records, 200/s, 0.4 MB/s, lag 3,000, 15 s left, 1 of 2 partitions stopped"
    watcher.finish({"A->B": FlowProgress(2, 0, 5000, 9_000_000, 0)})
    assert out.getvalue().splitlines()[-1] == "A->B  5,000 records copied, 9.0 MB, lag 0"


def test_a_source_that_gives_ids_to_its_topics_has_the_same_topics():
    assert not is_another("", "a1") and not is_another("a1", "") and not is_another("a1", "a1")
    assert is_another("a1", "b2")
